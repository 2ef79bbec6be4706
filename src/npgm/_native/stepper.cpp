#include "stepper.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "driver.hpp"
#include "rows.hpp"

namespace npgm {
namespace {

// gd, gdm and npgm: m ← m + (1-β)(u - m), x ← x - γ m with u = ∇φ*(∇f(x)).
template <class T>
class HeavyBall {
public:
    HeavyBall(Shape shape, double lr, double momentum, Reference phi_)
        : lr(lr), phi(std::move(phi_)), own(step(phi.scale, 1.0 - momentum, lr)), scalar(step(1.0, 1.0, -1.0)) {
        Instructions const& loops = instructions();
        Dtype const mean = momentum == 0.0 ? Dtype::none : shape.dtype;
        update = loops.update(phi.isotropic ? Map::isotropic : phi.kernel, shape.dtype, mean);
        precondition = loops.update(phi.kernel, Dtype::float64, Dtype::none);
        if (mean != Dtype::none) m.resize(shape.runs * shape.size);
    }
    HeavyBall(HeavyBall const&) = delete;  // the steps point to the parameters

    double operator()(std::size_t run, Row<T> const& row) {
        double const factor = phi.isotropic ? factor_of(row.norm) : 0.0;
        T* const mean = m.empty() ? nullptr : m.data() + run * row.size;
        constexpr std::size_t block = 2048;  // stays in the cache between the two
        for (std::size_t i = 0; i < row.size; i += block) {
            std::size_t const n = std::min(block, row.size - i);
            std::memcpy(row.next + i, row.x + i, n * sizeof(T));
            update(row.next + i, row.gradient + i, mean ? mean + i : nullptr, n, own, factor);
        }
        return lr;
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

    double lr;
    Reference phi;
    Step own, scalar;  // of the rows, and the one from 0 to h*'
    Update *update, *precondition;
    std::vector<T> m;
};

template <class T>
class Clipped {
public:
    Clipped(Shape shape, double lr, double max_step, double momentum, double nu)
        : lr(lr), max_step(max_step), momentum(momentum), nu(nu), m(nu == 0.0 ? 0 : shape.runs * shape.size) {}

    double operator()(std::size_t run, Row<T> const& row) {
        T const own = T((1.0 - nu) * clip(row.norm));
        if (m.empty()) {
#pragma omp simd
            for (std::size_t i = 0; i < row.size; ++i) row.next[i] = row.x[i] - own * row.gradient[i];
            return lr;
        }
        T* const mean = m.data() + run * row.size;
        T const keep = T(momentum), take = T(1.0 - momentum);
#pragma omp simd
        for (std::size_t i = 0; i < row.size; ++i) mean[i] = keep * mean[i] + take * row.gradient[i];
        T const shared = T(nu * clip(norm<T>(row.size, [&](std::size_t i) { return mean[i]; })));
#pragma omp simd
        for (std::size_t i = 0; i < row.size; ++i)
            row.next[i] = row.x[i] - shared * mean[i] - own * row.gradient[i];
        return lr;
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

    double operator()(std::size_t run, Row<T> const& row) {
        if (lr[run].value == 0.0) {
            lr[run].value = first_lr(row, first);
        } else {
            auto const [dx, dgradient] = changes(row);
            lr[run].update(half_ratio(dx, dgradient), 1.0);
        }
        T const rate = T(lr[run].value);
#pragma omp simd
        for (std::size_t i = 0; i < row.size; ++i) row.next[i] = row.x[i] - rate * row.gradient[i];
        return lr[run].value;
    }

private:
    double first;
    std::vector<Damped> lr;
};

// y' = x - γ ∇f(x), x ← y' + c (y' - y)
template <class T>
void extrapolate(Row<T> const& row, T lr, T c, T* y) {
#pragma omp simd
    for (std::size_t i = 0; i < row.size; ++i) {
        T const moved = row.x[i] - lr * row.gradient[i];
        row.next[i] = moved + c * (moved - y[i]);
        y[i] = moved;
    }
}

template <class T>
class AdgdAccel {
public:
    AdgdAccel(Shape shape, double lr)
        : first(lr), lr(shape.runs, Damped{0.0}), mu(shape.runs, Damped{1.0}), y(shape.runs * shape.size) {}

    double operator()(std::size_t run, Row<T> const& row) {
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
        extrapolate(row, T(lr[run].value), T(c), y.data() + run * row.size);
        return lr[run].value;
    }

private:
    double first;
    std::vector<Damped> lr, mu;
    std::vector<T> y;
};

}  // namespace

std::unique_ptr<Stepper> heavy_ball(Shape shape, double lr, double momentum, Reference phi) {
    return make<HeavyBall>(shape, lr, momentum, phi);
}
std::unique_ptr<Stepper> clipped(Shape shape, double lr, double max_step, double momentum, double nu) {
    return make<Clipped>(shape, lr, max_step, momentum, nu);
}
std::unique_ptr<Stepper> adgd(Shape shape, double lr) { return make<Adgd>(shape, lr); }
std::unique_ptr<Stepper> adgd_accel(Shape shape, double lr) { return make<AdgdAccel>(shape, lr); }

}  // namespace npgm
