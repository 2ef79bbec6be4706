// The preconditioners h*' of the kernels that have a fused step, one class each, with the keys of npgm.kernels. They
// are odd, and given |y|/λ, cut off at the largest finite number; `at_infinity` is what they are there.
// To add one, write it here and enter it in `NPGM_KERNELS` below. One with parameters says how many, and is built from
// them, in the order of the fields in npgm.kernels.
//
// Where a kernel is expensive and most of it is not needed for small arguments, it may say below which (`near`), and
// how (`precondition_near`, with the same results as `precondition` has there), and the same (`moderate`) for what is
// needed for very large ones alone. One that is `smooth`, with no singularity in the complex plane nearer than 1/3 to
// the numbers that are not negative, and slope 1 at 0, is interpolated with AVX2 and AVX-512, see piecewise.hpp; where it
// takes fewer instructions than that, as y/(1+y) does, it should not say so. One of so few instructions that memory takes
// as long is `light`.
#pragma once

#include <cstddef>

#include "elementary.hpp"

namespace npgm {
namespace {

// At infinity a preconditioner is infinite, has the value of the largest finite number, or is NaN, as in npgm.kernels:
// ∞/(1+∞).
enum class AtInfinity { infinite, finite, undefined };

struct Artanh {
    static constexpr char const* key = "artanh";
    static constexpr auto at_infinity = AtInfinity::finite;
    static constexpr bool smooth = true;
    template <class T>
    NPGM_INLINE static T precondition(T a) {
        return tanh(a);
    }
};

struct Cosh {
    static constexpr char const* key = "cosh";
    static constexpr auto at_infinity = AtInfinity::infinite;
    static constexpr bool smooth = true;
    static constexpr float near = asinh_near, moderate = big<float>;
    NPGM_INLINE static float precondition_near(float a) { return asinh_below(a); }
    NPGM_INLINE static float precondition_moderate(float a) { return asinh_moderate(a); }
    template <class T>
    NPGM_INLINE static T precondition(T a) {
        return asinh(a);
    }
};

struct Cubic {
    static constexpr char const* key = "mix3";
    static constexpr auto at_infinity = AtInfinity::undefined;
    template <class T>
    NPGM_INLINE static T precondition(T a) {
        T const s = root(T(0.25) + a), u = a / (T(0.5) + s);
        // a step of Newton for u + u² = a, as there were three roundings; by a quarter, lest u² overflow
        return u + madd(T(-0.25) * u, u, T(0.25) * (a - u)) / (T(0.5) * s);
    }
};

struct Exp {
    static constexpr char const* key = "exp";
    static constexpr auto at_infinity = AtInfinity::infinite;
    static constexpr bool smooth = true;
    template <class T>
    NPGM_INLINE static T precondition(T a) {
        return logarithm1p(a);
    }
};

struct ExpSquare {
    static constexpr char const* key = "expsq";
    static constexpr auto at_infinity = AtInfinity::undefined;
    static constexpr bool smooth = true;
    template <class T>
    NPGM_INLINE static T precondition(T a) {
        return root_of_lambert(a);
    }
};

struct Huber {
    static constexpr char const* key = "huber";
    static constexpr std::size_t parameters = 1;
    static constexpr auto at_infinity = AtInfinity::finite;
    static constexpr bool light = true;
    explicit Huber(double const* parameters) : radius(parameters[0]) {}
    template <class T>
    NPGM_INLINE T precondition(T a) const {
        T const c = narrowed<T>(radius);
        return a < c ? a : c;
    }

private:
    double radius;
};

struct Log {
    static constexpr char const* key = "log";
    static constexpr auto at_infinity = AtInfinity::undefined;
    static constexpr bool light = true;
    template <class T>
    NPGM_INLINE static T precondition(T a) {
        return a / (T(1) + a);
    }
};

struct LogCos {
    static constexpr char const* key = "lncos";
    static constexpr auto at_infinity = AtInfinity::finite;
    static constexpr bool smooth = true;
    template <class T>
    NPGM_INLINE static T precondition(T a) {
        return arctan(a);
    }
};

struct LogSquare {
    static constexpr char const* key = "logx2";
    static constexpr auto at_infinity = AtInfinity::undefined;
    static constexpr bool smooth = true;
    template <class T>
    NPGM_INLINE static T precondition(T a) {
        T const b = a < big<T> ? a : big<T>;  // from where on it is 1
        T const s = root(madd(b, b, T(1))), u = b / (T(1) + s);
        return u + madd(-b * u, u, b - (u + u)) / (s + s);  // a step of Newton for b (1 - u²) = 2u
    }
};

// In doubles for floats too, which have not the digits that the exponent takes up.
struct Power {
    static constexpr char const* key = "pow";
    static constexpr std::size_t parameters = 1;
    static constexpr auto at_infinity = AtInfinity::infinite;
    // 1/(p-1), with the parts of p - 1 and of the quotient that are rounded away
    explicit Power(double const* parameters) {
        double const p = parameters[0], less = p - 1.0, rest = (p - less) - 1.0;
        exponent.high = 1.0 / less;
        auto const [main, error] = product(exponent.high, less);
        exponent.low = ((1.0 - main) - error - exponent.high * rest) / less;
    }
    template <class T>
    NPGM_INLINE T precondition(T a) const {
        return T(power(double(a), exponent));
    }

private:
    Twofold exponent;
};

struct Quadratic {
    static constexpr char const* key = "quad";
    static constexpr auto at_infinity = AtInfinity::infinite;
    static constexpr bool light = true;
    template <class T>
    NPGM_INLINE static T precondition(T a) {
        return a;
    }
};

struct Quartic {
    static constexpr char const* key = "mix4";
    static constexpr auto at_infinity = AtInfinity::infinite;
    static constexpr bool smooth = true;
    template <class T>
    NPGM_INLINE static T precondition(T a) {
        return cubic_root(a);
    }
};

struct Sqrt {
    static constexpr char const* key = "sqrt";
    static constexpr auto at_infinity = AtInfinity::undefined;
    static constexpr bool smooth = true;
    template <class T>
    NPGM_INLINE static T precondition(T a) {
        bool const above = a > T(1);
        T const b = above ? T(1) / a : a;
        return (above ? T(1) : b) / root(madd(b, b, T(1)));
    }
};

}  // namespace
}  // namespace npgm

#define NPGM_KERNELS(each) \
    each(Artanh) each(Cosh) each(Cubic) each(Exp) each(ExpSquare) each(Huber) each(Log) each(LogCos) each(LogSquare) \
    each(Power) each(Quadratic) each(Quartic) each(Sqrt)
