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

// The value at z of the polynomial with the coefficients c, from the constant term on. Not a loop, which the compiler
// would vectorise around.
template <int i = 0, class T, int size>
NPGM_INLINE T polynomial(T const (&c)[size], T z) {
    if constexpr (i + 1 == size)
        return c[i];
    else
        return madd(polynomial<i + 1>(c, z), z, c[i]);
}

// The k for which a positive normal v is 2^k w with w in [√½, √2), off by the bias: as bits, and as a number.
template <class T>
NPGM_INLINE Bits<T> biased_exponent(T v) {
    return (to_bits(v) + (to_bits(T(1)) - to_bits(T(0.70710678118654752)))) >> Format<T>::mantissa;
}
template <class T>
NPGM_INLINE T exponent(Bits<T> biased) {
    // 2^mantissa + n in floating point has n in its last bits: a conversion that every instruction set has
    constexpr T shift = T(Bits<T>{1} << Format<T>::mantissa);
    return from_bits<T>(to_bits(shift) | biased) - (shift + Format<T>::bias);
}

// arsinh(a) for a >= 0, within 2 units in the last place.

// Below asinh_near, by (arsinh(a) - a)/a³ as the polynomial of a² with the least relative error in arsinh.
constexpr float asinh_near = 1.1752f;  // where arsinh becomes 1
NPGM_INLINE float asinh_below(float a) {
    constexpr float c[] = {
        -0x1.55543ap-3f, 0x1.32fa7cp-4f, -0x1.69c1a2p-5f, 0x1.ce6402p-6f,
        -0x1.11a2f6p-6f, 0x1.f7db7ep-8f, -0x1.28af62p-9f, 0x1.4172e2p-12f,
    };
    float const square = a * a;
    return madd(a * square, polynomial(c, square), a);
}

// Finite and not below asinh_near: ln(a + √(1+a²)), with (ln(1+f) - f)/f² as the polynomial of f with the least error
// in the logarithm. `bounded` is whether it is below asinh_big, from where on it is ln(2a).
constexpr float asinh_big = 0x1p32f;
template <bool bounded>
NPGM_INLINE float asinh_beyond(float a) {
    constexpr float c[] = {
        -0x1.0000c4p-1f, 0x1.555a64p-2f, -0x1.ff35f6p-3f, 0x1.974fdcp-3f,
        -0x1.62d626p-3f, 0x1.4e8dc8p-3f, -0x1.9b0438p-4f,
    };
    constexpr float ln2 = 0x1.62e43p-1f;  // off by 0.03 units in the last place, so that it needs no second part
    bool const small = bounded || a < asinh_big;
    float const v = small ? a + root(madd(a, a, 1.0f)) : 0.25f * a;
    std::uint32_t const biased = biased_exponent(v);
    float const k = exponent<float>(biased) + (small ? 0.0f : 3.0f);
    // v / 2^k, whose difference from 1 is not rounded
    float const f = from_bits<float>(to_bits(v) - (biased << 23) + to_bits(1.0f)) - 1.0f;
    return madd(k, ln2, madd(f * f, polynomial(c, f), f));
}

NPGM_INLINE float asinh_moderate(float a) { return a < asinh_near ? asinh_below(a) : asinh_beyond<true>(a); }
NPGM_INLINE float asinh_finite(float a) { return a < asinh_near ? asinh_below(a) : asinh_beyond<false>(a); }

// The same in double precision, where a polynomial of a would have too many terms: ln(1 + t) for
// t = a + a²/(1 + √(1+a²)), and with 1 + t = 2^k (1 + f) and s = f/(2+f), ln(1+f) = 2s + s z R(z) for z = s², where R is
// a Chebyshev interpolant.
NPGM_INLINE double asinh_finite(double a) {
    constexpr double big = 0x1p64;
    constexpr double r[] = {
        0x1.5555555555555p-1, 0x1.9999999999a39p-2, 0x1.2492492476a1ap-2, 0x1.c71c7201a55d7p-3,
        0x1.745cf8e4bba1bp-3, 0x1.3b1c3c1c81c8fp-3, 0x1.0fbde0f4ad17bp-3, 0x1.0c0aff044a970p-3,
    };
    constexpr double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;  // k ln2_high is not rounded
    double const b = a < big ? a : big, square = b * b;
    double const t = a < big ? b + square / (1.0 + root(1.0 + square)) : 0.25 * a;
    std::uint64_t const biased = biased_exponent(1.0 + t);
    double const k = exponent<double>(biased) + (a < big ? 0.0 : 3.0);
    double const scale = from_bits<double>((std::uint64_t{2 * 1023} - biased) << 52);
    double const f = madd(t, scale, scale - 1.0);  // the rounding of 1 + t does not enter
    double const s = f / (2.0 + f), z = s * s, half_square = 0.5 * f * f;
    // 2s = f - s f
    double const tail = madd(s, madd(z, polynomial(r, z), half_square), k * ln2_low);
    return madd(k, ln2_high, f - (half_square - tail));
}

}  // namespace
}  // namespace npgm
