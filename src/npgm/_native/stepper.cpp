#include "stepper.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "driver.hpp"

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
};

// gd, gdm and npgm: m ← m + (1-β)(u - m), x ← x - γ m with u = ∇φ*(∇f(x)).
template <class T>
class HeavyBall {
public:
    HeavyBall(Shape shape, double lr, double momentum, Reference phi_)
        : phi(std::move(phi_)), own(step(phi.scale, 1.0 - momentum, lr)), scalar(step(1.0, 1.0, -1.0)) {
        Instructions const& loops = instructions();
        Dtype const mean = momentum == 0.0 ? Dtype::none : shape.dtype;
        update = loops.update(phi.isotropic ? Map::isotropic : phi.kernel, shape.dtype, mean);
        precondition = loops.update(phi.kernel, Dtype::float64, Dtype::none);
        if (mean != Dtype::none) m.resize(shape.runs * shape.size);
    }
    HeavyBall(HeavyBall const&) = delete;  // the steps point to the parameters

    void operator()(std::size_t run, Row<T> const& row) {
        double const factor = phi.isotropic ? factor_of(row.norm) : 0.0;
        T* const mean = m.empty() ? nullptr : m.data() + run * row.size;
        constexpr std::size_t block = 2048;  // stays in the cache between the two
        for (std::size_t i = 0; i < row.size; i += block) {
            std::size_t const n = std::min(block, row.size - i);
            std::memcpy(row.next + i, row.x + i, n * sizeof(T));
            update(row.next + i, row.gradient + i, mean ? mean + i : nullptr, n, own, factor);
        }
    }

private:
    Step step(double scale, double weight, double lr) const {
        return {.gradient_factor = 1.0,
                .coupled_decay = 0.0,
                .scale = scale,
                .weight = weight,
                .shrink = 1.0,
                .lr = lr,
                .parameters = phi.parameters.data()};
    }

    // c with ∇φ*(y) = c y for an isotropic φ: h*'(‖y‖/λ) / ‖y‖, with ‖y‖/λ cut off at the largest finite number
    double factor_of(double norm) const {
        if (norm == 0.0) return 0.0;
        double const ratio = std::min(norm / phi.scale, double(std::numeric_limits<T>::max()));
        double u = 0.0;
        precondition(&u, &ratio, nullptr, 1, scalar, 0.0);
        return u / norm;
    }

    Reference phi;
    Step own, scalar;  // of the rows, and the one from 0 to h*'
    Update *update, *precondition;
    std::vector<T> m;
};

template <class T>
class Nesterov {
public:
    Nesterov(Shape shape, double lr) : lr(T(lr)), t(shape.runs, 1.0), y(shape.runs * shape.size) {}

    void operator()(std::size_t run, Row<T> const& row) {
        double const following = 0.5 * (1.0 + std::sqrt(1.0 + 4.0 * t[run] * t[run]));
        extrapolate(row, lr, T((t[run] - 1.0) / following), y.data() + run * row.size);
        t[run] = following;
    }

    // y' = x - γ ∇f(x), x ← y' + c (y' - y)
    static void extrapolate(Row<T> const& row, T lr, T c, T* y) {
#pragma omp simd
        for (std::size_t i = 0; i < row.size; ++i) {
            T const moved = row.x[i] - lr * row.gradient[i];
            row.next[i] = moved + c * (moved - y[i]);
            y[i] = moved;
        }
    }

private:
    T lr;
    std::vector<double> t;
    std::vector<T> y;
};

template <class T>
class Clipped {
public:
    Clipped(Shape shape, double lr, double max_step, double momentum, double nu)
        : lr(lr), max_step(max_step), momentum(momentum), nu(nu), m(nu == 0.0 ? 0 : shape.runs * shape.size) {}

    void operator()(std::size_t run, Row<T> const& row) {
        T const own = T((1.0 - nu) * clip(row.norm));
        if (m.empty()) {
#pragma omp simd
            for (std::size_t i = 0; i < row.size; ++i) row.next[i] = row.x[i] - own * row.gradient[i];
            return;
        }
        T* const mean = m.data() + run * row.size;
        T const keep = T(momentum), take = T(1.0 - momentum);
#pragma omp simd
        for (std::size_t i = 0; i < row.size; ++i) mean[i] = keep * mean[i] + take * row.gradient[i];
        T const shared = T(nu * clip(norm<T>(row.size, [&](std::size_t i) { return mean[i]; })));
#pragma omp simd
        for (std::size_t i = 0; i < row.size; ++i)
            row.next[i] = row.x[i] - shared * mean[i] - own * row.gradient[i];
    }

private:
    // η min(1, γ/(η‖v‖)) without a division by zero
    double clip(double length) const { return lr * (max_step / std::max(lr * length, max_step)); }

    double lr, max_step, momentum, nu;
    std::vector<T> m;
};

// A stepsize, or a curvature, that may grow by a bounded factor.
struct Damped {
    double value, growth = infinity;

    void update(double bound, double weight) {
        double following = std::min(std::sqrt(1.0 + weight * growth) * value, bound);
        if (following == 0.0 || std::isinf(following)) following = value;
        growth = following / value;
        value = following;
    }
};

double half_ratio(double a, double b) { return b == 0.0 ? infinity : 0.5 * a / b; }

// ‖Δx‖ and ‖Δ∇f‖ between the last point and the present one
template <class T>
std::pair<double, double> changes(Row<T> const& row) {
    return {norm<T>(row.size, [&](std::size_t i) { return T(row.x[i] - row.last_x[i]); }),
            norm<T>(row.size, [&](std::size_t i) { return T(row.gradient[i] - row.last_gradient[i]); })};
}

template <class T>
double first_lr(Row<T> const& row, double lr) {
    double const length = norm<T>(row.size, [&](std::size_t i) { return row.x[i]; });
    double const shortest = std::sqrt(double(std::numeric_limits<T>::epsilon())) * length;
    return std::max(shortest / (row.norm == 0.0 ? 1.0 : row.norm), lr);
}

template <class T>
class Adgd {
public:
    Adgd(Shape shape, double lr) : first(lr), lr(shape.runs, Damped{0.0}) {}

    void operator()(std::size_t run, Row<T> const& row) {
        if (lr[run].value == 0.0) {
            lr[run].value = first_lr(row, first);
        } else {
            auto const [dx, dgradient] = changes(row);
            lr[run].update(half_ratio(dx, dgradient), 1.0);
        }
        T const rate = T(lr[run].value);
#pragma omp simd
        for (std::size_t i = 0; i < row.size; ++i) row.next[i] = row.x[i] - rate * row.gradient[i];
    }

private:
    double first;
    std::vector<Damped> lr;
};

template <class T>
class AdgdAccel {
public:
    AdgdAccel(Shape shape, double lr)
        : first(lr), lr(shape.runs, Damped{0.0}), mu(shape.runs, Damped{1.0}), y(shape.runs * shape.size) {}

    void operator()(std::size_t run, Row<T> const& row) {
        double c = 0.0;
        if (lr[run].value == 0.0) {
            lr[run].value = first_lr(row, first);
        } else {
            auto const [dx, dgradient] = changes(row);
            lr[run].update(half_ratio(dx, dgradient), 0.5);
            mu[run].update(half_ratio(dgradient, dx), 0.5);
            double const root = std::sqrt(lr[run].value * mu[run].value);
            c = (1.0 - root) / (1.0 + root);
        }
        Nesterov<T>::extrapolate(row, T(lr[run].value), T(c), y.data() + run * row.size);
    }

private:
    double first;
    std::vector<Damped> lr, mu;
    std::vector<T> y;
};

template <class T, class Rule>
class Steps final : public Stepper {
public:
    template <class... Options>
    explicit Steps(Shape shape, Options const&... options)
        : Stepper(shape.runs, shape.size), rule(shape, options...) {}

    void step(Iterate const& at) override {
        for (std::size_t run = 0; run < runs; ++run) {
            auto const row = [&](std::uintptr_t address) { return reinterpret_cast<T*>(address) + run * size; };
            if (at.running == nullptr || at.running[run])
                rule(run, Row<T>{size, row(at.x), row(at.gradient), row(at.last_x), row(at.last_gradient),
                                 row(at.next), at.norms[run]});
            else
                std::memcpy(row(at.next), row(at.x), size * sizeof(T));
        }
    }

    double measure(std::uintptr_t gradient, double const* f, double* norms) const override {
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

private:
    Rule rule;
};

template <template <class> class Rule, class... Options>
std::unique_ptr<Stepper> make(Shape shape, Options const&... options) {
    switch (shape.dtype) {
        case Dtype::float32: return std::make_unique<Steps<float, Rule<float>>>(shape, options...);
        case Dtype::float64: return std::make_unique<Steps<double, Rule<double>>>(shape, options...);
        default: throw std::invalid_argument("the solvers step in float32 and float64");
    }
}

}  // namespace

std::unique_ptr<Stepper> heavy_ball(Shape shape, double lr, double momentum, Reference phi) {
    return make<HeavyBall>(shape, lr, momentum, phi);
}
std::unique_ptr<Stepper> nesterov(Shape shape, double lr) { return make<Nesterov>(shape, lr); }
std::unique_ptr<Stepper> clipped(Shape shape, double lr, double max_step, double momentum, double nu) {
    return make<Clipped>(shape, lr, max_step, momentum, nu);
}
std::unique_ptr<Stepper> adgd(Shape shape, double lr) { return make<Adgd>(shape, lr); }
std::unique_ptr<Stepper> adgd_accel(Shape shape, double lr) { return make<AdgdAccel>(shape, lr); }

}  // namespace npgm
