#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "rows.hpp"
#include "secants.hpp"

namespace npgm {
namespace {

// The last few of a series of numbers.
class Record {
public:
    explicit Record(std::size_t length) : values(length) {}
    void push(double value) {
        values.erase(values.begin());
        values.push_back(value);
    }
    void fill(double value) { std::fill(values.begin(), values.end(), value); }
    double largest(std::size_t of_last) const { return *std::max_element(values.end() - of_last, values.end()); }
    std::size_t size() const { return values.size(); }

private:
    std::vector<double> values;
};

// One run of npgm.solvers.methods.auto, or of a heavy ball with the stepsize rule "auto" alone.
template <class T>
class Run {
public:
    Run(std::size_t size, AutoOptions const& options)
        : o(options), size(size), step(size), last(size), newton(o.newtons ? size : 0, o), line(options),
          window(o.window) {}

    double propose(Row<T> const& row, T* work) {
        if (scale == 0.0) start(row);
        double const q = row.norm / scale, root = std::hypot(1.0, q);
        stationarity = scale * (o.quadratic ? 0.5 * q * q : q * (q / (1.0 + root)));
        double const used = newtons ? along_newton(row, work) : along_ball(row, q);
#pragma omp simd
        for (std::size_t i = 0; i < size; ++i) row.next[i] = row.x[i] + step[i];
        return used;
    }

    bool judge(Trial<T> const& at) {
        Measured const trial = measure(at);
        calmed = curvature < o.calm * sharpest;
        if (trial.finite) {
            curvature = std::max(trial.secant(), std::pow(o.discount, calmed ? 3.0 : 1.0) * curvature);
            sharpest = std::max(sharpest, trial.secant());
        }
        bool const curved = trial.convex(o.curved), tried_once = line.rejections == 0.0, by_ball = !newtons;
        bool const taken =
            newtons ? line.passes(trial, at.norm, at.next_norm) : accept_ball(at, trial.finite, trial.slack);
        if (newtons) line.follow(trial, taken, curved);
        if (o.newtons) change_mode(taken ? at.next_f : at.f, taken, trial);
        if (o.newtons && taken && curved)
            newton.learn(step.data(), [&](std::size_t j) { return at.next_gradient[j] - at.gradient[j]; }, trial,
                         trial.ratio_at_end(o), newtons && tried_once && std::isinf(limit));
        if (taken && by_ball) std::swap(step, last);
        return taken;
    }

private:
    void start(Row<T> const& row) {
        distance = norm<T>(size, [&](std::size_t i) { return row.x[i]; });
        double const slope = inner(size, [&](std::size_t i) { return row.x[i]; },
                                   [&](std::size_t i) { return row.gradient[i]; });
        aligned = slope > o.cosine * row.norm * distance;
        scale = o.scale > 0.0 ? o.scale : o.relative_scale * one_if_zero(row.norm);
        double const q = row.norm / scale, u = o.quadratic ? q : std::asinh(q);
        lr = o.first * one_if_zero(distance) / one_if_zero(u);
        newton.factor = o.first * one_if_zero(distance) / one_if_zero(row.norm);
        window.fill(row.f);
    }

    // Write a step of the heavy ball, and return its γ.
    double along_ball(Row<T> const& row, double q) {
        double const u = o.quadratic ? q : std::asinh(q);
        straight = row.norm / (o.saturated * one_if_zero(u));
        T const by = T(-lr * (row.norm == 0.0 ? 1.0 / scale : u / row.norm)), keep = T(momentum);
#pragma omp simd
        for (std::size_t i = 0; i < size; ++i) step[i] = keep * last[i] + by * row.gradient[i];
        return lr;
    }

    // Write a quasi-Newton step, and return the γ with which the heavy ball's test asks for as much as Armijo's.
    double along_newton(Row<T> const& row, T* work) {
        newton.product(row.gradient, work);
        auto const u = [&](std::size_t i) { return work[i]; };
        double slope = inner(size, u, [&](std::size_t i) { return row.gradient[i]; });
        double length = norm<T>(size, u), factor = 1.0;
        T const* direction = work;
        if (!(slope > o.straight * row.norm * length)) {
            direction = row.gradient;
            factor = newton.factor;
            slope = factor * row.norm * row.norm;
            length = factor * row.norm;
        }
        double const share = line.share(length);
        T const by = T(-share * factor);
#pragma omp simd
        for (std::size_t i = 0; i < size; ++i) step[i] = by * direction[i];
        return o.armijo / one_if_zero(o.decrease) * share * slope / one_if_zero(stationarity);
    }

    Measured measure(Trial<T> const& at) const {
        bool const finite = std::isfinite(at.next_f) && std::isfinite(at.next_norm);
        Measured trial = measured(size, step.data(), at.gradient, at.next_gradient, finite);
        if (o.newtons) trial.slope = dot(size, step.data(), at.gradient);
        trial.template compare<T>(at.f, at.next_f);
        return trial;
    }

    // npgm.solvers.stepsizes.edge_of_stability
    bool accept_ball(Trial<T> const& at, bool finite, double slack) {
        double const highest = window.largest(calmed ? window.size() : (window.size() + 1) / 2);
        bool const taken = finite && at.next_f <= highest - o.decrease * lr * stationarity + slack;
        double const inverse = std::max(scale, straight) / curvature;
        if (taken) {
            lr = std::min(2.0 * o.safety * (1.0 + o.momentum) * inverse, 2.0 * lr);
            momentum = o.momentum;
            window.push(at.next_f);
        } else {
            lr = finite ? std::min(momentum == 0.0 ? 0.5 * lr : lr, inverse) : 0.1 * lr;
            momentum = 0.0;
        }
        return taken;
    }

    void change_mode(double f, bool taken, Measured const& trial) {
        bool const opens = opening && taken;
        steps += 1.0;
        if (newtons) {
            if (!(trial.finite && trial.secant() > limit) && line.rejections < o.rejections) return;
            newtons = false;
            steps = momentum = 0.0;
            if (std::isfinite(scale / curvature)) lr = scale / curvature;
            std::fill(last.begin(), last.end(), T(0));
            window.fill(f);
            return;
        }
        double const degree = trial.degree(distance);
        bool const quartic = aligned && trial.product > 0.0 && degree > o.least_degree && degree < o.largest_degree;
        bool const ends = steps >= std::min(o.budget, double(size)) * (calmed ? o.calmed : 1.0);
        if (taken && (ends || (opens && !quartic))) {
            newtons = true;
            limit = opens ? infinity : o.sharper * curvature;
            line.start(trial.step_norm);
        }
        opening = opening && !taken;
    }

    AutoOptions const& o;
    std::size_t size;
    std::vector<T> step, last;
    QuasiNewton<T> newton;
    Line line;
    Record window;
    double scale = 0.0, straight = 0.0, distance = 0.0, lr = 0.0, momentum = 0.0, stationarity = 0.0;
    double curvature = 0.0, sharpest = 0.0, steps = 0.0, limit = infinity;
    bool newtons = false, opening = true, aligned = false, calmed = false;
};

template <class T>
class Auto {
public:
    Auto(Shape shape, AutoOptions const& options) : options(options), work(options.newtons ? shape.size : 0) {
        runs.reserve(shape.runs);
        for (std::size_t run = 0; run < shape.runs; ++run) runs.emplace_back(shape.size, this->options);
    }
    Auto(Auto const&) = delete;  // the runs refer to the options

    double operator()(std::size_t run, Row<T> const& row) { return runs[run].propose(row, work.data()); }
    bool judge(std::size_t run, Trial<T> const& at) { return runs[run].judge(at); }

private:
    AutoOptions options;
    std::vector<T> work;
    std::vector<Run<T>> runs;
};

}  // namespace

std::unique_ptr<Stepper> automatic(Shape shape, AutoOptions const& options) { return make<Auto>(shape, options); }

}  // namespace npgm
