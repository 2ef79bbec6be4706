// The preconditioners h*' of the kernels that have a fused step, one class each, with the names of npgm.kernels. They
// are odd, and given |y|/λ, cut off at the largest finite number. `limit` times infinity is their value there.
// To add one, write it here and enter it in `NPGM_KERNELS` of loops.hpp.
//
// Where a kernel is expensive and most of it is not needed for small arguments, it may say below which (`near`), and
// how (`precondition_near`, with the same results as `precondition` has there), and the same (`moderate`) for what is
// needed for very large ones alone.
#pragma once

#include "arithmetic.hpp"

namespace npgm {
namespace {

struct Cosh {
    static constexpr float limit = 1.0f;
    static constexpr float near = asinh_near, moderate = asinh_big;
    NPGM_INLINE static float precondition_near(float a) { return asinh_below(a); }
    NPGM_INLINE static float precondition_moderate(float a) { return asinh_moderate(a); }
    template <class T>
    NPGM_INLINE static T precondition(T a) {
        return asinh_finite(a);
    }
};

struct Log {
    static constexpr float limit = 0.0f;  // NaN, as ∞/(1+∞)
    template <class T>
    NPGM_INLINE static T precondition(T a) {
        return a / (T(1) + a);
    }
};

struct Quadratic {
    static constexpr float limit = 1.0f;
    template <class T>
    NPGM_INLINE static T precondition(T a) {
        return a;
    }
};

}  // namespace
}  // namespace npgm
