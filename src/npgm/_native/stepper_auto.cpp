#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "rows.hpp"

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

double one_if_zero(double value) { return value == 0.0 ? 1.0 : value; }

// npgm.solvers.trial
struct Measured {
    bool finite;
    double step_norm, change_norm, product, slope, change;
    double slack, lost;  // what rounding may have added to f, and what says nothing of it

    double secant() const { return change_norm / one_if_zero(step_norm); }
    bool convex(double cosine) const { return product > cosine * step_norm * change_norm; }
    // npgm.solvers.methods.auto.growth
    double bend() const { return 12.0 * (slope + 0.5 * product - change); }
    double degree(double size) const { return 2.0 - bend() / product * (size / one_if_zero(step_norm)); }
};

// The length of quasi-Newton steps: npgm.solvers.methods.auto.line.
class Line {
public:
    explicit Line(AutoOptions const& o) : o(o) {}
    double rejections = 0.0;

    void start(double length) {
        reach = o.longer * length;
        last = length;
        stretch = 1.0;
        rejections = 0.0;
    }

    double share(double length) const { return std::min(stretch, reach / one_if_zero(length)); }

    bool accept(Measured const& trial, bool curved, double norm, double next_norm) {
        double const end = trial.slope + trial.product;
        bool const flat = std::abs(trial.change) < trial.lost;
        bool const settled = next_norm < 1.5 * norm || std::abs(end) <= o.steep * std::abs(trial.slope);
        bool const falls = trial.change <= o.armijo * trial.slope + trial.slack;
        if (!trial.finite || !falls || (flat && !settled)) {
            reach = (trial.finite ? shorter(trial, end) : o.shortest) * trial.step_norm;
            rejections += 1.0;
            return false;
        }
        last = std::max(trial.step_norm, o.last * last);
        reach = o.longer * last;
        stretch = curved || end >= o.steep * trial.slope ? 1.0 : o.stretch * stretch;
        rejections = 0.0;
        return true;
    }

private:
    double shorter(Measured const& trial, double end) const {
        double const middle = trial.slope + end - 3.0 * trial.change;
        double const root = std::sqrt(middle * middle - trial.slope * end);
        double const least = 1.0 - (end + root - middle) / (end - trial.slope + 2.0 * root);
        return std::isfinite(least) ? std::clamp(least, o.shortest, o.longest) : o.longest;
    }

    AutoOptions const& o;
    double reach = 0.0, last = 0.0, stretch = 1.0;
};

// The inverse BFGS matrix of the last secants: npgm.solvers.methods.auto.quasi_newton, by its two loops.
template <class T>
class QuasiNewton {
public:
    QuasiNewton(std::size_t size, std::size_t memory)
        : size(size), memory(memory), s(size * memory), y(size * memory), inverse(memory), weight(memory) {}

    double factor = 0.0;  // of the identity from which the matrix is built

    // u = H g
    void product(T const* gradient, T* u) {
        std::copy(gradient, gradient + size, u);
        for (std::size_t k = 0; k < count; ++k) {  // the newest first
            std::size_t const i = place(k);
            weight[i] = inverse[i] * dot(&s[i * size], u);
            add(u, -weight[i], &y[i * size]);
        }
        T const scale = T(factor);
#pragma omp simd
        for (std::size_t j = 0; j < size; ++j) u[j] *= scale;
        for (std::size_t k = count; k-- > 0;) {
            std::size_t const i = place(k);
            add(u, weight[i] - inverse[i] * dot(&y[i * size], u), &s[i * size]);
        }
    }

    void learn(T const* step, Trial<T> const& at, Measured const& trial) {
        newest = (newest + 1) % memory;
        count = std::min(count + 1, memory);
        T const unit = T(trial.step_norm);
        T *const to_s = &s[newest * size], *const to_y = &y[newest * size];
#pragma omp simd
        for (std::size_t j = 0; j < size; ++j) {
            to_s[j] = step[j] / unit;
            to_y[j] = (at.next_gradient[j] - at.gradient[j]) / unit;
        }
        inverse[newest] = trial.step_norm * (trial.step_norm / trial.product);
        factor = trial.product / trial.change_norm / trial.change_norm;
    }

private:
    std::size_t place(std::size_t age) const { return (newest + memory - age) % memory; }
    double dot(T const* a, T const* b) const {
        return inner(size, [&](std::size_t j) { return a[j]; }, [&](std::size_t j) { return b[j]; });
    }
    void add(T* u, double c, T const* v) const {
        T const by = T(c);
#pragma omp simd
        for (std::size_t j = 0; j < size; ++j) u[j] += by * v[j];
    }

    std::size_t size, memory, count = 0, newest = 0;
    std::vector<T> s, y;
    std::vector<double> inverse, weight;
};

// One run of npgm.solvers.methods.auto, or of a heavy ball with the stepsize rule "auto" alone.
template <class T>
class Run {
public:
    Run(std::size_t size, AutoOptions const& options)
        : o(options), size(size), step(size), last(size), newton(o.newtons ? size : 0, o.memory), line(options),
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
        Measured const trial = measured(at);
        calmed = curvature < o.calm * sharpest;
        if (trial.finite) {
            curvature = std::max(trial.secant(), std::pow(o.discount, calmed ? 3.0 : 1.0) * curvature);
            sharpest = std::max(sharpest, trial.secant());
        }
        bool const curved = trial.convex(o.curved);
        bool const taken =
            newtons ? line.accept(trial, curved, at.norm, at.next_norm) : accept_ball(at, trial.finite, trial.slack);
        if (o.newtons && taken && curved) newton.learn(step.data(), at, trial);
        if (taken) std::swap(step, last);
        if (o.newtons) change_mode(taken ? at.next_f : at.f, taken, trial);
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

    Measured measured(Trial<T> const& at) const {
        bool const finite = std::isfinite(at.next_f) && std::isfinite(at.next_norm);
        auto const p = [&](std::size_t i) { return step[i]; };
        auto const y = [&](std::size_t i) { return T(at.next_gradient[i] - at.gradient[i]); };
        double const eps = double(std::numeric_limits<T>::epsilon());
        return {finite,
                norm<T>(size, p),
                finite ? norm<T>(size, y) : 0.0,
                finite ? inner(size, p, y) : 0.0,
                o.newtons ? inner(size, p, [&](std::size_t i) { return at.gradient[i]; }) : 0.0,
                at.next_f - at.f,
                std::max(1e-12, 8.0 * eps) * std::abs(at.f),
                std::max(1e-10, 64.0 * eps) * std::abs(at.f)};
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
