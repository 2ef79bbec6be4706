// Compiled several times, with the flags of one instruction set and its name in NPGM_INSTRUCTIONS. Nothing but that
// name has linkage: a function shared with other files could be taken from here and meet a machine that lacks the
// instructions. Hence no functions of the standard library.
#include "loops.hpp"

#include "maps.hpp"
#if defined(__AVX512F__) || (defined(__AVX2__) && NPGM_FMA)
#define NPGM_REGISTERS 1
#include "piecewise.hpp"
#else
#define NPGM_REGISTERS 0
#endif

namespace npgm {
namespace {

// Squares are added up in the working precision over so few entries that none of its digits but the last few are lost.
constexpr std::size_t strip = 512;  // which stays in the first cache for a second reading

constexpr std::size_t long_strip = 4 * strip;  // over which squares are added up

// A point that nothing decays may be infinite. Of a choice instead of a mask the compiler would make two loops.
template <class T>
NPGM_INLINE Bits<T> all_bits(bool kept) {
    return kept ? ~Bits<T>{0} : Bits<T>{0};
}
template <class T>
NPGM_INLINE T masked(T point, Bits<T> kept) {
    return from_bits<T>(to_bits(point) & kept);
}

// P is the dtype of the parameter, G that of the gradient, M that of the momentum, void without. `range` is that of all
// arguments of the preconditioner; a `plain` step neither decays nor changes the gradients. Every number that the loop
// needs is a local one: what is a member of something in memory would be read again in each turn.
template <class P, class G, class M, bool plain, Range range, class Preconditioner, bool tracks = false,
          bool before = false>
NPGM_NOINLINE Squares walk(P* x, G const* gradient, void* momentum_, std::size_t n, Step const& step, double factor) {
    using T = Working<P>;
    constexpr bool has_momentum = !std::is_void_v<M>;
    using Stored = std::conditional_t<has_momentum, M, P>;
    auto* const momentum = static_cast<Stored*>(momentum_);
    Preconditioner const preconditioner(step, factor);
    T const gradient_factor = T(step.gradient_factor), decay = T(step.coupled_decay);
    T const weight = T(step.weight), shrink = T(step.shrink), lr = T(step.lr);
    // two loops where little else is computed, and what decay takes is more than one instruction
    constexpr bool by_choice = Preconditioner::is_light && !tracks && !NPGM_FMA;
    [[maybe_unused]] bool const chosen = step.coupled_decay != 0;
    [[maybe_unused]] auto const decays = all_bits<T>(chosen);
    [[maybe_unused]] T given = 0, made = 0;
#pragma omp simd reduction(+ : given, made)
    for (std::size_t i = 0; i < n; ++i) {
        T const point = load(x[i]);
        T const raw = load(gradient[i]);
        T kept;
        if constexpr (by_choice)
            kept = chosen ? point : T(0);
        else
            kept = masked(point, decays);
        T y = plain ? raw : madd(decay, kept, gradient_factor * raw);
        auto const averaged = [&](T value) NPGM_INLINE_LAMBDA {
            T const mean = load(momentum[i]), next = madd(weight, value - mean, mean);
            momentum[i] = store<Stored>(next);
            return next;
        };
        if constexpr (before) y = averaged(y);
        T u = preconditioner.template direction<range>(y);
        if constexpr (tracks) {
            given = madd(y, y, given);
            made = madd(u, u, made);
        }
        if constexpr (has_momentum && !before) u = averaged(u);
        x[i] = store<P>(madd(-lr, u, plain ? point : shrink * point));
    }
    return {double(given), double(made)};
}

// Take y into the momentum, and write that to `means` if it is rounded.
template <class P, class M>
NPGM_NOINLINE void average(P const* x, P const* gradient, M* momentum, [[maybe_unused]] Working<P>* means, std::size_t n,
                           Step const& step) {
    using T = Working<P>;
    T const gradient_factor = T(step.gradient_factor), decay = T(step.coupled_decay), weight = T(step.weight);
    auto const decays = all_bits<T>(step.coupled_decay != 0);
#pragma omp simd
    for (std::size_t i = 0; i < n; ++i) {
        T const y = madd(decay, masked(load(x[i]), decays), gradient_factor * load(gradient[i]));
        T const mean = load(momentum[i]);
        T const next = madd(weight, y - mean, mean);
        momentum[i] = store<M>(next);
        if constexpr (!std::is_same_v<M, T>) means[i] = next;
    }
}

template <class P, class G, bool plain, class Preconditioner>
NPGM_NOINLINE Range range_of(P const* x, G const* gradient, std::size_t n, Step const& step) {
    using T = Working<P>;
    T const gradient_factor = T(step.gradient_factor), decay = T(step.coupled_decay);
    auto const decays = all_bits<T>(step.coupled_decay != 0);
    // numbers that are not negative are ordered as their bits are, of which a maximum is vectorised everywhere
    std::int32_t largest = 0;
    for (std::size_t i = 0; i < n; ++i) {
        T const raw = load(gradient[i]);
        T const y = plain ? raw : madd(decay, masked(load(x[i]), decays), gradient_factor * raw);
        auto const bits = static_cast<std::int32_t>(to_bits(absolute(y)));
        largest = bits > largest ? bits : largest;
    }
    return Preconditioner(step, 0.0).range(from_bits<T>(static_cast<Bits<T>>(largest)));
}

// Call `move` for each strip, and return the sum of what it returns.
template <class M, std::size_t strip = npgm::strip, class P, class G, class Move>
Squares for_strips(P* x, G const* gradient, void* momentum, std::size_t n, Move const& move) {
    constexpr std::size_t bytes = sizeof(std::conditional_t<std::is_void_v<M>, P, M>);
    Squares squares;
    for (std::size_t i = 0; i < n; i += strip) {
        void* const part = momentum ? static_cast<char*>(momentum) + i * bytes : nullptr;
        squares += move(x + i, gradient + i, part, n - i < strip ? n - i : strip);
    }
    return squares;
}

// As `walk`, by the ranges of strips.
template <class P, class G, class M, bool plain, class Preconditioner>
Squares walk_by_ranges(P* x, G const* gradient, void* momentum, std::size_t n, Step const& step, double factor) {
    return for_strips<M>(x, gradient, momentum, n, [&](P* x, G const* gradient, void* momentum, std::size_t n) {
        switch (range_of<P, G, plain, Preconditioner>(x, gradient, n, step)) {
            case Range::near:
                return walk<P, G, M, plain, Range::near, Preconditioner>(x, gradient, momentum, n, step, factor);
            case Range::moderate:
                return walk<P, G, M, plain, Range::moderate, Preconditioner>(x, gradient, momentum, n, step, factor);
            case Range::any: break;
        }
        return walk<P, G, M, false, Range::any, Preconditioner>(x, gradient, momentum, n, step, factor);
    });
}

#if NPGM_REGISTERS
// An isotropic φ, as ByPolynomials.
class ByFactor {
public:
    static bool takes(Step const&) { return true; }

    NPGM_INLINE ByFactor(Step const&, double factor) : factor(filled(narrowed<float>(factor))) {}
    NPGM_INLINE void replace(Unrolled& y) const {
        for (int i = 0; i < unrolled; ++i) y[i] = times(factor, y[i]);
    }

private:
    Vector factor;
};

// How `walk_registers` does what a map does to entries of P, to the digits of S; void where it does not. Short numbers need
// conversions that AVX2 has not.
template <class P, class Preconditioner, class S>
struct InRegisters {
    using Type = void;
};
template <class P>
constexpr bool has_registers = std::is_same_v<P, float> || (lanes == 16 && sizeof(P) == 2);
template <class P, class S>
    requires has_registers<P>
struct InRegisters<P, Isotropic<float>, S> {
    using Type = ByFactor;
};
template <class P, class Kernel, class S>
    requires(has_registers<P> && requires { Kernel::smooth; })
struct InRegisters<P, Separable<float, Kernel>, S> {
    using Type = ByPolynomials<Kernel, S>;
};

// As `walk`, by several registers at a time.
template <class P, class G, class M, bool plain, class Directions>
NPGM_NOINLINE Squares walk_registers(P* x, G const* gradient, void* momentum_, std::size_t n, Step const& step,
                                     double factor) {
    constexpr bool has_momentum = !std::is_void_v<M>;
    constexpr bool is_separable = requires(Directions directions, Unrolled& y) { directions.replace_near(y); };
    using Stored = std::conditional_t<has_momentum, M, P>;
    auto* const momentum = static_cast<Stored*>(momentum_);
    Directions const directions(step, factor);
    Vector const gradient_factor = filled(float(step.gradient_factor));
    Vector const decay = filled(float(step.coupled_decay)), weight = filled(float(step.weight));
    Vector const shrink = filled(float(step.shrink)), minus_lr = filled(float(-step.lr));
    Vector const decays = filled(from_bits<float>(all_bits<float>(step.coupled_decay != 0)));
    Squares squares;
    [[maybe_unused]] Vector given = filled(0.0f), made = filled(0.0f);  // as in `walk`
    [[maybe_unused]] bool tracks = step.tracks;

    constexpr int groups = unrolled * lanes / width<P>, each = unrolled / groups;
    constexpr std::size_t size = unrolled * lanes;
    // Move the entries from i on, up to `stop` or to the first that `replace` refuses, and return where that is.
    auto const move = [&](std::size_t i, std::size_t stop, auto const& replace) NPGM_INLINE_LAMBDA {
        for (; i < stop; i += size) {
            Unrolled u;
            for (int group = 0; group < groups; ++group) {
                auto const gradients = load_registers<P>(gradient + i + group * width<P>);
                for (int k = 0; k < each; ++k) u[group * each + k] = gradients.of[k];
                if constexpr (!plain) {
                    auto const points = load_registers<P>(x + i + group * width<P>);
                    for (int k = 0; k < each; ++k) {
                        Vector& y = u[group * each + k];
                        y = times(gradient_factor, y);
                        y = madd(decay, masked(points.of[k], decays), y);
                    }
                }
            }
            [[maybe_unused]] Vector next_given = given;
            if constexpr (is_separable) {
                NPGM_OPAQUE(tracks);
                if (tracks)
                    for (Vector const& y : u) next_given = madd(y, y, next_given);
            }
            if (!replace(u)) break;
            if constexpr (is_separable)
                if (tracks) {
                    given = next_given;
                    for (Vector const& v : u) made = madd(v, v, made);
                }
            for (int group = 0; group < groups; ++group) {
                // read here, as there are not registers enough to keep it
                auto points = load_registers<P>(x + i + group * width<P>);
                Registers<P> means;
                if constexpr (has_momentum) means = load_registers<P>(momentum + i + group * width<P>);
                for (int k = 0; k < each; ++k) {
                    Vector &v = u[group * each + k], &point = points.of[k];
                    if constexpr (has_momentum) {
                        Vector& mean = means.of[k];
                        v = mean = madd(weight, minus(v, mean), mean);
                    }
                    if constexpr (!plain) point = times(shrink, point);
                    point = madd(minus_lr, v, point);
                }
                if constexpr (has_momentum) store_registers<P>(momentum + i + group * width<P>, means);
                store_registers<P>(x + i + group * width<P>, points);
            }
        }
        return i;
    };
    auto const any = [&](Unrolled& y) NPGM_INLINE_LAMBDA {
        directions.replace(y);
        return true;
    };
    std::size_t const whole = n - n % size;
    if constexpr (is_separable) {
        auto const near = [&](Unrolled& y) NPGM_INLINE_LAMBDA { return directions.replace_near(y); };
        for (std::size_t i = 0; i < whole; i += strip) {
            std::size_t const stop = whole - i < strip ? whole : i + strip;
            move(move(i, stop, near), stop, any);
            if (!tracks || (stop % long_strip != 0 && stop != whole)) continue;
            squares += {sum(given), sum(made)};
            given = made = filled(0.0f);
        }
    } else {
        move(0, whole, any);
    }
    if (whole == n) return squares;
    P points[size] = {};
    G gradients[size] = {};
    Stored means[size] = {};
    for (std::size_t k = 0; whole + k < n; ++k) {
        points[k] = x[whole + k];
        gradients[k] = gradient[whole + k];
        if constexpr (has_momentum) means[k] = momentum[whole + k];
    }
    squares += walk_registers<P, G, M, plain, Directions>(points, gradients, means, size, step, factor);
    for (std::size_t k = 0; whole + k < n; ++k) {
        x[whole + k] = points[k];
        if constexpr (has_momentum) momentum[whole + k] = means[k];
    }
    return squares;
}
#endif

template <class P, class G, class M, class Preconditioner>
Squares forward(P* x, G const* gradient, void* momentum, std::size_t n, Step const& step, double factor) {
    bool const plain = step.gradient_factor == 1.0 && step.coupled_decay == 0.0 && step.shrink == 1.0;
#if NPGM_REGISTERS
    using Result = std::conditional_t<std::is_same_v<M, float>, float, P>;  // the digits that are kept
    using Directions = typename InRegisters<P, Preconditioner, Result>::Type;
    if constexpr (!std::is_void_v<Directions>)
        if (Directions::takes(step))
            return (plain ? walk_registers<P, G, M, true, Directions> : walk_registers<P, G, M, false, Directions>)(
                x, gradient, momentum, n, step, factor);
#endif
    if constexpr (Preconditioner::is_separable)
        if (step.tracks)
            return for_strips<M, long_strip>(x, gradient, momentum, n, [&](auto... part) {
                return walk<P, G, M, false, Range::any, Preconditioner, true>(part..., step, factor);
            });
    if constexpr (!Preconditioner::has_ranges)
        return walk<P, G, M, false, Range::any, Preconditioner>(x, gradient, momentum, n, step, factor);
    else if (plain)
        return walk_by_ranges<P, G, M, true, Preconditioner>(x, gradient, momentum, n, step, factor);
    else
        return walk_by_ranges<P, G, M, false, Preconditioner>(x, gradient, momentum, n, step, factor);
}

template <class P, class M, class Preconditioner>
Squares update(void* x_, void const* gradient_, void* momentum_, std::size_t n, Step const& step, double factor) {
    auto* const x = static_cast<P*>(x_);
    auto const* const gradient = static_cast<P const*>(gradient_);
    if constexpr (!std::is_void_v<M>)
        if (step.before) {  // then the next momentum takes the place of the gradient
            // next to little arithmetic a second loop would take long
            if constexpr (Preconditioner::is_light && std::is_same_v<M, Working<P>>)
                if (!step.tracks)
                    return walk<P, P, M, false, Range::any, Preconditioner, false, true>(x, gradient, momentum_, n, step,
                                                                                         factor);
            Step second = step;
            second.gradient_factor = 1.0;
            second.coupled_decay = 0.0;
            using T = Working<P>;
            [[maybe_unused]] T buffer[strip];
            return for_strips<M>(x, gradient, momentum_, n, [&](P* x, P const* gradient, void* part, std::size_t n) {
                auto* const momentum = static_cast<M*>(part);
                T* means;
                if constexpr (std::is_same_v<M, T>)
                    means = momentum;
                else
                    means = buffer;
                average(x, gradient, momentum, means, n, step);
                return forward<P, T, void, Preconditioner>(x, means, nullptr, n, second, factor);
            });
        }
    return forward<P, P, M, Preconditioner>(x, gradient, momentum_, n, step, factor);
}

// The sums are taken in double precision and in a fixed order: by the place of an entry modulo `lanes`, then over the
// lanes. A sum of squares of floats neither overflows nor underflows there; doubles are scaled by their largest.
template <class P, class M, bool decays>
Moments measure(void const* x_, void const* gradient_, void const* momentum_, std::size_t n, Step const& step) {
    using T = Working<P>;
    constexpr std::size_t lanes = 32;
    auto const* const x = static_cast<P const*>(x_);
    auto const* const gradient = static_cast<P const*>(gradient_);
    auto const* const momentum = static_cast<std::conditional_t<std::is_void_v<M>, P, M> const*>(momentum_);
    T const gradient_factor = T(step.gradient_factor), decay = T(step.coupled_decay), weight = T(step.weight);
    auto const y = [&](std::size_t i) NPGM_INLINE_LAMBDA {
        T value = gradient_factor * load(gradient[i]);
        if constexpr (decays) value = madd(decay, load(x[i]), value);
        if constexpr (!std::is_void_v<M>) {
            T const mean = T(load(momentum[i]));
            value = madd(weight, value - mean, mean);
        }
        return value;
    };

    // floats as bits, see range_of; few instruction sets have a maximum of longer integers
    using Magnitude = std::conditional_t<sizeof(T) == 4, std::int32_t, T>;
    Magnitude largest[lanes] = {};
    double squares[lanes] = {}, unit = 1.0, inverse = 1.0;
    auto const take_largest = [&](std::size_t lane, T value) NPGM_INLINE_LAMBDA {
        auto const a = __builtin_bit_cast(Magnitude, absolute(value));
        largest[lane] = a > largest[lane] ? a : largest[lane];
    };
    auto const take_square = [&](std::size_t lane, T value) NPGM_INLINE_LAMBDA {
        double const scaled = double(value) * inverse;
        squares[lane] = madd(scaled, scaled, squares[lane]);
    };
    auto const each = [&](auto take) NPGM_INLINE_LAMBDA {
        std::size_t i = 0;
        for (; i + lanes <= n; i += lanes) {
#pragma omp simd
            for (std::size_t lane = 0; lane < lanes; ++lane) take(lane, y(i + lane));
        }
        for (std::size_t lane = 0; i + lane < n; ++lane) take(lane, y(i + lane));
    };
    auto const maximum = [&] {
        Magnitude result = 0;
        for (Magnitude value : largest) result = value > result ? value : result;
        return __builtin_bit_cast(T, result);
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
        each([&](std::size_t lane, T value) NPGM_INLINE_LAMBDA {
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
Update* find(UpdateKind kind) {
    using T = Working<P>;
#define NPGM_ENTRY(name) update<P, M, Separable<T, name>>,
    static constexpr Update* separable[] = {NPGM_KERNELS(NPGM_ENTRY)};
#undef NPGM_ENTRY
    return kind == UpdateKind::isotropic ? update<P, M, Isotropic<T>> : separable[static_cast<int>(kind)];
}

template <class P>
Update* find(UpdateKind kind, Dtype own, Dtype momentum) {
    if (momentum == Dtype::none) return find<P, void>(kind);
    if (momentum == own) return find<P, P>(kind);
    if (momentum == Dtype::float32 && sizeof(P) == 2) return find<P, float>(kind);
    return nullptr;
}

Update* find_update(UpdateKind kind, Dtype parameter, Dtype momentum) {
    switch (parameter) {
        case Dtype::float32: return find<float>(kind, parameter, momentum);
        case Dtype::float64: return find<double>(kind, parameter, momentum);
        case Dtype::bfloat16: return find<Bfloat16>(kind, parameter, momentum);
        case Dtype::float16: return find<Float16>(kind, parameter, momentum);
        case Dtype::none: break;
    }
    return nullptr;
}

template <bool decays, class P>
Measure* find_measure(Dtype own, Dtype momentum) {
    if (momentum == Dtype::none) return measure<P, void, decays>;
    if (momentum == own) return measure<P, P, decays>;
    if (momentum == Dtype::float32 && sizeof(P) == 2) return measure<P, float, decays>;
    return nullptr;
}

template <bool decays>
Measure* find_measure(Dtype parameter, Dtype momentum) {
    switch (parameter) {
        case Dtype::float32: return find_measure<decays, float>(parameter, momentum);
        case Dtype::float64: return find_measure<decays, double>(parameter, momentum);
        case Dtype::bfloat16: return find_measure<decays, Bfloat16>(parameter, momentum);
        case Dtype::float16: return find_measure<decays, Float16>(parameter, momentum);
        case Dtype::none: break;
    }
    return nullptr;
}

template <class Each>
constexpr Kernel entry() {
    if constexpr (requires { Each::parameters; })
        return {Each::key, Each::parameters};
    else
        return {Each::key, 0};
}

#define NPGM_ENTRY(name) entry<name>(),
constexpr Kernel kernels[] = {NPGM_KERNELS(NPGM_ENTRY)};
#undef NPGM_ENTRY

}  // namespace

#define NPGM_TEXT_OF(name) #name
#define NPGM_TEXT(name) NPGM_TEXT_OF(name)
#define NPGM_TILES_OF(name) name##_tiles
#define NPGM_TILES(name) NPGM_TILES_OF(name)
Instructions const NPGM_INSTRUCTIONS{NPGM_TEXT(NPGM_INSTRUCTIONS), kernels,
                                     sizeof(kernels) / sizeof(*kernels), find_update,
                                     find_measure<false>,               find_measure<true>,
                                     &NPGM_TILES(NPGM_INSTRUCTIONS)};

}  // namespace npgm
