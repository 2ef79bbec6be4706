// Elementary functions of floats and doubles, as the preconditioners need them: for arguments that are not negative,
// finite and, where that is said, bounded. Without branches and calls, so that loops over them are vectorised.
// Polynomials are interpolants at Chebyshev nodes, where nothing else is said.
#pragma once

#include "arithmetic.hpp"

namespace npgm {
namespace {

// The value at z of the polynomial with the coefficients c, from the constant term on. Not a loop, which the compiler
// would vectorise around.
template <int i = 0, class T, int size>
NPGM_INLINE T polynomial(T const (&c)[size], T z) {
    if constexpr (i + 1 == size)
        return c[i];
    else
        return madd(polynomial<i + 1>(c, z), z, c[i]);
}

// So large that 1 + x rounds to x, where x² is still far from overflow.
template <class T>
constexpr T big = sizeof(T) == 4 ? T(0x1p32) : T(0x1p64);

// Parts of the logarithm of 2; the first times an exponent is not rounded.
template <class T>
constexpr T ln2_high = sizeof(T) == 4 ? T(0x1.62e3p-1) : T(0x1.62e42feep-1);
template <class T>
constexpr T ln2_low = sizeof(T) == 4 ? T(0x1.2fefa2p-17) : T(0x1.a39ef35793c76p-33);

// In floating point 2^mantissa + n has n in its last bits: a conversion that every instruction set has.
template <class T>
constexpr T shift = T(Bits<T>{1} << Format<T>::mantissa);
template <class T>
NPGM_INLINE T number(Bits<T> n) {
    return from_bits<T>(to_bits(shift<T>) | n) - shift<T>;
}
// 2^k for -bias < k <= bias, given as k + bias.
template <class T>
NPGM_INLINE T power_of_two(Bits<T> biased) {
    return from_bits<T>(biased << Format<T>::mantissa);
}

// The k for which a positive normal v is 2^k w with w in [√½, √2), off by the bias: as bits, and as a number.
template <class T>
NPGM_INLINE Bits<T> biased_exponent(T v) {
    return (to_bits(v) + (to_bits(T(1)) - to_bits(T(0.70710678118654752)))) >> Format<T>::mantissa;
}
template <class T>
NPGM_INLINE T exponent(Bits<T> biased) {
    return number<T>(biased) - Format<T>::bias;
}

// k ln 2 + ln(1 + f) for 1 + f in [√½, √2). In floats by (ln(1+f) - f)/f² as a polynomial of f.
NPGM_INLINE float logarithm_of_parts(float k, float f) {
    constexpr float c[] = {
        -0x1.fffffep-2f, 0x1.555554p-2f, -0x1.00020cp-2f, 0x1.99a012p-3f, -0x1.548382p-3f,
        0x1.22ea5ap-3f, -0x1.0cda32p-3f, 0x1.048f72p-3f, -0x1.3a4ff6p-4f,
    };
    float const logarithm = madd(f * f, polynomial(c, f), madd(k, ln2_low<float>, f));
    return madd(k, ln2_high<float>, logarithm);
}
// In doubles, where that would have too many terms, with s = f/(2+f): ln(1+f) = 2s + s z R(z) for z = s².
constexpr double logarithm_tail[] = {
    0x1.5555555555555p-1, 0x1.9999999999a39p-2, 0x1.2492492476a1ap-2, 0x1.c71c7201a55d7p-3,
    0x1.745cf8e4bba1bp-3, 0x1.3b1c3c1c81c8fp-3, 0x1.0fbde0f4ad17bp-3, 0x1.0c0aff044a970p-3,
};
NPGM_INLINE double logarithm_of_parts(double k, double f) {
    double const s = f / (2.0 + f), z = s * s, half_square = 0.5 * f * f;
    // 2s = f - s f
    double const tail = madd(s, madd(z, polynomial(logarithm_tail, z), half_square), k * ln2_low<double>);
    return madd(k, ln2_high<double>, f - (half_square - tail));
}

// ln v + doublings ln 2, for a normal v.
template <class T>
NPGM_INLINE T logarithm(T v, T doublings) {
    Bits<T> const biased = biased_exponent(v);
    // v / 2^k, whose difference from 1 is not rounded
    T const f = from_bits<T>(to_bits(v) - (biased << Format<T>::mantissa) + to_bits(T(1))) - T(1);
    return logarithm_of_parts(exponent<T>(biased) + doublings, f);
}

// ln(1 + t) + doublings ln 2, with all digits where t is small; t at most an eighth of the largest number.
template <class T>
NPGM_INLINE T logarithm1p(T t, T doublings) {
    Bits<T> const biased = biased_exponent(T(1) + t);
    T const scale = power_of_two<T>(2 * Format<T>::bias - biased);
    T const f = madd(t, scale, scale - T(1));  // the rounding of 1 + t does not enter
    return logarithm_of_parts(exponent<T>(biased) + doublings, f);
}
template <class T>
NPGM_INLINE T logarithm1p(T t) {
    return logarithm1p(t < big<T> ? t : T(0.25) * t, t < big<T> ? T(0) : T(2));
}

// arsinh(a). In floats below asinh_near by (arsinh(a) - a)/a³ as the polynomial of a² with the least relative error in
// arsinh.
constexpr float asinh_near = 1.1752f;  // where arsinh becomes 1
NPGM_INLINE float asinh_below(float a) {
    constexpr float c[] = {
        -0x1.55543ap-3f, 0x1.32fa7cp-4f, -0x1.69c1a2p-5f, 0x1.ce6402p-6f,
        -0x1.11a2f6p-6f, 0x1.f7db7ep-8f, -0x1.28af62p-9f, 0x1.4172e2p-12f,
    };
    float const square = a * a;
    return madd(a * square, polynomial(c, square), a);
}
// From there on ln(a + √(1+a²)), and ln(2a) where a is big, which it is not where it is `bounded`; with (ln(1+f) - f)/f²
// as the polynomial of f with the least error in that logarithm, which is not near 0.
template <bool bounded>
NPGM_INLINE float asinh_beyond(float a) {
    constexpr float c[] = {
        -0x1.0000c4p-1f, 0x1.555a64p-2f, -0x1.ff35f6p-3f, 0x1.974fdcp-3f,
        -0x1.62d626p-3f, 0x1.4e8dc8p-3f, -0x1.9b0438p-4f,
    };
    constexpr float ln2 = 0x1.62e43p-1f;  // off by 0.03 units in the last place, so that it needs no second part
    bool const small = bounded || a < big<float>;
    float const v = small ? a + root(madd(a, a, 1.0f)) : 0.25f * a;
    std::uint32_t const biased = biased_exponent(v);
    float const k = exponent<float>(biased) + (small ? 0.0f : 3.0f);
    // v / 2^k, whose difference from 1 is not rounded
    float const f = from_bits<float>(to_bits(v) - (biased << 23) + to_bits(1.0f)) - 1.0f;
    return madd(k, ln2, madd(f * f, polynomial(c, f), f));
}
NPGM_INLINE float asinh_moderate(float a) { return a < asinh_near ? asinh_below(a) : asinh_beyond<true>(a); }
NPGM_INLINE float asinh(float a) { return a < asinh_near ? asinh_below(a) : asinh_beyond<false>(a); }
// In doubles, where a polynomial of a would have too many terms, ln(1 + t) for t = a + a²/(1 + √(1+a²)).
NPGM_INLINE double asinh(double a) {
    double const b = a < big<double> ? a : big<double>, square = b * b;
    double const t = a < big<double> ? b + square / (1.0 + root(1.0 + square)) : 0.25 * a;
    return logarithm1p(t, a < big<double> ? 0.0 : 3.0);
}

// e^x = 2^k (1 + q) with |q| < 0.42, where k is in the last bits.
template <class T>
struct Exponential {
    Bits<T> k;
    T q;
};
// (e^r - 1 - r)/r² for |r| <= ½ ln 2.
NPGM_INLINE float exponential_tail(float r) {
    constexpr float c[] = {0x1.000000p-1f, 0x1.5554dep-3f, 0x1.55551ap-5f, 0x1.120b64p-7f, 0x1.6d10fep-10f};
    return polynomial(c, r);
}
NPGM_INLINE double exponential_tail(double r) {
    constexpr double c[] = {
        0x1.0000000000001p-1, 0x1.5555555555556p-3, 0x1.5555555553d67p-5, 0x1.11111111109b4p-7,
        0x1.6c16c1788a49bp-10, 0x1.a01a01a7c327ap-13, 0x1.a019b9133a48ap-16, 0x1.71de0db21e27fp-19,
        0x1.28917e2c43a66p-22, 0x1.af38a0d2d9620p-26,
    };
    return polynomial(c, r);
}
// With a second part of x, far smaller, for where the rounding of the first matters.
template <class T>
NPGM_INLINE Exponential<T> exponential(T x, T rest = T(0)) {
    constexpr T middle = T(1.5) * shift<T>;  // has room for a whole number of either sign in its last bits
    T const shifted = madd(x, T(1.4426950408889634), middle), k = shifted - middle;
    T const r = madd(-k, ln2_low<T>, madd(-k, ln2_high<T>, x)) + rest;
    return {to_bits(shifted), madd(r * r, exponential_tail(r), r)};
}
// tanh(a), below ½ by (tanh(a) - a)/a³ as a polynomial of a², and beyond as 1 - 2e/(1 + e) for e = exp(-2a).
NPGM_INLINE float tanh_tail(float z) {
    constexpr float c[] = {-0x1.555554p-2f, 0x1.110feap-3f, -0x1.b9a028p-5f, 0x1.5d20b0p-6f, -0x1.b12aecp-8f};
    return polynomial(c, z);
}
NPGM_INLINE double tanh_tail(double z) {
    constexpr double c[] = {
        -0x1.5555555555555p-2, 0x1.1111111111032p-3, -0x1.ba1ba1b9feb3cp-5, 0x1.664f48770be76p-6,
        -0x1.226e32eebbb26p-7, 0x1.d6d338edc6017p-9, -0x1.7d97cb7a94b76p-10, 0x1.34c57de48a611p-11,
        -0x1.ec0e9550d42c9p-13, 0x1.64f707d11ba4fp-14, -0x1.59962093e21d1p-16,
    };
    return polynomial(c, z);
}
template <class T>
NPGM_INLINE T tanh(T a) {
    T const square = a * a, below = madd(a * square, tanh_tail(square), a);
    auto const [k, q] = exponential(T(-2) * (a < T(20) ? a : T(20)));  // from where on it is 1
    T const scale = power_of_two<T>(k + Format<T>::bias), e = madd(scale, q, scale);
    return a < T(0.55) ? below : T(1) - (e + e) / (T(1) + e);
}

// arctan(a), by (arctan(a) - a)/a³ as a polynomial of a² up to 1, and π/2 - arctan(1/a) beyond.
NPGM_INLINE float arctan_tail(float z) {
    constexpr float c[] = {
        -0x1.555554p-2f, 0x1.99983cp-3f, -0x1.246cd2p-3f, 0x1.c3f168p-4f, -0x1.6295f8p-4f,
        0x1.0001c6p-4f, -0x1.25dc12p-5f, 0x1.ba9f66p-7f, -0x1.38de56p-9f,
    };
    return polynomial(c, z);
}
NPGM_INLINE double arctan_tail(double z) {
    constexpr double c[] = {
        -0x1.5555555555555p-2, 0x1.9999999999620p-3, -0x1.24924924753ecp-3, 0x1.c71c71bb00a6cp-4,
        -0x1.745d15ee35819p-4, 0x1.3b1399d1dcdc7p-4, -0x1.110fff599e4d2p-4, 0x1.e1d0239d392a6p-5,
        -0x1.aebbb1647a168p-5, 0x1.841dcf603a209p-5, -0x1.5d02278205cc7p-5, 0x1.3328700bb8169p-5,
        -0x1.00390504e9f2fp-5, 0x1.843f4bca23369p-6, -0x1.fd0e4de8fed90p-7, 0x1.123baedb61abdp-7,
        -0x1.ca3677db66678p-9, 0x1.1325b2f8964bep-10, -0x1.a359b96a4eee4p-13, 0x1.2f07811f9f6e9p-16,
    };
    return polynomial(c, z);
}
template <class T>
NPGM_INLINE T arctan(T a) {
    constexpr T half_pi = T(1.5707963267948966);
    constexpr T rest = sizeof(T) == 4 ? T(-4.37113900018624283e-8) : T(6.12323399573676604e-17);  // π/2 - half_pi
    bool const beyond = a > T(1);
    T const b = beyond ? T(1) / a : a, square = b * b;
    T const tail = b * square * arctan_tail(square);
    return beyond ? half_pi - (b + (tail - rest)) : b + tail;
}

// A number as the sum of two, of which the second is at most a rounding of the first.
struct Twofold {
    double high, low;
};
// The product in full, up to the last digits of `low` where there is no fused multiplication.
NPGM_INLINE Twofold product(double a, double b) {
    double const high = a * b;
#if NPGM_FMA
    return {high, ::fma(a, b, -high)};
#else
    constexpr Bits<double> upper = ~Bits<double>{0x7ffffff};
    double const a1 = from_bits<double>(to_bits(a) & upper), a2 = a - a1;
    double const b1 = from_bits<double>(to_bits(b) & upper), b2 = b - b1;
    return {high, ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2};
#endif
}

// a^e for e > 0. The logarithm and its product with e have twice the digits, as the exponential magnifies their errors.
NPGM_INLINE double power(double a, Twofold e) {
    bool const subnormal = a < std::numeric_limits<double>::min();
    double const v = subnormal ? 0x1p54 * a : a;
    std::uint64_t const biased = biased_exponent(v);
    double const k = exponent<double>(biased) - (subnormal ? 54.0 : 0.0);
    double const f = from_bits<double>(to_bits(v) - (biased << 52) + to_bits(1.0)) - 1.0;
    // as in logarithm_of_parts, with s in two parts
    double const g = 2.0 + f, inverse = 1.0 / g, s = f * inverse, z = s * s;
    auto const [near_f, rest_f] = product(s, g);
    double const s_low = ((f - near_f) - rest_f - s * (f - (g - 2.0))) * inverse;
    double const main = madd(k, ln2_high<double>, 2.0 * s), lost = 2.0 * s - (main - k * ln2_high<double>);
    double const tail = lost + madd(k, ln2_low<double>, madd(s * z, polynomial(logarithm_tail, z), 2.0 * s_low));
    double const logarithm = main + tail, logarithm_low = tail - (logarithm - main);

    auto const [x, x_error] = product(e.high, logarithm);
    double const x_low = madd(e.high, logarithm_low, madd(e.low, logarithm, x_error));
    double const bounded = x > 720.0 ? 720.0 : x < -760.0 ? -760.0 : x;  // where it is infinite, and where it is 0
    auto const [n, q] = exponential(bounded, bounded == x ? x_low : 0.0);
    // 2^n as a product, neither factor of which is beyond the range; the second one rounds, if any
    std::uint64_t const up = (n + 2048) & 0xfff, half = up >> 1;
    double const scale = power_of_two<double>(half - 1), other = power_of_two<double>(up - half - 1);
    double const result = madd(scale, q, scale) * other;
    return a == 0.0 ? 0.0 : result;
}

// The u with u + u³ = a.
template <class T>
NPGM_INLINE T cubic_root(T a) {
    // Where a is very large it is u³ to all digits, and scaled down, lest the powers of u overflow.
    constexpr bool single = sizeof(T) == 4;
    constexpr T large = single ? T(0x1p60) : T(0x1p500);
    constexpr T down = single ? T(0x1p-57) : T(0x1p-495), up = single ? T(0x1p19) : T(0x1p165);
    bool const small = a < large;
    T const b = small ? a : down * a, linear = small ? T(1) : T(0);
    // ³√b within 9 %, by a third of its exponent
    constexpr int spare = 8 * sizeof(T) - 1 - Format<T>::mantissa;
    constexpr T unit = T(Bits<T>{1} << (Format<T>::mantissa - spare));
    constexpr T offset = (T(2 * Format<T>::bias) / T(3) - T(0.05)) * unit;
    T const third = madd(number<T>(to_bits(b) >> spare), T(1) / T(3), offset);
    T const guess = absolute(from_bits<T>(to_bits(third + shift<T>) << spare));
    T u = b < guess ? b : guess;
    // Halley's method, the last time Newton's, of which the rounding is that of the correction
    for (int i = 0; i < (single ? 2 : 3); ++i) {
        T const square = u * u, value = madd(square, u, madd(linear, u, -b)), slope = madd(T(3), square, linear);
        u = u - value * slope / madd(slope, slope, T(-3) * u * value);
    }
    T const square = u * u, value = madd(square, u, madd(linear, u, -b));
    u = u - value / madd(T(3), square, linear);
    return small ? u : up * u;
}

// √W(a²) for Lambert's W: the u with u exp(u²/2) = a.
template <class T>
NPGM_INLINE T root_of_lambert(T a) {
    // w = W(a²) within 0.6 % as a function of ln(1 + a²)
    T const t = a < big<T> ? a * a : T(0.25) * a;
    T const half = logarithm1p(t, a < big<T> ? T(0) : T(2)), l = a < big<T> ? half : half + half;
    T const w = l - l * l * T(0.5015) / madd(l, madd(l, T(0.1109), T(1.176)), T(1));
    // one step of Fritsch, Shafer and Crowley for ln w + w = 2 ln a
    T const guess = root(w), ratio = a / guess;
    T const z = T(2) * logarithm(ratio, T(0)) - w, slope = T(1) + w;
    T const q = T(2) * slope * (slope + T(2.0 / 3.0) * z);
    T const u = guess * root(T(1) + z / slope * (q - z) / (q - T(2) * z));
    // and one of Newton for a exp(-u²/2) = u, of which the rounding is that of the correction
    T const square = u * u;
    auto const [k, e] = exponential(T(-0.5) * square);
    T const scaled = a * power_of_two<T>(k + Format<T>::bias);
    T const next = u + madd(scaled, e, scaled - u) / (T(1) + square);
    return a < (sizeof(T) == 4 ? T(0x1p-13) : T(0x1p-28)) ? a : next;
}

}  // namespace
}  // namespace npgm
