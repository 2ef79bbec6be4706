// Secants of f, and what L-BFGS makes of them: npgm.solvers.methods.auto.quasi_newton.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "line.hpp"

namespace npgm {
namespace {

// The inverse BFGS matrix of the last secants, by its two loops.
template <class T>
class QuasiNewton {
public:
    QuasiNewton(std::size_t size, NewtonOptions const& o)
        : o(o), size(size), memory(o.memory), newest(memory - 1), s(size * memory), y(size * memory), diagonal(size),
          inverse(memory), weight(memory) {}

    double factor = 0.0;  // of the identity from which the matrix is built

    std::size_t count() const { return known; }
    // By their places, in no order of age. Both are over the length of the step.
    std::size_t newest_place() const { return newest; }
    T const* step(std::size_t place) const { return &s[place * size]; }
    T const* change(std::size_t place) const { return &y[place * size]; }
    double curvature(std::size_t place) const { return 1.0 / inverse[place]; }

    // u = H g
    void product(T const* gradient, T* u) {
        product(gradient, u, factor, inverse.data(), [](std::size_t) { return T(1); });
    }

    // The same with the entries of the secants for which `free` is 1, not 0, and with their own factor and inverse
    // curvatures, zero for secants to leave out.
    template <class Free>
    void product(T const* gradient, T* u, double own_factor, double const* own_inverse, Free const& free) {
        for (std::size_t j = 0; j < size; ++j) u[j] = free(j) * gradient[j];
        for (std::size_t k = 0; k < known; ++k) {  // the newest first
            std::size_t const i = place(k);
            weight[i] = own_inverse[i] * dot(size, step(i), u);
            add(size, u, -weight[i], change(i), free);
        }
        T const scale = T(gain > o.gain ? width : width * own_factor);
        if (gain > o.gain) {
#pragma omp simd
            for (std::size_t j = 0; j < size; ++j) u[j] = scale * (u[j] / diagonal[j]);
        } else {
#pragma omp simd
            for (std::size_t j = 0; j < size; ++j) u[j] *= scale;
        }
        for (std::size_t k = known; k-- > 0;) {
            std::size_t const i = place(k);
            add(size, u, weight[i] - own_inverse[i] * dot(size, change(i), u), step(i), free);
        }
    }

    // Take the secant of a step whose change of the gradient, entry by entry, is measured by `trial`, times a ratio, as a
    // wide one or not.
    template <class Change>
    void learn(T const* step, Change const& change, Measured const& trial, double ratio = 1.0, bool wide = false) {
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
        if (known == 1) std::fill(diagonal.begin(), diagonal.end(), T(1.0 / factor));
        follow(to_s, to_y, 1.0 / inverse[newest], ratio * trial.change_norm / trial.step_norm, wide);
    }

    // Keep the newest secant alone, at the first place.
    void forget() {
        std::copy_n(step(newest), size, s.begin());
        std::copy_n(change(newest), size, y.begin());
        inverse[0] = inverse[newest];
        newest = 0;
        known = 1;
        gain = 0.0;
        width = 1.0;
        std::fill(diagonal.begin(), diagonal.end(), T(1.0 / factor));
    }

private:
    // Take the diagonal of the BFGS matrix that is made of the present one, scaled to have the curvature along y.
    void follow(T const* s, T const* y, double curvature, double change, bool wide) {
        double const along_s = inner(size, [&](std::size_t j) { return diagonal[j] * s[j]; },
                                     [&](std::size_t j) { return s[j]; });
        double const along_y = inner(size, [&](std::size_t j) { return y[j] / diagonal[j]; },
                                     [&](std::size_t j) { return y[j]; });
        gain = o.fade * gain + std::log(change / along_s) + std::log(change / along_y);
        width = (gain > o.gain ? std::sqrt(along_s) * std::sqrt(along_y) : change) / curvature;
        if (!wide) width = 1.0;
        T const part = T(along_s), scale = T(along_y / curvature), by = T(curvature);
        T const least = T(1.0 / (o.spread * factor)), largest = T(o.spread / factor);
#pragma omp simd
        for (std::size_t j = 0; j < size; ++j) {
            T const old = diagonal[j], rest = scale * old * (T(1) - old * s[j] / part * s[j]);
            diagonal[j] = std::min(std::max(rest + y[j] / by * y[j], least), largest);
        }
    }

    std::size_t place(std::size_t age) const { return (newest + memory - age) % memory; }

    NewtonOptions const& o;
    std::size_t size, memory, newest, known = 0;
    std::vector<T> s, y, diagonal;
    std::vector<double> inverse, weight;
    double gain = 0.0;  // by how much better the diagonal explains the last secants than a multiple of the identity
    double width = 1.0;
};

// The secants in some entries alone, the free ones.
template <class T>
class Faces {
public:
    Faces(std::size_t size, std::size_t memory) : free(size, T(1)), curvature(memory), inverse(memory) {}

    bool is_fixed(std::size_t j) const { return free[j] == T(0); }

    // Take notice of the secant that was learnt last.
    void learn(QuasiNewton<T> const& of) { measure(of, of.newest_place()); }

    // Keep what is known of the secant at a place alone, at the first.
    void forget_but(std::size_t place) { curvature[0] = curvature[place]; }

    // Say which entries are fixed.
    template <class Fixed>
    void fix(QuasiNewton<T> const& of, Fixed const& fixed) {
        bool changed = false;
        for (std::size_t j = 0; j < free.size(); ++j) {
            changed |= fixed(j) != is_fixed(j);
            free[j] = fixed(j) ? T(0) : T(1);
        }
        if (!changed) return;
        for (std::size_t place = 0; place < of.count(); ++place) measure(of, place);
    }

    // u = H g, zero in the fixed entries, from the secants that have more than this share of their curvature in the
    // free ones
    void product(QuasiNewton<T>& of, T const* gradient, T* u, double share) {
        for (std::size_t place = 0; place < of.count(); ++place)
            inverse[place] = curvature[place] > share * of.curvature(place) ? 1.0 / curvature[place] : 0.0;
        std::size_t const newest = of.newest_place();
        T const* const y = of.change(newest);
        double const factor = inverse[newest] == 0.0 ? of.factor : curvature[newest] / product(y, y);
        of.product(gradient, u, factor, inverse.data(), [&](std::size_t j) { return free[j]; });
    }

private:
    double product(T const* a, T const* b) const {
        return inner(free.size(), [&](std::size_t j) { return free[j] * a[j]; }, [&](std::size_t j) { return b[j]; });
    }
    void measure(QuasiNewton<T> const& of, std::size_t place) {
        curvature[place] = product(of.step(place), of.change(place));
    }

    std::vector<T> free;  // 1, or 0 for fixed entries
    std::vector<double> curvature, inverse;  // by the places of the secants
};

}  // namespace
}  // namespace npgm
