#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "rows.hpp"
#include "secants.hpp"

namespace npgm {
namespace {

// g(z) = Σ τ|z| + μz²/2 between bounds.
template <class T>
class Entrywise {
public:
    Entrywise(std::size_t n, Entries of) {
        auto const take = [n](double const* from, std::vector<T>& to) {
            if (from != nullptr) to.assign(from, from + n);
        };
        take(of.l1, l1), take(of.l2, l2), take(of.lower, lower), take(of.upper, upper);
    }

    // Whether it is the indicator of a box.
    bool indicator() const { return l1.empty() && l2.empty(); }

    // z = argmin g + ‖· - y‖²/(2t); z may be y.
    void prox(std::size_t n, T const* y, T t, T* z) const {
        if (z != y) std::copy(y, y + n, z);
        if (!l1.empty()) {
#pragma omp simd
            for (std::size_t j = 0; j < n; ++j) z[j] -= std::min(std::max(z[j], -t * l1[j]), t * l1[j]);
        }
        if (!l2.empty()) {
#pragma omp simd
            for (std::size_t j = 0; j < n; ++j) z[j] /= T(1) + t * l2[j];
        }
        if (!lower.empty()) {
#pragma omp simd
            for (std::size_t j = 0; j < n; ++j) z[j] = std::min(std::max(z[j], lower[j]), upper[j]);
        }
    }

    // g of a point between the bounds
    double value(std::size_t n, T const* z) const {
        double total = 0.0;
        if (!l1.empty()) total += inner(n, [&](std::size_t j) { return l1[j]; },
                                        [&](std::size_t j) { return std::abs(z[j]); });
        if (!l2.empty()) total += 0.5 * inner(n, [&](std::size_t j) { return l2[j] * z[j]; },
                                              [&](std::size_t j) { return z[j]; });
        return total;
    }

private:
    std::vector<T> l1, l2, lower, upper;
};

// What all runs have in common.
template <class T>
struct Shared {
    Shared(Shape shape, CompositeOptions const& options, Entries entries)
        : o(options), g(shape.size, entries), direction(shape.size) {}

    CompositeOptions const o;
    Entrywise<T> const g;
    std::vector<T> direction;
};

// One run of npgm.solvers.methods.proximal_lbfgs.
template <class T>
class Run {
public:
    Run(std::size_t size, Shared<T>& shared)
        : shared(shared), o(shared.o), g(shared.g), size(size), y(size), z(size), residual(size), last_residual(size),
          step(size), subgradient(size), next_subgradient(size), newton(size, o), line(o) {
        if (g.indicator()) faces.emplace(size, o.memory);
    }

    double propose(Row<T> const& row) {
        if (lr == 0.0) start(row);
        if (stale) forward(row.x, row.gradient);
        T* const u = shared.direction.data();
        T const by = T(lr);
        plain = newton.count() == 0 || line.rejections >= o.trials;
        if (!plain && !along_newton(row, u)) {
            plain = true;
            if (faces) faces->forget_but(newton.newest_place());
            newton.forget();
        }
        T* const target = row.next;
        if (plain) {
            length = lr * residual_norm;
            std::copy(y.begin(), y.end(), target);
            if (faces && newton.count() == 0 && line.rejections == 0.0) open(row, target);
        } else {
            double const norm_u = norm<T>(size, [&](std::size_t j) { return u[j]; }), share = line.share(norm_u);
            length = share * norm_u;
            T const t = T(share);
            if (faces) {
#pragma omp simd
                for (std::size_t j = 0; j < size; ++j) target[j] = row.x[j] - t * u[j];
            } else {
#pragma omp simd
                for (std::size_t j = 0; j < size; ++j) target[j] = row.x[j] + (y[j] - z[j]) - t * u[j];
            }
        }
        std::copy(target, target + size, next_subgradient.begin());
        g.prox(size, target, by, row.next);
#pragma omp simd
        for (std::size_t j = 0; j < size; ++j) {
            next_subgradient[j] = (next_subgradient[j] - row.next[j]) / by;
            step[j] = row.next[j] - row.x[j];
        }
        next_value = g.value(size, row.next);
        rate = decrease / lr;
        return lr;
    }

    bool judge(Trial<T> const& at) {
        double const f = at.f + value, next_f = at.next_f + next_value;
        double const next_norm =
            norm<T>(size, [&](std::size_t j) { return T(at.next_gradient[j] + next_subgradient[j]); });
        bool const finite = std::isfinite(next_f) && std::isfinite(next_norm);
        Measured trial = measured(size, step.data(), at.gradient, at.next_gradient, finite);
        trial.slope = dot(size, at.gradient, step.data()) + (next_value - value);  // g is taken for its chord
        trial.template compare<T>(f, next_f);
        bool const curved = trial.convex(o.curved);
        bool const fallen = finite && next_f <= f - o.decrease * decrease + trial.slack;
        bool const taken = fallen && (plain || line.passes(trial, residual_norm, next_norm));
        Measured before_the_map = trial;
        before_the_map.step_norm = length;
        line.follow(before_the_map, taken, curved);

        double const largest = finite ? std::max(trial.secant(), o.discount * secant) : secant;
        if (taken || plain) secant = largest;
        double const following = next_lr(taken, finite, largest > 0.0 ? 1.0 / largest : infinity);
        learns = taken && !faces && following == lr;
        stale = taken || following != lr;
        lr = following;
        if (!taken) return false;
        value = next_value;
        std::swap(subgradient, next_subgradient);
        if (faces && curved) {
            newton.learn(step.data(), [&](std::size_t j) { return at.next_gradient[j] - at.gradient[j]; }, trial,
                         trial.ratio_at_end(o));
            faces->learn(newton);
        }
        return true;
    }

    // Write a subgradient of f + g, and return its value.
    double total(T const* x, T const* gradient, double f, T* at) {
        if (stale) forward(x, gradient);
        // where z = x, -∇f is a subgradient of g
#pragma omp simd
        for (std::size_t j = 0; j < size; ++j) at[j] = gradient[j] + (z[j] == x[j] ? -gradient[j] : subgradient[j]);
        return f + value;
    }

    double rate = 0.0;  // Δ/γ at the start of the last step

private:
    void start(Row<T> const& row) {
        double const distance = norm<T>(size, [&](std::size_t j) { return row.x[j]; });
        lr = newton.factor = o.first * one_if_zero(distance) / one_if_zero(row.norm);
        value = g.value(size, row.x);
    }

    // The proximal gradient step from x: z, r and Δ.
    void forward(T const* x, T const* gradient) {
        T const by = T(lr);
        std::swap(residual, last_residual);
#pragma omp simd
        for (std::size_t j = 0; j < size; ++j) y[j] = x[j] - by * gradient[j];
        g.prox(size, y.data(), by, z.data());
#pragma omp simd
        for (std::size_t j = 0; j < size; ++j) residual[j] = (x[j] - z[j]) / by;
        residual_norm = norm<T>(size, [&](std::size_t j) { return residual[j]; });
        double const at_z = g.value(size, z.data());
        double const before = 0.5 * lr * inner(size, [&](std::size_t j) { return residual[j]; },
                                               [&](std::size_t j) { return 2 * gradient[j] - residual[j]; });
        double const eps = double(std::numeric_limits<T>::epsilon());
        double const rounding = 16.0 * eps * (std::abs(before) + std::abs(value) + std::abs(at_z));
        decrease = value - at_z + before - rounding;
        if (decrease < 0.0) decrease = 0.0;  // but NaN stays
        if (learns) learn();
        learns = stale = false;
    }

    // Take the change of r along the last step, with the same γ.
    void learn() {
        Measured const trial = measured(size, step.data(), last_residual.data(), residual.data(), true);
        if (trial.convex(o.curved))
            newton.learn(step.data(), [&](std::size_t j) { return residual[j] - last_residual[j]; }, trial);
    }

    // Write u; return whether it points along r.
    bool along_newton(Row<T> const& row, T* u) {
        if (faces) {
            faces->fix(newton, [&](std::size_t j) { return z[j] != y[j]; });
            faces->product(newton, row.gradient, u, o.kept);
            T const by = T(lr);
            for (std::size_t j = 0; j < size; ++j)
                if (faces->is_fixed(j)) u[j] = by * residual[j];
        } else {
            newton.product(residual.data(), u);
        }
        double const norm_u = norm<T>(size, [&](std::size_t j) { return u[j]; });
        return dot(size, u, residual.data()) > o.straight * norm_u * residual_norm;
    }

    // Of the first step: go on the way to the origin, if a step so many times as long would lead there.
    void open(Row<T> const& row, T* target) {
        T* const way = shared.direction.data();
        T const by = T(o.far * lr), part = T(o.far);
        for (std::size_t j = 0; j < size; ++j) way[j] = row.x[j] - by * row.gradient[j];
        g.prox(size, way, by, way);
        for (std::size_t j = 0; j < size; ++j) way[j] = row.x[j] - way[j];
        double const length = norm<T>(size, [&](std::size_t j) { return way[j]; });
        double const distance = norm<T>(size, [&](std::size_t j) { return row.x[j]; });
        if (!(dot(size, way, row.x) > o.cosine * length * distance)) return;
        for (std::size_t j = 0; j < size; ++j) target[j] = row.x[j] - way[j] / part;
    }

    double next_lr(bool taken, bool finite, double inverse) const {
        if (!taken) return !plain ? lr : finite ? std::min(inverse, 0.5 * lr) : 0.1 * lr;
        return lr <= inverse && lr >= 0.5 * inverse ? lr : std::min(inverse, 2.0 * lr);
    }

    Shared<T>& shared;
    CompositeOptions const& o;
    Entrywise<T> const& g;
    std::size_t size;
    std::vector<T> y, z, residual, last_residual, step, subgradient, next_subgradient;
    QuasiNewton<T> newton;
    std::optional<Faces<T>> faces;  // where g is a box
    Line line;
    double lr = 0.0, value = 0.0, next_value = 0.0, decrease = 0.0, residual_norm = 0.0, length = 0.0, secant = 0.0;
    bool plain = false, stale = true, learns = false;
};

template <class T>
class Composite {
public:
    Composite(Shape shape, CompositeOptions const& options, Entries entries) : shared(shape, options, entries) {
        runs.reserve(shape.runs);
        for (std::size_t run = 0; run < shape.runs; ++run) runs.emplace_back(shape.size, shared);
    }
    Composite(Composite const&) = delete;  // the runs refer to what they share

    double operator()(std::size_t run, Row<T> const& row) { return runs[run].propose(row); }
    bool judge(std::size_t run, Trial<T> const& at) { return runs[run].judge(at); }
    Run<T>& of(std::size_t run) { return runs[run]; }
    Run<T> const& of(std::size_t run) const { return runs[run]; }

private:
    Shared<T> shared;
    std::vector<Run<T>> runs;
};

template <class T>
class CompositeSteps final : public Steps<T, Composite<T>, CompositeStepper> {
public:
    using Steps<T, Composite<T>, CompositeStepper>::Steps;

    void total(std::uintptr_t x, std::uintptr_t gradient, double const* f, bool const* moved,
               std::uintptr_t subgradient, double* value, double* norms) override {
        for (std::size_t run = 0; run < this->runs; ++run) {
            if (!moved[run]) continue;
            auto const row = [&](std::uintptr_t address) { return reinterpret_cast<T*>(address) + run * this->size; };
            T* const at = row(subgradient);
            value[run] = this->rule.of(run).total(row(x), row(gradient), f[run], at);
            norms[run] = norm<T>(this->size, [&](std::size_t j) { return at[j]; });
        }
    }

    void write_decreases(double* to) const override {
        for (std::size_t run = 0; run < this->runs; ++run) to[run] = this->rule.of(run).rate;
    }
};

}  // namespace

std::unique_ptr<CompositeStepper> composite(Shape shape, CompositeOptions const& options, Entries g) {
    return make_of<CompositeStepper, CompositeSteps>(shape, options, g);
}

}  // namespace npgm
