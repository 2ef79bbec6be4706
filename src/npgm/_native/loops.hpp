// What is compiled once for each instruction set: the loops over one block of one tensor.
#pragma once

#include <cstddef>

#include "compiler.hpp"
#include "tiles.hpp"

namespace npgm {

enum class Dtype { float32, float64, bfloat16, float16, none };

// The preconditioner of a separable φ, by the place of its kernel in `kernels` below, or that of any isotropic φ.
enum class UpdateKind : int { isotropic = -1 };

// A kernel of npgm.kernels that has a fused step, and the number of its parameters.
struct Kernel {
    char const* key;
    std::size_t parameters;
};

// With y = gradient_factor ∇f + coupled_decay x and u = ∇φ*(y):
//     m ← m + weight (u - m),   x ← shrink x - lr m,
// with u in the place of m where there is no momentum; or with momentum before the preconditioner:
//     m ← m + weight (y - m),   x ← shrink x - lr ∇φ*(m).
struct Step {
    double gradient_factor, coupled_decay, scale, weight, shrink, lr;
    double const* parameters;  // of the kernel
    bool before = false;       // the preconditioner
    bool tracks = false;       // whether squares are asked for
};

// max|y|, NaN if an entry is, and ‖y‖² = unit² squares, where unit is a power of two; of the next m in place of y where
// that is what the preconditioner is given.
struct Moments {
    double largest, unit, squares;
};

// ‖y‖² and ‖u‖², where y is what the preconditioner is given and u what it makes of that.
struct Squares {
    double given = 0.0, made = 0.0;
};

namespace {
NPGM_INLINE void operator+=(Squares& sum, Squares const& part) {
    sum.given += part.given;
    sum.made += part.made;
}
}  // namespace

// An isotropic φ has u = factor y, and no squares. A separable φ does without a factor, and has squares where the step tracks.
using Update = Squares(void* x, void const* gradient, void* momentum, std::size_t n, Step const&, double factor);
// With coupled decay, or without, where `x` is not read.
using Measure = Moments(void const* x, void const* gradient, void const* momentum, std::size_t n, Step const&);

struct Instructions {
    char const* name;
    Kernel const* kernels;
    std::size_t kernel_count;
    // null for a combination of dtypes that has no loop
    Update* (*update)(UpdateKind, Dtype parameter, Dtype momentum);
    // with the dtype of the momentum where that comes before the preconditioner
    Measure* (*measure)(Dtype parameter, Dtype momentum);
    Measure* (*measure_decayed)(Dtype parameter, Dtype momentum);
    Tiles const* tiles;
};

extern Instructions const baseline, avx2, avx512;

}  // namespace npgm
