// Compiled several times, with the flags of one instruction set and its name in NPGM_INSTRUCTIONS. Nothing but that
// name has linkage: a function shared with other files could be taken from here and meet a machine that lacks the
// instructions. Hence no functions of the standard library.
#include "loops.hpp"

#include <type_traits>

#include "kernels.hpp"

namespace npgm {
namespace {

template <class P>
using Working = decltype(load(P{}));

template <class T>
T narrowed(double value) {
    return static_cast<T>(value > double(largest_finite<T>) ? double(largest_finite<T>) : value);
}

template <class T>
class Isotropic {
public:
    Isotropic(Step const&, double factor) : factor(narrowed<T>(factor)) {}
    NPGM_INLINE T operator()(T y) const { return factor * y; }

private:
    T factor;
};

template <class T, class Kernel>
class Separable {
public:
    Separable(Step const& step, double) : scale(narrowed<T>(step.scale)) {
        constexpr T least = std::numeric_limits<T>::denorm_min();
        scale = scale < least ? least : scale;  // a λ below all numbers must not make 0/0
    }
    NPGM_INLINE T operator()(T y) const {
        T const a = absolute(y), ratio = a / scale;
        T const finite = ratio < largest_finite<T> ? ratio : largest_finite<T>;
        return with_sign(Kernel::precondition(is_finite(a) ? finite : a), y);
    }

private:
    T scale;
};

// P is the dtype of the parameter and its gradient, M that of the momentum, void without.
template <class P, class M, class Preconditioner>
void update(void* x_, void const* gradient_, void* momentum_, std::size_t n, Step const& step, double factor) {
    using T = Working<P>;
    constexpr bool has_momentum = !std::is_void_v<M>;
    using Stored = std::conditional_t<has_momentum, M, P>;
    auto* const x = static_cast<P*>(x_);
    auto const* const gradient = static_cast<P const*>(gradient_);
    auto* const momentum = static_cast<Stored*>(momentum_);
    Preconditioner const preconditioner(step, factor);
    T const gradient_factor = T(step.gradient_factor), decay = T(step.coupled_decay);
    T const weight = T(step.weight), shrink = T(step.shrink), lr = T(step.lr);
    bool const decays = step.coupled_decay != 0;
#pragma omp simd
    for (std::size_t i = 0; i < n; ++i) {
        T const point = load(x[i]);
        T const y = madd(decay, decays ? point : T(0), gradient_factor * load(gradient[i]));
        T u = preconditioner(y);
        if constexpr (has_momentum) {
            T const mean = load(momentum[i]);
            u = madd(weight, u - mean, mean);
            momentum[i] = store<Stored>(u);
        }
        x[i] = store<P>(madd(-lr, u, shrink * point));
    }
}

// The sums are taken in double precision and in a fixed order: by the place of an entry modulo `lanes`, then over the
// lanes. A sum of squares of floats neither overflows nor underflows there; doubles are scaled by their largest.
template <class P, bool decays>
Moments measure(void const* x_, void const* gradient_, std::size_t n, Step const& step) {
    using T = Working<P>;
    constexpr std::size_t lanes = 32;
    auto const* const x = static_cast<P const*>(x_);
    auto const* const gradient = static_cast<P const*>(gradient_);
    T const gradient_factor = T(step.gradient_factor), decay = T(step.coupled_decay);
    auto const y = [&](std::size_t i) __attribute__((always_inline)) {
        T const scaled = gradient_factor * load(gradient[i]);
        if constexpr (decays) return madd(decay, load(x[i]), scaled);
        return scaled;
    };

    T largest[lanes] = {};
    double squares[lanes] = {}, unit = 1.0, inverse = 1.0;
    auto const take_largest = [&](std::size_t lane, T value) __attribute__((always_inline)) {
        T const a = absolute(value);
        largest[lane] = a > largest[lane] ? a : largest[lane];
    };
    auto const take_square = [&](std::size_t lane, T value) __attribute__((always_inline)) {
        double const scaled = double(value) * inverse;
        squares[lane] = madd(scaled, scaled, squares[lane]);
    };
    auto const each = [&](auto take) __attribute__((always_inline)) {
        std::size_t i = 0;
        for (; i + lanes <= n; i += lanes) {
#pragma omp simd
            for (std::size_t lane = 0; lane < lanes; ++lane) take(lane, y(i + lane));
        }
        for (std::size_t lane = 0; i + lane < n; ++lane) take(lane, y(i + lane));
    };
    auto const maximum = [&] {
        T result = largest[0];
        for (T value : largest) result = value > result ? value : result;
        return result;
    };

    if constexpr (sizeof(T) == 8) {
        each(take_largest);
        T const top = maximum();
        if (top > 0 && is_finite(top)) {
            // the power of two below, kept where it and its inverse are normal numbers
            double const low = top < 0x1p-1000 ? 0x1p-1000 : top > 0x1p1000 ? 0x1p1000 : top;
            unit = from_bits<double>(to_bits(low) & 0x7ff0000000000000u);
            inverse = 1.0 / unit;
        }
        each(take_square);
    } else {
        each([&](std::size_t lane, T value) __attribute__((always_inline)) {
            take_largest(lane, value);
            take_square(lane, value);
        });
    }
    double total = 0.0;
    for (double value : squares) total += value;
    // a comparison passes over NaN, a sum does not
    return {total == total ? double(maximum()) : total, unit, total};
}

template <class P, class M>
Update* find(Map map) {
    using T = Working<P>;
    switch (map) {
#define NPGM_CASE(name) \
    case Map::name: return update<P, M, Separable<T, name>>;
        NPGM_KERNELS(NPGM_CASE)
#undef NPGM_CASE
        case Map::isotropic: return update<P, M, Isotropic<T>>;
    }
    return nullptr;
}

template <class P>
Update* find(Map map, Dtype own, Dtype momentum) {
    if (momentum == Dtype::none) return find<P, void>(map);
    if (momentum == own) return find<P, P>(map);
    if (momentum == Dtype::float32 && sizeof(P) == 2) return find<P, float>(map);
    return nullptr;
}

Update* find_update(Map map, Dtype parameter, Dtype momentum) {
    switch (parameter) {
        case Dtype::float32: return find<float>(map, parameter, momentum);
        case Dtype::float64: return find<double>(map, parameter, momentum);
        case Dtype::bfloat16: return find<Bfloat16>(map, parameter, momentum);
        case Dtype::float16: return find<Float16>(map, parameter, momentum);
        case Dtype::none: break;
    }
    return nullptr;
}

template <bool decays>
Measure* find_measure(Dtype parameter) {
    switch (parameter) {
        case Dtype::float32: return measure<float, decays>;
        case Dtype::float64: return measure<double, decays>;
        case Dtype::bfloat16: return measure<Bfloat16, decays>;
        case Dtype::float16: return measure<Float16, decays>;
        case Dtype::none: break;
    }
    return nullptr;
}

}  // namespace

#define NPGM_TEXT_OF(name) #name
#define NPGM_TEXT(name) NPGM_TEXT_OF(name)
Instructions const NPGM_INSTRUCTIONS{NPGM_TEXT(NPGM_INSTRUCTIONS), find_update, find_measure<false>,
                                     find_measure<true>};

}  // namespace npgm
