// Secants of f, and what L-BFGS makes of them: npgm.solvers.methods.auto.quasi_newton.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "line.hpp"

namespace npgm {
namespace {

// The inverse BFGS matrix of the last secants, by its two loops.
template <class T>
class QuasiNewton {
public:
    QuasiNewton(std::size_t size, std::size_t memory)
        : size(size), memory(memory), newest(memory - 1), s(size * memory), y(size * memory), inverse(memory),
          weight(memory) {}

    double factor = 0.0;  // of the identity from which the matrix is built

    std::size_t count() const { return known; }
    // By their places, in no order of age. Both are over the length of the step.
    std::size_t newest_place() const { return newest; }
    T const* step(std::size_t place) const { return &s[place * size]; }
    T const* change(std::size_t place) const { return &y[place * size]; }
    double curvature(std::size_t place) const { return 1.0 / inverse[place]; }

    // u = H g
    void product(T const* gradient, T* u) {
        std::copy(gradient, gradient + size, u);
        for (std::size_t k = 0; k < known; ++k) {  // the newest first
            std::size_t const i = place(k);
            weight[i] = inverse[i] * dot(size, step(i), u);
            add(size, u, -weight[i], change(i));
        }
        T const scale = T(factor);
#pragma omp simd
        for (std::size_t j = 0; j < size; ++j) u[j] *= scale;
        for (std::size_t k = known; k-- > 0;) {
            std::size_t const i = place(k);
            add(size, u, weight[i] - inverse[i] * dot(size, change(i), u), step(i));
        }
    }

    // Take the secant of a step whose change of the gradient, entry by entry, is measured by `trial`, times a ratio.
    template <class Change>
    void learn(T const* step, Change const& change, Measured const& trial, double ratio = 1.0) {
        newest = (newest + 1) % memory;
        known = std::min(known + 1, memory);
        T const unit = T(trial.step_norm), by = T(ratio);
        T *const to_s = &s[newest * size], *const to_y = &y[newest * size];
#pragma omp simd
        for (std::size_t j = 0; j < size; ++j) {
            to_s[j] = step[j] / unit;
            to_y[j] = by * change(j) / unit;
        }
        inverse[newest] = trial.step_norm * (trial.step_norm / (ratio * trial.product));
        factor = trial.product / trial.change_norm / (ratio * trial.change_norm);
    }

    // Keep the newest secant alone, at the first place.
    void forget() {
        std::copy_n(step(newest), size, s.begin());
        std::copy_n(change(newest), size, y.begin());
        inverse[0] = inverse[newest];
        newest = 0;
        known = 1;
    }

private:
    std::size_t place(std::size_t age) const { return (newest + memory - age) % memory; }

    std::size_t size, memory, newest, known = 0;
    std::vector<T> s, y;
    std::vector<double> inverse, weight;
};

// Row-major square matrices, of which the upper triangle is used.
class Upper {
public:
    // Replace A by R with A = RᵀR; return whether A is positive definite.
    static bool factorise(double* A, std::size_t n) {
        for (std::size_t k = 0; k < n; ++k) {
            double* const row = A + k * n;
            if (!(row[k] > 0.0)) return false;
            double const root = std::sqrt(row[k]);
            for (std::size_t j = k; j < n; ++j) row[j] /= root;
            for (std::size_t i = k + 1; i < n; ++i) add(n - i, A + i * n + i, -row[i], row + i);
        }
        return true;
    }

    // B ← R⁻ᵀ B, of `columns` columns
    static void divide_transposed(double const* R, std::size_t n, double* B, std::size_t columns) {
        for (std::size_t i = 0; i < n; ++i) {
            double* const row = B + i * columns;
            for (std::size_t k = 0; k < i; ++k) add(columns, row, -R[k * n + i], B + k * columns);
            for (std::size_t j = 0; j < columns; ++j) row[j] /= R[i * n + i];
        }
    }

    // v ← R⁻¹ v
    static void divide(double const* R, std::size_t n, double* v) {
        for (std::size_t i = n; i-- > 0;)
            v[i] = (v[i] - dot(n - i - 1, R + i * n + i + 1, v + i + 1)) / R[i * n + i];
    }
};

// The inverse of the submatrix of the BFGS matrix for some entries, the free ones. With the pairs S and Y over the
// lengths of the steps as columns, F and A for the free and the fixed entries, and D the curvatures, it is
//     factor (I + [S Y]_F [S_Aᵀ S_A, C; Cᵀ, -E]⁻¹ [S Y]_Fᵀ),    E = D/factor + Y_Fᵀ Y_F,
// where C is S_Aᵀ Y_A for pairs of a step and an older change, and else -S_Fᵀ Y_F.
template <class T>
class Faces {
public:
    // What a product needs besides, of any run.
    struct Work {
        explicit Work(std::size_t memory) : E(memory * memory), K(memory * memory), X(memory * (memory + 1)), a(memory) {}
        std::vector<double> E, K, X, a;
    };

    Faces(std::size_t size, std::size_t memory)
        : size(size), memory(memory), fixed(size), masked(size), ss(memory * memory), C(memory * memory),
          yy(memory * memory), column(2 * memory) {}

    bool is_fixed(std::size_t j) const { return fixed[j] != 0; }

    // Take notice of the pair that was learnt last.
    void learn(QuasiNewton<T> const& of) {
        std::size_t const i = of.newest_place();
        mask(of.step(i), true);
        for (std::size_t k = 0; k < of.count(); ++k) {
            ss[i * memory + k] = ss[k * memory + i] = dot(size, masked.data(), of.step(k));
            C[i * memory + k] = dot(size, masked.data(), of.change(k));
        }
        mask(of.change(i), false);
        for (std::size_t k = 0; k < of.count(); ++k) {
            yy[i * memory + k] = yy[k * memory + i] = dot(size, masked.data(), of.change(k));
            C[k * memory + i] = -dot(size, masked.data(), of.step(k));
        }
    }

    // Keep what is known of the pair at a place alone, at the first.
    void forget_but(std::size_t place) {
        for (auto* each : {&ss, &C, &yy}) (*each)[0] = (*each)[place * memory + place];
    }

    // Say which entries are fixed.
    template <class Fixed>
    void fix(QuasiNewton<T> const& of, Fixed const& is_fixed) {
        for (std::size_t j = 0; j < size; ++j)
            if (is_fixed(j) != (fixed[j] != 0)) change(of, j);
    }

    // u = the product with g, zero in the fixed entries; NaN where rounding has made the matrix indefinite.
    void product(QuasiNewton<T>& of, T const* gradient, T* u, Work& work) {
        std::size_t const n = of.count();
        if (number == 0 || n == 0) {
            of.product(gradient, u);
            for (std::size_t j = 0; j < size; ++j) u[j] = fixed[j] ? T(0) : u[j];
            return;
        }
        mask(gradient, false);
        for (std::size_t i = 0; i < n; ++i) {
            double* const row = &work.X[i * (n + 1)];
            for (std::size_t k = 0; k < n; ++k) {
                row[k] = C[k * memory + i];
                work.E[i * n + k] = yy[i * memory + k];
                work.K[i * n + k] = ss[i * memory + k];
            }
            row[n] = dot(size, of.change(i), masked.data());
            work.E[i * n + i] += of.curvature(i) / of.factor;
            work.a[i] = dot(size, of.step(i), masked.data());
        }
        double *const E = work.E.data(), *const K = work.K.data(), *const X = work.X.data(), *const a = work.a.data();
        if (!Upper::factorise(E, n)) return fail(u);
        Upper::divide_transposed(E, n, X, n + 1);
        for (std::size_t k = 0; k < n; ++k) {
            double const* const row = X + k * (n + 1);
            for (std::size_t i = 0; i < n; ++i) {
                add(n - i, K + i * n + i, row[i], row + i);
                a[i] += row[i] * row[n];
            }
        }
        if (!Upper::factorise(K, n)) return fail(u);
        Upper::divide_transposed(K, n, a, 1);
        Upper::divide(K, n, a);
        double* const b = work.K.data();  // which is of no more use
        for (std::size_t k = 0; k < n; ++k) b[k] = dot(n, X + k * (n + 1), a) - X[k * (n + 1) + n];
        Upper::divide(E, n, b);
        std::copy(masked.begin(), masked.end(), u);
        for (std::size_t k = 0; k < n; ++k) {
            add(size, u, a[k], of.step(k));
            add(size, u, b[k], of.change(k));
        }
        T const factor = T(of.factor);
        for (std::size_t j = 0; j < size; ++j) u[j] = fixed[j] ? T(0) : factor * u[j];
    }

private:
    void mask(T const* v, bool to_fixed) {
        for (std::size_t j = 0; j < size; ++j) masked[j] = (fixed[j] != 0) == to_fixed ? v[j] : T(0);
    }

    // Let an entry change sides.
    void change(QuasiNewton<T> const& of, std::size_t j) {
        double const sign = fixed[j] ? -1.0 : 1.0;
        fixed[j] = !fixed[j];
        number += fixed[j] ? 1 : -1;
        std::size_t const n = of.count();
        double *const s = column.data(), *const y = s + memory;
        for (std::size_t k = 0; k < n; ++k) s[k] = of.step(k)[j], y[k] = of.change(k)[j];
        for (std::size_t i = 0; i < n; ++i) {
            add(n, &ss[i * memory], sign * s[i], s);
            add(n, &C[i * memory], sign * s[i], y);
            add(n, &yy[i * memory], -sign * y[i], y);
        }
    }

    void fail(T* u) const { std::fill(u, u + size, std::numeric_limits<T>::quiet_NaN()); }

    std::size_t size, memory;
    std::ptrdiff_t number = 0;  // of fixed entries
    std::vector<unsigned char> fixed;
    std::vector<T> masked;
    std::vector<double> ss, C, yy, column;
};

}  // namespace
}  // namespace npgm
