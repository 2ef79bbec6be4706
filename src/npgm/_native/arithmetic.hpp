// Numbers as they are stored and as they are computed with. Everything here is inlined into loops that the compiler
// vectorises, hence no branches and no calls. Included once for each instruction set, so nothing may have linkage.
#pragma once

#include <cstdint>
#include <limits>

#if defined(__GNUC__)
#define NPGM_INLINE [[gnu::always_inline]] inline
#else
#define NPGM_INLINE inline
#endif

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

// a b + c, in one rounding where the instruction set has it. Written out, and contraction switched off, so that a
// result depends neither on the place of an entry in a vector nor on what the compiler makes of the rest of a loop.
NPGM_INLINE float madd(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}
NPGM_INLINE double madd(double a, double b, double c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return __builtin_fma(a, b, c);
#else
    return a * b + c;
#endif
}
NPGM_INLINE float root(float x) { return __builtin_sqrtf(x); }
NPGM_INLINE double root(double x) { return __builtin_sqrt(x); }

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

template <class S>
NPGM_INLINE S store(double x);
template <class S>
NPGM_INLINE S store(float x);
template <>
NPGM_INLINE double store<double>(double x) {
    return x;
}
template <>
NPGM_INLINE float store<float>(float x) {
    return x;
}
// Both round to the nearest, ties to even, and keep NaN.
template <>
NPGM_INLINE Bfloat16 store<Bfloat16>(float x) {
    std::uint32_t const bits = to_bits(x);
    std::uint32_t const rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return {static_cast<std::uint16_t>(x == x ? rounded : 0x7fc0u)};
}
template <>
NPGM_INLINE Float16 store<Float16>(float x) {
    float const a = absolute(x);
    std::uint32_t const bits = to_bits(a);
    std::uint32_t const normal = (bits - (112u << 23) + 0xfffu + ((bits >> 13) & 1u)) >> 13;
    // the addition of 0.5 rounds to a multiple of 2^-24, the spacing of the subnormal numbers
    std::uint32_t const subnormal = to_bits(a + 0.5f) - to_bits(0.5f);
    std::uint32_t const finite = a < 0x1p-14f ? subnormal : normal;
    std::uint32_t const large = a == a ? 0x7c00u : 0x7e00u;
    return {static_cast<std::uint16_t>((a < 65520.0f ? finite : large) | ((to_bits(x) >> 16) & 0x8000u))};
}

// R with ln((1+s)/(1-s)) = 2s + s z R(z), z = s², for |s| <= 3 - 2√2, from the constant term on: Chebyshev
// interpolants, whose error is 2^-29 and 2^-58 of R.
template <class T>
constexpr T series[] = {0};
template <>
constexpr float series<float>[] = {
    0x1.555556p-1f, 0x1.9999ecp-2f, 0x1.245c28p-2f, 0x1.ddd4dap-3f,
};
template <>
constexpr double series<double>[] = {
    0x1.5555555555555p-1, 0x1.9999999999a39p-2, 0x1.2492492476a1ap-2, 0x1.c71c7201a55d7p-3,
    0x1.745cf8e4bba1bp-3, 0x1.3b1c3c1c81c8fp-3, 0x1.0fbde0f4ad17bp-3, 0x1.0c0aff044a970p-3,
};

// ln(1 + t) + extra ln 2, for finite t >= 0.
template <class T>
NPGM_INLINE T log1p(T t, T extra) {
    using F = Format<T>;
    constexpr Bits<T> one = to_bits(T(1)), root_half = to_bits(T(0.70710678118654752));
    constexpr T ln2_high = sizeof(T) == 4 ? T(0x1.62e3p-1) : T(0x1.62e42feep-1);  // times k without rounding
    constexpr T ln2_low = sizeof(T) == 4 ? T(0x1.2fefa2p-17) : T(0x1.a39ef35793c76p-33);
    // 2^mantissa + n in floating point has n in its last bits: a conversion that every instruction set has
    constexpr T shift = T(Bits<T>{1} << F::mantissa);

    // 1 + t = 2^k (1 + f) with 1 + f in [√½, √2); the rounding of 1 + t does not enter f
    Bits<T> const exponent = (to_bits(T(1) + t) + (one - root_half)) >> F::mantissa;
    T const k = from_bits<T>(to_bits(shift) | exponent) - (shift + F::bias) + extra;
    T const scale = from_bits<T>((static_cast<Bits<T>>(2 * F::bias) - exponent) << F::mantissa);
    T const f = madd(t, scale, scale - T(1));
    T const s = f / (T(2) + f), z = s * s, half_square = T(0.5) * f * f;

    constexpr auto const& c = series<T>;
    constexpr int degree = sizeof(c) / sizeof(T) - 1;
    T p = c[degree];
#pragma GCC unroll 16
    for (int i = degree - 1; i >= 0; --i) p = madd(p, z, c[i]);
    // 2s = f - s f
    T const tail = madd(s, madd(z, p, half_square), k * ln2_low);
    return madd(k, ln2_high, f - (half_square - tail));
}

// arsinh(a) for finite a >= 0, within 2 units in the last place.
template <class T>
NPGM_INLINE T asinh_finite(T a) {
    constexpr T big = sizeof(T) == 4 ? T(0x1p32) : T(0x1p64);  // from here on it is ln(2a)
    T const b = a < big ? a : big;
    T const square = b * b;
    T const t = b + square / (T(1) + root(T(1) + square));
    return log1p(a < big ? t : T(0.25) * a, a < big ? T(0) : T(3));
}

}  // namespace
}  // namespace npgm
