// For AVX-512: a preconditioner as a polynomial on each of 32 intervals, whose coefficients lie in registers. One
// permutation of two registers fetches a coefficient for 16 entries, so that neither branch of a formula is computed in
// vain, nor a root, a quotient or an exponential. Written with intrinsics, as no compiler finds that instruction.
#pragma once

#include <immintrin.h>

#include <type_traits>

#include "kernels.hpp"

namespace npgm {
namespace {

// The k-th interval starts where a + offset has the k-th pair of exponent and two leading digits. The degree is that
// for results of which the digits of S are kept.
template <class S>
class Pieces {
public:
    static constexpr float offset = 0.25f, end = 63.75f;

    // By interpolation at Chebyshev nodes, in double precision; on the first interval of h*'(a)/a, where the relative
    // error is to be small next to 0.
    template <class Kernel>
    explicit Pieces(Kernel const& kernel) {
        for (int k = 0; k < count; ++k) {
            double const octave = double(offset) * double(1 << k / 4), width = octave / 4;
            double const start = octave + (k % 4) * width - double(offset), origin = short_numbers ? 0.0 : start;
            int const divided = k == 0 ? 1 : 0, nodes = degree + 1 - divided;
            double at[degree + 1], difference[degree + 1], p[degree + 1] = {};
            for (int i = 0; i < nodes; ++i) {
                double const root = ::sin((2 * i + 1) * 0.78539816339744831 / nodes);
                double const a = start + width * root * root, u = kernel.precondition(a);
                at[i] = a - origin;
                difference[i] = divided ? u / a : u;
            }
            for (int order = 1; order < nodes; ++order)
                for (int i = nodes - 1; i >= order; --i)
                    difference[i] = (difference[i] - difference[i - 1]) / (at[i] - at[i - order]);
            // Newton's form, multiplied out
            for (int i = nodes - 1; i >= 0; --i) {
                for (int power = degree; power > 0; --power) p[power] = p[power - 1] - at[i] * p[power];
                p[0] = difference[i] - at[i] * p[0];
            }
            std::uint32_t const slot = (std::uint32_t(k) + (to_bits(offset) >> digits_left)) % count;
            for (int power = 0; power <= degree; ++power)
                coefficients[power][slot] = power < divided ? 0.0f : float(p[power - divided]);
            starts[slot] = float(start);
        }
    }

    // h*'(a) for 0 <= a < end, of several registers, for all of which a coefficient is read once.
    template <int n>
    NPGM_INLINE void operator()(__m512 const (&a)[n], __m512 (&u)[n]) const {
        __m512 z[n];
        __m512i interval[n];  // of which a permutation reads five digits
        for (int i = 0; i < n; ++i)
            interval[i] = _mm512_srli_epi32(_mm512_castps_si512(_mm512_add_ps(a[i], _mm512_set1_ps(offset))), digits_left);
        // Polynomials of a itself lose four digits. The difference is exact, as the first interval starts at 0, and
        // others at half their end or later.
        Table const origins(starts);
        for (int i = 0; i < n; ++i) z[i] = short_numbers ? a[i] : _mm512_sub_ps(a[i], origins(interval[i]));
        Table const leading(coefficients[degree]);
        for (int i = 0; i < n; ++i) u[i] = leading(interval[i]);
        for (int power = degree - 1; power >= 0; --power) {
            Table const table(coefficients[power]);
            for (int i = 0; i < n; ++i) u[i] = _mm512_fmadd_ps(u[i], z[i], table(interval[i]));
        }
    }

private:
    static constexpr bool short_numbers = sizeof(S) == 2;
    static constexpr int count = 32, digits_left = 21, degree = std::is_same_v<S, float> ? 5 : std::is_same_v<S, Float16> ? 4 : 3;

    struct Table {
        NPGM_INLINE explicit Table(float const* values) : low(_mm512_load_ps(values)), high(_mm512_load_ps(values + 16)) {}
        NPGM_INLINE __m512 operator()(__m512i place) const { return _mm512_permutex2var_ps(low, place, high); }
        __m512 low, high;
    };

    alignas(64) float coefficients[degree + 1][count], starts[count];
};

template <class Kernel, class S>
Pieces<S> const& pieces_of() {
    static Pieces<S> const pieces{Kernel()};
    return pieces;
}

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
        _mm512_storeu_si512(x, _mm512_add_epi16(kept, carry));
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

}  // namespace
}  // namespace npgm
