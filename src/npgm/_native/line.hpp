// What is known of the steps that are tried, and the length of quasi-Newton steps.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "rows.hpp"

namespace npgm {
namespace {

// ⟨a, b⟩ in double precision, in a fixed order.
template <class A, class B>
double inner(std::size_t n, A const& a, B const& b) {
    constexpr std::size_t lanes = 8;
    double sums[lanes] = {};
    std::size_t i = 0;
    for (; i + lanes <= n; i += lanes) {
#pragma omp simd
        for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane] += double(a(i + lane)) * double(b(i + lane));
    }
    for (std::size_t lane = 0; i + lane < n; ++lane) sums[lane] += double(a(i + lane)) * double(b(i + lane));
    double total = 0.0;
    for (double sum : sums) total += sum;
    return total;
}

template <class A, class B>
double dot(std::size_t n, A const* a, B const* b) {
    return inner(n, [&](std::size_t j) { return a[j]; }, [&](std::size_t j) { return b[j]; });
}

// u ← u + c v in the entries for which `free` is 1, not 0
template <class U, class Free>
void add(std::size_t n, U* u, double c, U const* v, Free const& free) {
    U const by = U(c);
#pragma omp simd
    for (std::size_t j = 0; j < n; ++j) u[j] += free(j) * (by * v[j]);
}

double one_if_zero(double value) { return value == 0.0 ? 1.0 : value; }

// npgm.solvers.trial
struct Measured {
    bool finite;
    double step_norm, change_norm, product, slope = 0.0, change = 0.0;
    double slack = 0.0, lost = 0.0;  // what rounding may have added to f, and what says nothing of it

    template <class T>
    void compare(double f, double next_f) {
        double const eps = double(std::numeric_limits<T>::epsilon());
        change = next_f - f;
        slack = std::max(1e-12, 8.0 * eps) * std::abs(f);
        lost = std::max(1e-10, 64.0 * eps) * std::abs(f);
    }

    double secant() const { return change_norm / one_if_zero(step_norm); }
    bool convex(double cosine) const { return product > cosine * step_norm * change_norm; }
    // npgm.solvers.methods.auto.growth
    double bend() const { return 12.0 * (slope + 0.5 * product - change); }
    // npgm.solvers.methods.auto.quasi_newton
    double ratio_at_end(NewtonOptions const& o) const {
        if (!(slack < o.clear * product)) return 1.0;
        return std::clamp(1.0 + 0.5 * bend() / product, o.flatter, o.steeper);
    }
    double degree(double size) const { return 2.0 - bend() / product * (size / one_if_zero(step_norm)); }
};

// All but the slope and the changes of f, of a step between two gradients.
template <class T>
Measured measured(std::size_t n, T const* step, T const* gradient, T const* next_gradient, bool finite) {
    auto const p = [&](std::size_t i) { return step[i]; };
    auto const y = [&](std::size_t i) { return T(next_gradient[i] - gradient[i]); };
    return {.finite = finite,
            .step_norm = norm<T>(n, p),
            .change_norm = finite ? norm<T>(n, y) : 0.0,
            .product = finite ? inner(n, p, y) : 0.0};
}

// The length of quasi-Newton steps: npgm.solvers.methods.auto.line.
class Line {
public:
    explicit Line(NewtonOptions const& o) : o(o) {}
    double rejections = 0.0;

    void start(double length) {
        reach = o.longer * length;
        last = length;
        stretch = 1.0;
        rejections = 0.0;
    }

    double share(double length) const { return std::min(stretch, reach / one_if_zero(length)); }

    // Whether f falls enough, where the gradients have these norms.
    bool passes(Measured const& trial, double norm, double next_norm) const {
        double const end = trial.slope + trial.product;
        bool const flat = std::abs(trial.change) < trial.lost;
        bool const settled = next_norm < 1.5 * norm || std::abs(end) <= o.steep * std::abs(trial.slope);
        bool const falls = trial.change <= o.armijo * trial.slope + trial.slack;
        return trial.finite && falls && (!flat || settled);
    }

    void follow(Measured const& trial, bool taken, bool curved) {
        double const end = trial.slope + trial.product;
        if (!taken) {
            reach = (trial.finite ? shorter(trial, end) : o.shortest) * trial.step_norm;
            rejections += 1.0;
            return;
        }
        last = std::max(trial.step_norm, o.last * last);
        reach = o.longer * last;
        stretch = curved || end >= o.steep * trial.slope ? 1.0 : o.stretch * stretch;
        rejections = 0.0;
    }

private:
    double shorter(Measured const& trial, double end) const {
        double const middle = trial.slope + end - 3.0 * trial.change;
        double const root = std::sqrt(middle * middle - trial.slope * end);
        double const least = 1.0 - (end + root - middle) / (end - trial.slope + 2.0 * root);
        return std::isfinite(least) ? std::clamp(least, o.shortest, o.longest) : o.longest;
    }

    NewtonOptions const& o;
    double reach = 0.0, last = 0.0, stretch = 1.0;
};

}  // namespace
}  // namespace npgm
