// Numbers as they are stored and as they are computed with. Everything here is inlined into loops that the compiler
// vectorises, hence no branches and no calls. Included once for each instruction set, so nothing may have linkage.
#pragma once

#include <math.h>

#include <cstdint>
#include <limits>

#include "compiler.hpp"

namespace npgm {
namespace {

struct Bfloat16 {
    std::uint16_t bits;
};
struct Float16 {
    std::uint16_t bits;
};

template <class T>
struct Format;
template <>
struct Format<float> {
    using Bits = std::uint32_t;
    static constexpr int mantissa = 23, bias = 127;
};
template <>
struct Format<double> {
    using Bits = std::uint64_t;
    static constexpr int mantissa = 52, bias = 1023;
};

template <class T>
using Bits = typename Format<T>::Bits;
template <class T>
inline constexpr T largest_finite = std::numeric_limits<T>::max();
template <class T>
inline constexpr Bits<T> sign_bit = Bits<T>{1} << (8 * sizeof(T) - 1);

template <class T>
NPGM_INLINE constexpr Bits<T> to_bits(T x) {
    return __builtin_bit_cast(Bits<T>, x);
}
template <class T>
NPGM_INLINE T from_bits(Bits<T> bits) {
    return __builtin_bit_cast(T, bits);
}
template <class T>
NPGM_INLINE T absolute(T x) {
    return from_bits<T>(to_bits(x) & ~sign_bit<T>);
}
template <class T>
NPGM_INLINE T with_sign(T magnitude, T sign) {
    return from_bits<T>(to_bits(magnitude) | (to_bits(sign) & sign_bit<T>));
}
template <class T>
NPGM_INLINE bool is_finite(T x) {
    return absolute(x) <= largest_finite<T>;
}

template <class T>
NPGM_INLINE T narrowed(double value) {
    return static_cast<T>(value > double(largest_finite<T>) ? double(largest_finite<T>) : value);
}

// a b + c, in one rounding where the instruction set has it. Written out, and contraction switched off, so that a
// result depends neither on the place of an entry in a vector nor on what the compiler makes of the rest of a loop.
NPGM_INLINE float madd(float a, float b, float c) {
#if NPGM_FMA
    return ::fmaf(a, b, c);
#else
    return a * b + c;
#endif
}
NPGM_INLINE double madd(double a, double b, double c) {
#if NPGM_FMA
    return ::fma(a, b, c);
#else
    return a * b + c;
#endif
}
NPGM_INLINE float root(float x) { return ::sqrtf(x); }
NPGM_INLINE double root(double x) { return ::sqrt(x); }

NPGM_INLINE float load(float x) { return x; }
NPGM_INLINE double load(double x) { return x; }
NPGM_INLINE float load(Bfloat16 x) { return from_bits<float>(std::uint32_t{x.bits} << 16); }
NPGM_INLINE float load(Float16 x) {
    std::uint32_t const magnitude = std::uint32_t{x.bits} & 0x7fffu, exponent = magnitude & 0x7c00u;
    std::uint32_t const sign = (std::uint32_t{x.bits} & 0x8000u) << 16;
    std::uint32_t const normal = (magnitude << 13) + (112u << 23);
    std::uint32_t const infinite = normal + (112u << 23);
    // the mantissa of a subnormal number is placed below that of 2^-14, which is then taken away
    float const subnormal = from_bits<float>(normal + (1u << 23)) - from_bits<float>(113u << 23);
    std::uint32_t const finite = exponent == 0 ? to_bits(subnormal) : normal;
    return from_bits<float>((exponent == 0x7c00u ? infinite : finite) | sign);
}

template <class S, class T>
NPGM_INLINE S store(T x) {
    return x;
}
// Both round to the nearest, ties to even, and keep NaN.
template <>
NPGM_INLINE Bfloat16 store<Bfloat16, float>(float x) {
    std::uint32_t const bits = to_bits(x);
    std::uint32_t const rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return {static_cast<std::uint16_t>(x == x ? rounded : 0x7fc0u)};
}
template <>
NPGM_INLINE Float16 store<Float16, float>(float x) {
    float const a = absolute(x);
    std::uint32_t const bits = to_bits(a);
    std::uint32_t const normal = (bits - (112u << 23) + 0xfffu + ((bits >> 13) & 1u)) >> 13;
    // the addition of 0.5 rounds to a multiple of 2^-24, the spacing of the subnormal numbers
    std::uint32_t const subnormal = to_bits(a + 0.5f) - to_bits(0.5f);
    std::uint32_t const finite = a < 0x1p-14f ? subnormal : normal;
    std::uint32_t const large = a == a ? 0x7c00u : 0x7e00u;
    return {static_cast<std::uint16_t>((a < 65520.0f ? finite : large) | ((to_bits(x) >> 16) & 0x8000u))};
}

}  // namespace
}  // namespace npgm
