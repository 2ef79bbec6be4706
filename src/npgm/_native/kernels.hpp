// The preconditioners h*' of the kernels that have a fused step, one class each, with the names of npgm.kernels. They
// are odd and given |y|/λ: finite, or the infinity or NaN that the gradient holds. To add one, write it here and
// enter it in `NPGM_KERNELS` of loops.hpp.
#pragma once

#include "arithmetic.hpp"

namespace npgm {
namespace {

struct Cosh {
    template <class T>
    NPGM_INLINE static T precondition(T a) {
        return is_finite(a) ? asinh_finite(a) : a;
    }
};

struct Log {
    template <class T>
    NPGM_INLINE static T precondition(T a) {
        return a / (T(1) + a);
    }
};

struct Quadratic {
    template <class T>
    NPGM_INLINE static T precondition(T a) {
        return a;
    }
};

}  // namespace
}  // namespace npgm
