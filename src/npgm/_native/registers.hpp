// For AVX-512: entries in registers, several of which are moved at a time. Memory then sees a few lines of each array read
// before any is written, and a loop without arithmetic to speak of gains as much as a fifth by it.
#pragma once

#include <immintrin.h>

#include <type_traits>

#include "arithmetic.hpp"

namespace npgm {
namespace {

NPGM_INLINE __m512 with_sign(__m512 magnitude, __m512 sign) {
    __m512i const first = _mm512_set1_epi32(static_cast<int>(sign_bit<float>));
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(  // (first & sign) | magnitude
        first, _mm512_castps_si512(sign), _mm512_castps_si512(magnitude), 0xea));
}

// As many entries as are moved together: those of one register of P, or of two, the even and the odd ones.
template <class P>
struct Registers {
    __m512 of[1];
};
template <>
struct Registers<Bfloat16> {
    __m512 of[2];
};
template <class P>
constexpr int width = sizeof(Registers<P>) / sizeof(float);

// Entries stored as S, in the order of P. The latter round as `store` does.
template <class P, class S>
NPGM_INLINE Registers<P> load_registers(S const* x) {
    if constexpr (std::is_same_v<S, Bfloat16>) {
        __m512i const both = _mm512_loadu_si512(x);
        return {_mm512_castsi512_ps(_mm512_slli_epi32(both, 16)),
                _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(-0x10000)))};
    } else if constexpr (std::is_same_v<S, Float16>) {
        return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<__m256i const*>(x)))};
    } else if constexpr (std::is_same_v<P, Bfloat16>) {
        __m512 const first = _mm512_loadu_ps(x), second = _mm512_loadu_ps(x + 16);
        __m512i const even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
        __m512i const odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
        return {_mm512_permutex2var_ps(first, even, second), _mm512_permutex2var_ps(first, odd, second)};
    } else {
        return {_mm512_loadu_ps(x)};
    }
}
template <class P, class S>
NPGM_INLINE void store_registers(S* x, Registers<P> const& value) {
    if constexpr (std::is_same_v<S, Bfloat16>) {
        __m512i const even = _mm512_castps_si512(value.of[0]), odd = _mm512_castps_si512(value.of[1]);
        __mmask32 const upper = 0xaaaaaaaa;
        __m512i const kept = _mm512_mask_blend_epi16(upper, _mm512_srli_epi32(even, 16), odd);
        __m512i const lost = _mm512_mask_blend_epi16(upper, even, _mm512_slli_epi32(odd, 16));
        // the carry of lost + 0x7fff + the last digit kept, as the first digit of an average that is rounded up; the
        // ternary operation is (kept & 1) | 0x7ffe
        __m512i const half = _mm512_ternarylogic_epi32(kept, _mm512_set1_epi16(1), _mm512_set1_epi16(0x7ffe), 0xea);
        __m512i const carry = _mm512_srli_epi16(_mm512_avg_epu16(lost, half), 15);
        // added to the magnitude such that a NaN of all ones stays one; the ternary operation is sign ? kept : sum
        __m512i const sign = _mm512_set1_epi16(-0x8000);
        __m512i const sum = _mm512_adds_epu16(_mm512_or_si512(sign, kept), carry);
        _mm512_storeu_si512(x, _mm512_ternarylogic_epi32(sign, kept, sum, 0xca));
    } else if constexpr (std::is_same_v<S, Float16>) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(x),
                            _mm512_cvtps_ph(value.of[0], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    } else if constexpr (std::is_same_v<P, Bfloat16>) {
        __m512i const low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
        __m512i const high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
        _mm512_storeu_ps(x, _mm512_permutex2var_ps(value.of[0], low, value.of[1]));
        _mm512_storeu_ps(x + 16, _mm512_permutex2var_ps(value.of[0], high, value.of[1]));
    } else {
        _mm512_storeu_ps(x, value.of[0]);
    }
}

// Registers that are moved together, and the entries of them.
constexpr int together = 4;
using Together = __m512[together];

}  // namespace
}  // namespace npgm
