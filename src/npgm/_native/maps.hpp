// What a step makes of y, once for an isotropic φ and once for separable ones. Included once for each instruction set, as
// arithmetic.hpp.
#pragma once

#include <type_traits>

#include "kernels.hpp"
#include "loops.hpp"

namespace npgm {
namespace {

template <class P>
using Working = decltype(load(P{}));

// Where all |y|/λ of a strip lie.
enum class Range { any, moderate, near };

template <class T>
class Isotropic {
public:
    static constexpr bool has_ranges = false, is_separable = false, is_light = true;

    Isotropic(Step const&, double factor) : factor(narrowed<T>(factor)) {}
    template <Range>
    NPGM_INLINE T direction(T y) const {
        return factor * y;
    }

private:
    T factor;
};

template <class T, class Kernel>
class Separable {
public:
    static constexpr bool has_ranges = std::is_same_v<T, float> && requires { Kernel::near; };
    static constexpr bool is_separable = true, is_light = requires { Kernel::light; };

    Separable(Step const& step, double) : kernel(kernel_of(step)) {
        constexpr double extreme = sizeof(T) == 4 ? 0x1p100 : 0x1p1000, part = sizeof(T) == 4 ? 0x1p60 : 0x1p600;
        constexpr double least = double(std::numeric_limits<T>::denorm_min());
        double const scale = step.scale < least ? least : double(narrowed<T>(step.scale));
        // the inverse of an extreme λ is no number of the dtype, but the product of two
        double const power = scale < 1.0 / extreme ? part : scale > extreme ? 1.0 / part : 1.0;
        first = T(1.0 / (scale * power));
        second = T(power);
    }
    template <Range range>
    NPGM_INLINE T direction(T y) const {
        if constexpr (range == Range::near)
            return with_sign(kernel.precondition_near(absolute(y) * first), y);
        else if constexpr (range == Range::moderate && requires { Kernel::moderate; })
            return with_sign(kernel.precondition_moderate(absolute(y) * first), y);
        else
            return finish(kernel.precondition(ratio(y)), y);
    }
    // Of the entry that is the largest one, NaN being larger than all others.
    Range range(T y) const {
        T const largest = ratio(y);
        if (second != T(1)) return Range::any;
        if (largest < Kernel::near) return Range::near;
        if constexpr (requires { Kernel::moderate; })
            if (largest < Kernel::moderate) return Range::moderate;
        return Range::any;
    }

private:
    // |y|/λ, with quotients beyond the largest finite number cut off there
    NPGM_INLINE T ratio(T y) const {
        T const quotient = absolute(y) * second * first;
        return quotient < largest_finite<T> ? quotient : largest_finite<T>;
    }
    static Kernel kernel_of(Step const& step) {
        if constexpr (std::is_constructible_v<Kernel, double const*>)
            return Kernel(step.parameters);
        else
            return {};
    }
    // the preconditioner of |y|/λ as that of y, by the addition of 0, or of infinity or NaN where y is
    NPGM_INLINE static T finish(T u, T y) {
        T const a = absolute(y), cut_off = a < largest_finite<T> ? a : largest_finite<T>;
        if constexpr (Kernel::at_infinity == AtInfinity::infinite) return with_sign(u + (a - cut_off), y);
        if constexpr (Kernel::at_infinity == AtInfinity::undefined) return with_sign(u + T(0) * (a - cut_off), y);
        return with_sign(y == y ? u : y, y);
    }

    Kernel kernel;
    T first, second;
};

}  // namespace
}  // namespace npgm
