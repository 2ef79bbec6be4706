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
    // Say which of the steps are taken, after the norms were written; return whether all are.
    virtual bool judge(Judgement const&) = 0;
    // Write the norms of the gradients. Return the smallest, or NaN if one of them or of the values `f` is not finite.
    virtual double write_norms(std::uintptr_t gradient, double const* f, double* norms) const = 0;

    std::size_t const runs, size;
};

// The arrays that a stepper moves: of float32 or float64, else these throw std::invalid_argument.
struct Shape {
    std::size_t runs, size;
    Dtype dtype;
};

// φ = λ h(‖·‖), or λ Σ h, with λ = scale.
struct Reference {
    UpdateKind kernel;
    std::vector<double> parameters;
    double scale;
    bool isotropic;
};

std::unique_ptr<Stepper> heavy_ball(Shape, double lr, double momentum, Reference);
std::unique_ptr<Stepper> clipped(Shape, double lr, double max_step, double momentum, double nu);
std::unique_ptr<Stepper> adgd(Shape, double lr);
std::unique_ptr<Stepper> adgd_accel(Shape, double lr);

// The numbers of quasi-Newton steps and of their lengths, by the names of npgm.solvers.methods.auto.
struct NewtonOptions {
    std::size_t memory = 1;
    double first = 0, curved = 0, kept = 0, straight = 0;
    double fade = 0, gain = 0, spread = 0, clear = 0, flatter = 0, steeper = 0;
    double armijo = 0, steep = 0, longer = 0, last = 0, shortest = 0, longest = 0, stretch = 0;
};

// Those of npgm.solvers.methods.auto, and of the stepsize rule "auto", by the same names.
struct AutoOptions : NewtonOptions {
    double momentum = 0, safety = 0, discount = 0, decrease = 0, calm = 0, saturated = 0;
    double scale = 0;  // λ, 0 for one of each run's own
    double relative_scale = 0;
    bool quadratic = false;  // φ = λ‖·‖²/2, else λ(cosh‖·‖ - 1)
    bool newtons = false;    // whether there are quasi-Newton steps, of which the following speak
    std::size_t window = 1;
    double cosine = 0, least_degree = 0, largest_degree = 0;
    double budget = 0, calmed = 0, sharper = 0, rejections = 0;
};
std::unique_ptr<Stepper> automatic(Shape, AutoOptions const&);

// Those of npgm.solvers.methods.proximal_lbfgs, by the same names.
struct CompositeOptions : NewtonOptions {
    double decrease = 0, trials = 0, far = 0, cosine = 0, discount = 0;
};

// g(z) = Σ τ|z| + μz²/2 between bounds: of each entry τ, μ and the bounds, null for none. They are copied.
struct Entries {
    double const *l1, *l2, *lower, *upper;
};

// Steps for f + g. What is said above of gradients and values is of f.
class CompositeStepper : public Stepper {
public:
    using Stepper::Stepper;

    // Write f + g, its subgradient and the norm of that, of the runs that `moved`.
    virtual void total(std::uintptr_t x, std::uintptr_t gradient, double const* f, bool const* moved,
                       std::uintptr_t subgradient, double* value, double* norms) = 0;
    // Write what the last step takes at least off a bound of f + g, over γ.
    virtual void write_decreases(double*) const = 0;
};
std::unique_ptr<CompositeStepper> composite(Shape, CompositeOptions const&, Entries);

}  // namespace npgm
