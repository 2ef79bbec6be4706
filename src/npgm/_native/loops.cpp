// Compiled several times, with the flags of one instruction set and its name in NPGM_INSTRUCTIONS. Nothing but that
// name has linkage: a function shared with other files could be taken from here and meet a machine that lacks the
// instructions. Hence no functions of the standard library.
#include "loops.hpp"

#include <type_traits>

#include "kernels.hpp"
#if defined(__AVX512F__)
#include "pieces.hpp"
#endif

namespace npgm {
namespace {

template <class P>
using Working = decltype(load(P{}));

// Where all |y|/λ of a strip lie.
enum class Range { any, moderate, near };

template <class T>
class Isotropic {
public:
    static constexpr bool has_ranges = false, has_pieces = false;

    Isotropic(Step const&, double factor) : factor(narrowed<T>(factor)) {}
    template <Range>
    NPGM_INLINE T direction(T y) const {
        return factor * y;
    }

private:
    T factor;
};

template <class T, class Kernel>
class Separable {
public:
    using Own = Kernel;
    static constexpr bool has_ranges = std::is_same_v<T, float> && requires { Kernel::near; };
    static constexpr bool has_pieces = std::is_same_v<T, float> && requires { Kernel::smooth; };

    Separable(Step const& step, double) : kernel(kernel_of(step)) {
        constexpr double extreme = sizeof(T) == 4 ? 0x1p100 : 0x1p1000, part = sizeof(T) == 4 ? 0x1p60 : 0x1p600;
        constexpr double least = double(std::numeric_limits<T>::denorm_min());
        double const scale = step.scale < least ? least : double(narrowed<T>(step.scale));
        // the inverse of an extreme λ is no number of the dtype, but the product of two
        double const power = scale < 1.0 / extreme ? part : scale > extreme ? 1.0 / part : 1.0;
        first = T(1.0 / (scale * power));
        second = T(power);
    }
    template <Range range>
    NPGM_INLINE T direction(T y) const {
        if constexpr (range == Range::near)
            return with_sign(kernel.precondition_near(absolute(y) * first), y);
        else if constexpr (range == Range::moderate && requires { Kernel::moderate; })
            return with_sign(kernel.precondition_moderate(absolute(y) * first), y);
        else
            return finish(kernel.precondition(ratio(y)), y);
    }
    // Of the entry that is the largest one, NaN being larger than all others.
    Range range(T y) const {
        T const largest = ratio(y);
        if (second != T(1)) return Range::any;
        if (largest < Kernel::near) return Range::near;
        if constexpr (requires { Kernel::moderate; })
            if (largest < Kernel::moderate) return Range::moderate;
        return Range::any;
    }

private:
    // |y|/λ, with quotients beyond the largest finite number cut off there
    NPGM_INLINE T ratio(T y) const {
        T const quotient = absolute(y) * second * first;
        return quotient < largest_finite<T> ? quotient : largest_finite<T>;
    }
    static Kernel kernel_of(Step const& step) {
        if constexpr (std::is_constructible_v<Kernel, double const*>)
            return Kernel(step.parameters);
        else
            return {};
    }
    // the preconditioner of |y|/λ as that of y, by the addition of 0, or of infinity or NaN where y is
    NPGM_INLINE static T finish(T u, T y) {
        T const a = absolute(y), cut_off = a < largest_finite<T> ? a : largest_finite<T>;
        if constexpr (Kernel::at_infinity == AtInfinity::infinite) return with_sign(u + (a - cut_off), y);
        if constexpr (Kernel::at_infinity == AtInfinity::undefined) return with_sign(u + T(0) * (a - cut_off), y);
        return with_sign(y == y ? u : y, y);
    }

    Kernel kernel;
    T first, second;
};

// P is the dtype of the parameter and its gradient, M that of the momentum, void without. `range` is that of all
// arguments of the preconditioner; a `plain` step neither decays nor changes the gradients. Every number that the loop
// needs is a local one: what is a member of something in memory would be read again in each turn.
template <class P, class M, bool plain, Range range, class Preconditioner, bool before = false>
NPGM_NOINLINE void walk(P* x, P const* gradient, void* momentum_, std::size_t n, Step const& step, double factor) {
    using T = Working<P>;
    constexpr bool has_momentum = !std::is_void_v<M>;
    using Stored = std::conditional_t<has_momentum, M, P>;
    auto* const momentum = static_cast<Stored*>(momentum_);
    Preconditioner const preconditioner(step, factor);
    T const gradient_factor = T(step.gradient_factor), decay = T(step.coupled_decay);
    T const weight = T(step.weight), shrink = T(step.shrink), lr = T(step.lr);
    bool const decays = step.coupled_decay != 0;
#pragma omp simd
    for (std::size_t i = 0; i < n; ++i) {
        T const point = load(x[i]);
        T const raw = load(gradient[i]);
        T const y = plain ? raw : madd(decay, decays ? point : T(0), gradient_factor * raw);
        T u = y;
        if constexpr (!before) u = preconditioner.template direction<range>(u);
        if constexpr (has_momentum) {
            T const mean = load(momentum[i]);
            u = madd(weight, u - mean, mean);
            momentum[i] = store<Stored>(u);
        }
        if constexpr (before) u = preconditioner.template direction<range>(u);
        x[i] = store<P>(madd(-lr, u, plain ? point : shrink * point));
    }
}

template <class P, bool plain, class Preconditioner>
NPGM_NOINLINE Range range_of(P const* x, P const* gradient, std::size_t n, Step const& step) {
    using T = Working<P>;
    T const gradient_factor = T(step.gradient_factor), decay = T(step.coupled_decay);
    bool const decays = step.coupled_decay != 0;
    // numbers that are not negative are ordered as their bits are, of which a maximum is vectorised everywhere
    std::int32_t largest = 0;
    for (std::size_t i = 0; i < n; ++i) {
        T const raw = load(gradient[i]);
        T const y = plain ? raw : madd(decay, decays ? load(x[i]) : T(0), gradient_factor * raw);
        auto const bits = static_cast<std::int32_t>(to_bits(absolute(y)));
        largest = bits > largest ? bits : largest;
    }
    return Preconditioner(step, 0.0).range(from_bits<T>(static_cast<Bits<T>>(largest)));
}

template <class P, class M, bool plain, class Preconditioner>
void walk_by_ranges(P* x, P const* gradient, void* momentum, std::size_t n, Step const& step, double factor) {
    constexpr std::size_t strip = 512;  // stays in the first cache for the second reading
    constexpr std::size_t bytes = sizeof(std::conditional_t<std::is_void_v<M>, P, M>);
    for (std::size_t i = 0; i < n; i += strip) {
        std::size_t const size = n - i < strip ? n - i : strip;
        void* const part = momentum ? static_cast<char*>(momentum) + i * bytes : nullptr;
        switch (range_of<P, plain, Preconditioner>(x + i, gradient + i, size, step)) {
            case Range::near:
                walk<P, M, plain, Range::near, Preconditioner>(x + i, gradient + i, part, size, step, factor);
                break;
            case Range::moderate:
                walk<P, M, plain, Range::moderate, Preconditioner>(x + i, gradient + i, part, size, step, factor);
                break;
            case Range::any:
                walk<P, M, false, Range::any, Preconditioner>(x + i, gradient + i, part, size, step, factor);
                break;
        }
    }
}

#if defined(__AVX512F__)
// As `walk`, by the polynomials of pieces.hpp up to their end, and as the kernel says beyond.
template <class P, class M, bool plain, class Kernel>
NPGM_NOINLINE void walk_pieces(P* x, P const* gradient, void* momentum_, std::size_t n, Step const& step) {
    constexpr bool has_momentum = !std::is_void_v<M>;
    using Stored = std::conditional_t<has_momentum, M, P>;
    auto* const momentum = static_cast<Stored*>(momentum_);
    using Result = std::conditional_t<std::is_same_v<M, float>, float, P>;  // the digits that are kept
    Pieces<Result> const pieces = pieces_of<Kernel, Result>();
    Separable<float, Kernel> const preconditioner(step, 0.0);
    __m512 const inverse_scale = _mm512_set1_ps(float(1.0 / step.scale));
    __m512 const gradient_factor = _mm512_set1_ps(float(step.gradient_factor));
    __m512 const decay = _mm512_set1_ps(float(step.coupled_decay)), weight = _mm512_set1_ps(float(step.weight));
    __m512 const shrink = _mm512_set1_ps(float(step.shrink)), lr = _mm512_set1_ps(float(step.lr));
    bool const decays = step.coupled_decay != 0;
    __m512 const sign = _mm512_set1_ps(-0.0f), end = _mm512_set1_ps(pieces.end);

    // not inlined, as four copies would leave no registers for what is done with each entry
    auto const far = [&](__m512 y) NPGM_NOINLINE_LAMBDA {
        alignas(64) float values[16];
        _mm512_store_ps(values, y);
#pragma omp simd
        for (int i = 0; i < 16; ++i) values[i] = preconditioner.template direction<Range::any>(values[i]);
        return _mm512_load_ps(values);
    };
    constexpr int count = 4, groups = count / (width<P> / 16), together = count * 16;  // registers, and entries of them
    auto const directions = [&](__m512 (&y)[count]) NPGM_INLINE_LAMBDA {
        __m512 a[count], u[count];
        __mmask16 beyond[count];
        int any = 0;
        for (int k = 0; k < count; ++k) {
            a[k] = _mm512_mul_ps(_mm512_andnot_ps(sign, y[k]), inverse_scale);
            beyond[k] = _mm512_cmp_ps_mask(a[k], end, _CMP_NLT_UQ);
            any |= beyond[k];
        }
        pieces(a, u);
        for (int k = 0; k < count; ++k) u[k] = with_sign(u[k], y[k]);
        if (any) [[unlikely]] {
            for (int k = 0; k < count; ++k)
                if (beyond[k]) u[k] = _mm512_mask_mov_ps(u[k], beyond[k], far(y[k]));
        }
        for (int k = 0; k < count; ++k) y[k] = u[k];
    };
    auto const move = [&](P* x, P const* gradient, Stored* momentum) NPGM_INLINE_LAMBDA {
        constexpr int each = count / groups;
        Registers<P> points[groups], means[groups];
        __m512 u[count];
        for (int group = 0; group < groups; ++group) {
            points[group] = load_registers<P>(x + group * width<P>);
            auto const gradients = load_registers<P>(gradient + group * width<P>);
            if constexpr (has_momentum) means[group] = load_registers<P>(momentum + group * width<P>);
            for (int i = 0; i < each; ++i) {
                __m512 &y = u[group * each + i], &point = points[group].of[i];
                y = gradients.of[i];
                if constexpr (!plain) {
                    y = _mm512_mul_ps(gradient_factor, y);
                    y = _mm512_fmadd_ps(decay, decays ? point : _mm512_setzero_ps(), y);
                    point = _mm512_mul_ps(shrink, point);
                }
            }
        }
        directions(u);
        for (int group = 0; group < groups; ++group) {
            for (int i = 0; i < each; ++i) {
                __m512 &v = u[group * each + i], &point = points[group].of[i];
                if constexpr (has_momentum) {
                    __m512& mean = means[group].of[i];
                    v = mean = _mm512_fmadd_ps(weight, _mm512_sub_ps(v, mean), mean);
                }
                point = _mm512_fnmadd_ps(lr, v, point);
            }
            if constexpr (has_momentum) store_registers<P>(momentum + group * width<P>, means[group]);
            store_registers<P>(x + group * width<P>, points[group]);
        }
    };
    std::size_t i = 0;
    for (; i + together <= n; i += together) move(x + i, gradient + i, has_momentum ? momentum + i : nullptr);
    if (i == n) return;
    P points[together] = {}, gradients[together] = {};
    Stored means[together] = {};
    for (std::size_t k = 0; i + k < n; ++k) {
        points[k] = x[i + k];
        gradients[k] = gradient[i + k];
        if constexpr (has_momentum) means[k] = momentum[i + k];
    }
    move(points, gradients, means);
    for (std::size_t k = 0; i + k < n; ++k) {
        x[i + k] = points[k];
        if constexpr (has_momentum) momentum[i + k] = means[k];
    }
}
#endif

template <class P, class M, class Preconditioner>
void update(void* x_, void const* gradient_, void* momentum, std::size_t n, Step const& step, double factor) {
    auto* const x = static_cast<P*>(x_);
    auto const* const gradient = static_cast<P const*>(gradient_);
    if constexpr (!std::is_void_v<M>)
        if (step.before)
            return walk<P, M, false, Range::any, Preconditioner, true>(x, gradient, momentum, n, step, factor);
    bool const plain = step.gradient_factor == 1.0 && step.coupled_decay == 0.0 && step.shrink == 1.0;
#if defined(__AVX512F__)
    if constexpr (Preconditioner::has_pieces) {
        // λ whose inverse is a number of the dtype
        if (step.scale >= 0x1p-100 && step.scale <= 0x1p100) {
            using Kernel = typename Preconditioner::Own;
            if (plain)
                walk_pieces<P, M, true, Kernel>(x, gradient, momentum, n, step);
            else
                walk_pieces<P, M, false, Kernel>(x, gradient, momentum, n, step);
            return;
        }
    }
#endif
    if constexpr (!Preconditioner::has_ranges)
        walk<P, M, false, Range::any, Preconditioner>(x, gradient, momentum, n, step, factor);
    else if (plain)
        walk_by_ranges<P, M, true, Preconditioner>(x, gradient, momentum, n, step, factor);
    else
        walk_by_ranges<P, M, false, Preconditioner>(x, gradient, momentum, n, step, factor);
}

// The sums are taken in double precision and in a fixed order: by the place of an entry modulo `lanes`, then over the
// lanes. A sum of squares of floats neither overflows nor underflows there; doubles are scaled by their largest.
template <class P, class M, bool decays>
Moments measure(void const* x_, void const* gradient_, void const* momentum_, std::size_t n, Step const& step) {
    using T = Working<P>;
    constexpr std::size_t lanes = 32, ahead = 2048;
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
            // the processor's own prefetching ends at each page
            std::size_t const next = i + ahead < n ? i + ahead : i;
            for (std::size_t k = 0; k < lanes; k += 64 / sizeof(P)) prefetch(gradient + next + k);
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
Update* find(Map map) {
    using T = Working<P>;
#define NPGM_ENTRY(name) update<P, M, Separable<T, name>>,
    static constexpr Update* separable[] = {NPGM_KERNELS(NPGM_ENTRY)};
#undef NPGM_ENTRY
    return map == Map::isotropic ? update<P, M, Isotropic<T>> : separable[static_cast<int>(map)];
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
Instructions const NPGM_INSTRUCTIONS{NPGM_TEXT(NPGM_INSTRUCTIONS), kernels,
                                     sizeof(kernels) / sizeof(*kernels), find_update,
                                     find_measure<false>,               find_measure<true>};

}  // namespace npgm
