// The steps of npgm.minimize on NumPy's arrays: of all runs in one call, out of place, one run a row. Each repeats the
// formula of its class in npgm.solvers.methods, which defines it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "loops.hpp"

namespace npgm {

// Addresses of arrays of shape (runs, size), and of shape (runs,) in double precision. `next` may be `last_x`.
struct Iterate {
    std::uintptr_t x, gradient, last_x, last_gradient, next;
    double const *norms, *f;  // at `x`
    bool const* running;  // null where all are; the others stay where they are
    double* lr;  // receives the γ of the step of those that run
};

// What is known after a step, at the same points as `Iterate` has them. Of a run whose step is not taken, `taken` is
// false.
struct Judgement {
    std::uintptr_t gradient, next_gradient;
    double const *f, *next_f, *norms, *next_norms;
    bool* taken;
};

class Stepper {
public:
    Stepper(std::size_t runs, std::size_t size) : runs(runs), size(size) {}
    virtual ~Stepper() = default;

    // Write the next points.
    virtual void step(Iterate const&) = 0;
    // Say which of the steps are taken, after the gradients were measured; return whether all are.
    virtual bool judge(Judgement const&) = 0;
    // Write the norms of the gradients. Return the smallest, or NaN if one of them or of the values `f` is not finite.
    virtual double measure(std::uintptr_t gradient, double const* f, double* norms) const = 0;

    std::size_t const runs, size;
};

// The arrays that a stepper moves: of float32 or float64, else these throw std::invalid_argument.
struct Shape {
    std::size_t runs, size;
    Dtype dtype;
};

// φ = λ h(‖·‖), or λ Σ h, with λ = scale.
struct Reference {
    Map kernel;
    std::vector<double> parameters;
    double scale;
    bool isotropic;
};

std::unique_ptr<Stepper> heavy_ball(Shape, double lr, double momentum, Reference);
std::unique_ptr<Stepper> clipped(Shape, double lr, double max_step, double momentum, double nu);
std::unique_ptr<Stepper> adgd(Shape, double lr);
std::unique_ptr<Stepper> adgd_accel(Shape, double lr);

// The numbers of npgm.solvers.methods.auto, of its stepsize rule and its trust region, by the same names.
struct AutoOptions {
    double momentum = 0, safety = 0, discount = 0, decrease = 0, calm = 0, saturated = 0;
    double scale = 0;  // λ, 0 for one of each run's own
    double relative_scale = 0;
    bool quadratic = false;  // φ = λ‖·‖²/2, else λ(cosh‖·‖ - 1)
    bool finishes = false;   // by quasi-Newton steps
    std::size_t window = 1, memory = 1;
    double first = 0, later = 0, settled = 0, block = 0, progress = 0, sharper = 0, rejections = 0;
};
std::unique_ptr<Stepper> automatic(Shape, AutoOptions const&);

}  // namespace npgm
