// What the steps of all methods are made of: norms, and the loop over the rows of a batch.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>

#include "stepper.hpp"

namespace npgm {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Call `take(i)` for each place, and return the sum of the squares of its results. The order of summation is fixed.
template <class Take>
double sum_of_squares(std::size_t n, Take const& take) {
    constexpr std::size_t lanes = 8;
    double sums[lanes] = {};
    std::size_t i = 0;
    for (; i + lanes <= n; i += lanes) {
#pragma omp simd
        for (std::size_t lane = 0; lane < lanes; ++lane) {
            double const value = take(i + lane);
            sums[lane] += value * value;
        }
    }
    for (std::size_t lane = 0; i + lane < n; ++lane) {
        double const value = take(i + lane);
        sums[lane] += value * value;
    }
    double total = 0.0;
    for (double sum : sums) total += sum;
    return total;
}

// ‖v‖, with v given by its entries as numbers of the type T, without overflow or underflow on the way.
template <class T, class Entry>
double norm(std::size_t n, Entry const& entry) {
    double const squares = sum_of_squares(n, [&](std::size_t i) { return double(entry(i)); });
    constexpr double eps = std::numeric_limits<double>::epsilon(), tiny = std::numeric_limits<double>::min();
    // between these no digit was lost
    if (squares > tiny / (eps * eps) && squares < infinity) return double(T(std::sqrt(squares)));
    double largest = 0.0;
    for (std::size_t i = 0; i < n; ++i) {
        double const a = std::abs(double(entry(i)));
        largest = a > largest || a != a ? a : largest;
        if (a != a) break;
    }
    if (!(largest > 0.0 && largest < infinity)) return largest;
    double const unit = std::max(largest, tiny);  // whose inverse is finite
    double const ratios = sum_of_squares(n, [&](std::size_t i) { return double(entry(i)) / unit; });
    return double(T(unit * std::sqrt(ratios)));
}

template <class T>
struct Row {
    std::size_t size;
    T const *x, *gradient, *last_x, *last_gradient;
    T* next;
    double norm;  // of the gradient
    double f;
};

// The values and gradients before and after a step.
template <class T>
struct Trial {
    std::size_t size;
    T const *gradient, *next_gradient;
    double f, next_f, norm, next_norm;
};

// A rule takes the step of one run, and returns its γ.
template <class T, class Rule, class Base = Stepper>
class Steps : public Base {
public:
    using Base::runs, Base::size;

    template <class... Options>
    explicit Steps(Shape shape, Options const&... options) : Base(shape.runs, shape.size), rule(shape, options...) {}

    void step(Iterate const& at) override {
        for (std::size_t run = 0; run < runs; ++run) {
            auto const row = [&](std::uintptr_t address) { return reinterpret_cast<T*>(address) + run * size; };
            if (at.running == nullptr || at.running[run])
                at.lr[run] = rule(run, Row<T>{size, row(at.x), row(at.gradient), row(at.last_x), row(at.last_gradient),
                                              row(at.next), at.norms[run], at.f[run]});
            else
                std::memcpy(row(at.next), row(at.x), size * sizeof(T));
        }
    }

    bool judge(Judgement const& at) override {
        if constexpr (requires { &Rule::judge; }) {
            bool all = true;
            for (std::size_t run = 0; run < runs; ++run) {
                auto const row = [&](std::uintptr_t address) {
                    return reinterpret_cast<T const*>(address) + run * size;
                };
                at.taken[run] = rule.judge(run, Trial<T>{size, row(at.gradient), row(at.next_gradient), at.f[run],
                                                         at.next_f[run], at.norms[run], at.next_norms[run]});
                all = all && at.taken[run];
            }
            return all;
        } else {
            return true;
        }
    }

    double write_norms(std::uintptr_t gradient, double const* f, double* norms) const override {
        double smallest = infinity;
        bool finite = true;
        for (std::size_t run = 0; run < runs; ++run) {
            T const* const row = reinterpret_cast<T const*>(gradient) + run * size;
            norms[run] = norm<T>(size, [&](std::size_t i) { return row[i]; });
            finite = finite && std::isfinite(norms[run]) && std::isfinite(f[run]);
            smallest = std::min(smallest, norms[run]);
        }
        return finite ? smallest : std::numeric_limits<double>::quiet_NaN();
    }

protected:
    Rule rule;
};

// The steps of a rule, for each type of numbers.
template <template <class> class Rule>
struct Ruled {
    template <class T>
    using Of = Steps<T, Rule<T>>;
};

template <class Base, template <class> class Of, class... Options>
std::unique_ptr<Base> make_of(Shape shape, Options const&... options) {
    switch (shape.dtype) {
        case Dtype::float32: return std::make_unique<Of<float>>(shape, options...);
        case Dtype::float64: return std::make_unique<Of<double>>(shape, options...);
        default: throw std::invalid_argument("the solvers step in float32 and float64");
    }
}

template <template <class> class Rule, class... Options>
std::unique_ptr<Stepper> make(Shape shape, Options const&... options) {
    return make_of<Stepper, Ruled<Rule>::template Of>(shape, options...);
}

}  // namespace
}  // namespace npgm
