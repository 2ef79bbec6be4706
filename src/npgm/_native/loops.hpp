// What is compiled once for each instruction set: the loops over one block of one tensor.
#pragma once

#include <cstddef>

// The kernels of npgm.kernels that have a fused step, with the numbers of their parameters; to add one, write its class
// in kernels.hpp.
#define NPGM_KERNELS(each) \
    each(Artanh, 0) each(Cosh, 0) each(Cubic, 0) each(Exp, 0) each(ExpSquare, 0) each(Huber, 1) each(Log, 0) \
    each(LogCos, 0) each(LogSquare, 0) each(Power, 1) each(Quadratic, 0) each(Quartic, 0) each(Sqrt, 0)

namespace npgm {

enum class Dtype { float32, float64, bfloat16, float16, none };

#define NPGM_NAME(name, parameters) name,
// The preconditioner of a separable φ, by its kernel, or that of any isotropic φ.
enum class Map { NPGM_KERNELS(NPGM_NAME) isotropic };
#undef NPGM_NAME

// With y = gradient_factor ∇f + coupled_decay x and u = ∇φ*(y):
//     m ← m + weight (u - m),   x ← shrink x - lr m,
// with u in the place of m where there is no momentum.
struct Step {
    double gradient_factor, coupled_decay, scale, weight, shrink, lr;
    double const* parameters;  // of the kernel
};

// max|y|, NaN if an entry is, and ‖y‖² = unit² squares, where unit is a power of two.
struct Moments {
    double largest, unit, squares;
};

// An isotropic φ has u = factor y. A separable φ does without.
using Update = void(void* x, void const* gradient, void* momentum, std::size_t n, Step const&, double factor);
// With coupled decay, or without, where `x` is not read.
using Measure = Moments(void const* x, void const* gradient, std::size_t n, Step const&);

struct Instructions {
    char const* name;
    // null for a combination of dtypes that has no loop
    Update* (*update)(Map, Dtype parameter, Dtype momentum);
    Measure* (*measure)(Dtype parameter);
    Measure* (*measure_decayed)(Dtype parameter);
};

extern Instructions const baseline, avx2, avx512;

}  // namespace npgm
