#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "rows.hpp"

namespace npgm {
namespace {

// The last few of a series of numbers; `fill` stands for those that are missing.
class Record {
public:
    Record(std::size_t length, double fill) : values(length, fill) {}
    void push(double value) {
        values.erase(values.begin());
        values.push_back(value);
    }
    void fill(double value) { std::fill(values.begin(), values.end(), value); }
    double largest() const { return largest(values.size()); }
    double largest(std::size_t of_last) const { return *std::max_element(values.end() - of_last, values.end()); }
    std::size_t size() const { return values.size(); }
    double last() const { return values.back(); }

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

// The inverse BFGS matrix of the last secants: npgm.solvers.directions.QuasiNewton.
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

    void learn(bool finite, T const* step, Trial<T> const& at, double step_norm, double change_norm, double product) {
        if (!finite || !(product > 1e-8 * step_norm * change_norm)) {
            if (finite && count == 0) factor *= 2.0;
            return;
        }
        newest = (newest + 1) % memory;
        count = std::min(count + 1, memory);
        T const unit = T(step_norm);
        T *const to_s = &s[newest * size], *const to_y = &y[newest * size];
#pragma omp simd
        for (std::size_t j = 0; j < size; ++j) {
            to_s[j] = step[j] / unit;
            to_y[j] = (at.next_gradient[j] - at.gradient[j]) / unit;
        }
        inverse[newest] = step_norm * (step_norm / product);
        factor = product / change_norm / change_norm;
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
        : o(options), size(size), step(size), last(size), newton(o.finishes ? size : 0, o.memory),
          window(o.window, 0.0), norms(10, infinity), curvatures(30, 0.0), lengths(30, 0.0) {}

    double propose(Row<T> const& row, T* work) {
        if (scale == 0.0) start(row);
        double const q = row.norm / scale, root = std::hypot(1.0, q);
        measure = scale * (o.quadratic ? 0.5 * q * q : q * (q / (1.0 + root)));
        least = o.decrease * lr * measure;
        if (finishing) {
            newton.product(row.gradient, work);
            auto const u = [&](std::size_t i) { return work[i]; };
            double slope = inner(size, u, [&](std::size_t i) { return row.gradient[i]; });
            double length = norm<T>(size, u), factor = 1.0;
            T const* direction = work;
            if (!(slope > 1e-12 * row.norm * length)) {
                direction = row.gradient;
                factor = newton.factor;
                slope = factor * row.norm * row.norm;
                length = factor * row.norm;
            }
            measure = 0.5 * slope;
            share = std::min(1.0, radius / (length == 0.0 ? 1.0 : length));
            T const by = T(-share * factor);
#pragma omp simd
            for (std::size_t i = 0; i < size; ++i) step[i] = by * direction[i];
        } else {
            double const u = o.quadratic ? q : std::asinh(q);
            straight = row.norm / (o.saturated * (u == 0.0 ? 1.0 : u));
            T const by = T(-lr * (row.norm == 0.0 ? 1.0 / scale : u / row.norm)), keep = T(momentum);
#pragma omp simd
            for (std::size_t i = 0; i < size; ++i) step[i] = keep * last[i] + by * row.gradient[i];
        }
#pragma omp simd
        for (std::size_t i = 0; i < size; ++i) row.next[i] = row.x[i] + step[i];
        return lr;
    }

    bool judge(Trial<T> const& at) {
        bool const finite = std::isfinite(at.next_f) && std::isfinite(at.next_norm);
        auto const p = [&](std::size_t i) { return step[i]; };
        auto const y = [&](std::size_t i) { return T(at.next_gradient[i] - at.gradient[i]); };
        double const step_norm = norm<T>(size, p), change_norm = finite ? norm<T>(size, y) : 0.0;
        double const product = finite ? inner(size, p, y) : 0.0;
        double const secant = change_norm / (step_norm == 0.0 ? 1.0 : step_norm);
        double const eps = double(std::numeric_limits<T>::epsilon());
        double const slack = std::max(1e-12, 8.0 * eps) * std::abs(at.f);
        calmed = curvature < o.calm * sharpest;
        if (finite) {
            curvature = std::max(secant, std::pow(o.discount, calmed ? 3.0 : 1.0) * curvature);
            sharpest = std::max(sharpest, secant);
        }
        if (o.finishes) newton.learn(finite, step.data(), at, step_norm, change_norm, product);

        bool taken;
        if (finishing) {
            taken = accept_newton(at, finite, step_norm, slack, std::max(1e-10, 64.0 * eps) * std::abs(at.f));
        } else {
            taken = accept_ball(at, finite, slack);
            if (taken) {
                norms.push(at.next_norm);
                curvatures.push(secant);
                lengths.push(step_norm);
            }
        }
        if (taken) std::swap(step, last);
        if (o.finishes) change_mode(at, finite, taken, secant);
        return taken;
    }

private:
    double inverse_curvature() const { return std::max(scale, straight) / curvature; }

    void start(Row<T> const& row) {
        auto const one_if_zero = [](double value) { return value == 0.0 ? 1.0 : value; };
        double const extent = one_if_zero(norm<T>(size, [&](std::size_t i) { return row.x[i]; }));
        scale = o.scale > 0.0 ? o.scale : o.relative_scale * one_if_zero(row.norm);
        first_norm = row.norm;
        double const q = row.norm / scale, u = o.quadratic ? q : std::asinh(q);
        lr = 0.03 * extent / one_if_zero(u);
        newton.factor = 0.1 * extent / one_if_zero(row.norm);
        budget = std::min(o.first, double(size));
        block = o.block;
        window.fill(row.f);
    }

    // npgm.solvers.stepsizes.edge_of_stability
    bool accept_ball(Trial<T> const& at, bool finite, double slack) {
        double const highest = window.largest(calmed ? window.size() : (window.size() + 1) / 2);
        bool const taken = finite && at.next_f <= highest - o.decrease * lr * measure + slack;
        if (taken) {
            lr = std::min(2.0 * o.safety * (1.0 + o.momentum) * inverse_curvature(), 2.0 * lr);
            momentum = o.momentum;
            window.push(at.next_f);
        } else {
            lr = finite ? std::min(momentum == 0.0 ? 0.5 * lr : lr, inverse_curvature()) : 0.1 * lr;
            momentum = 0.0;
        }
        return taken;
    }

    // npgm.solvers.stepsizes.trust_region
    bool accept_newton(Trial<T> const& at, bool finite, double step_norm, double slack, double lost) {
        double const predicted = share * (2.0 - share) * measure, fall = at.f - at.next_f;
        bool const taken = finite && fall >= -slack + std::max(0.1 * predicted, least);
        bool const flat = std::abs(fall) < lost, settled = at.next_norm < 1.5 * at.norm;
        if (!finite)
            radius = 0.1 * step_norm;
        else if (flat ? !settled : fall < 0.25 * predicted)
            radius = 0.5 * std::min(radius, step_norm);
        else if ((flat ? settled : fall > 0.75 * predicted) && share < 1.0)
            radius *= radius < doubling_limit ? 2.0 : 1.2;
        rejections = taken ? 0.0 : rejections + 1.0;
        return taken;
    }

    void change_mode(Trial<T> const& at, bool finite, bool taken, double secant) {
        double const now = taken ? at.next_norm : at.norm;
        steps += 1.0;
        if (!finishing) {
            bool const settled = may_settle && norms.largest() <= o.settled * first_norm;
            if (taken && (steps >= (calmed ? 2.0 : 1.0) * budget || settled)) {
                finishing = true;
                radius = 2.0 * lengths.last();
                doubling_limit = lengths.largest();
                rejections = steps = 0.0;
                block_best = infinity;
                last_best = now;
            }
            may_settle = may_settle && !settled;
            return;
        }
        block_best = std::min(block_best, now);
        bool const block_ends = std::fmod(steps, block) == 0.0;
        bool const slow = block_ends && block_best > o.progress * last_best;
        bool const back = (finite && secant > o.sharper * curvatures.largest()) || slow ||
                          rejections >= o.rejections;
        if (block_ends) {
            last_best = block_best;
            block_best = infinity;
        }
        if (!back) return;
        if (slow) block *= 2.0;
        finishing = false;
        steps = momentum = 0.0;
        budget = std::min(o.later, double(size));
        if (std::isfinite(scale / curvature)) lr = scale / curvature;
        std::fill(last.begin(), last.end(), T(0));
        norms.fill(infinity);
        window.fill(taken ? at.next_f : at.f);
    }

    AutoOptions const& o;
    std::size_t size;
    std::vector<T> step, last;
    QuasiNewton<T> newton;
    Record window, norms, curvatures, lengths;
    double scale = 0.0, straight = 0.0, first_norm = 0.0, lr = 0.0, momentum = 0.0;
    double curvature = 0.0, sharpest = 0.0;
    double measure = 0.0, least = 0.0, share = 1.0, radius = 0.0, doubling_limit = 0.0, rejections = 0.0;
    double steps = 0.0, budget = 0.0, block = 0.0, block_best = infinity, last_best = 0.0;
    bool finishing = false, may_settle = true, calmed = false;
};

template <class T>
class Auto {
public:
    Auto(Shape shape, AutoOptions const& options) : options(options), work(options.finishes ? shape.size : 0) {
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
