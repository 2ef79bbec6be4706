// For AVX-512: a preconditioner as a polynomial on each of 32 intervals, whose coefficients lie in registers. A permutation
// fetches a coefficient for 16 entries, so that neither branch of a formula is computed in vain, nor a root, a quotient
// or an exponential. Written with intrinsics, as no compiler finds that instruction.
#pragma once

#include "maps.hpp"
#include "registers.hpp"

namespace npgm {
namespace {

// The k-th interval starts where a + offset has the k-th pair of exponent and two leading digits. The degree is that
// for results of which the digits of S are kept.
template <class S>
class Pieces {
    static constexpr bool short_numbers = sizeof(S) == 2;
    static constexpr int count = 32, digits_left = 21;
    static constexpr int degree = std::is_same_v<S, float> ? 5 : std::is_same_v<S, Float16> ? 4 : 3;
    static constexpr float offset = 0.25f;
    static constexpr __mmask16 first_half = 0x000f;  // of the places of `Near`, those of the first register
    struct Table;
    struct HalfTable;

public:
    static constexpr float near = 3.75f, end = 63.75f;

    // By interpolation at Chebyshev nodes, in double precision; on the first interval of h*'(a)/a, where the relative
    // error is to be small next to 0.
    template <class Kernel>
    explicit Pieces(Kernel const& kernel) {
        for (int k = 0; k < count; ++k) {
            double const octave = double(offset) * double(1 << k / 4), width = octave / 4;
            double const start = octave + (k % 4) * width - double(offset), origin = short_numbers ? 0.0 : start;
            int const divided = k == 0 ? 1 : 0, nodes = degree + 1 - divided;
            double at[degree + 1], difference[degree + 1], p[degree + 1] = {};
            for (int i = 0; i < nodes; ++i) {
                double const root = ::sin((2 * i + 1) * 0.78539816339744831 / nodes);
                double const a = start + width * root * root, u = kernel.precondition(a);
                at[i] = a - origin;
                difference[i] = divided ? u / a : u;
            }
            for (int order = 1; order < nodes; ++order)
                for (int i = nodes - 1; i >= order; --i)
                    difference[i] = (difference[i] - difference[i - 1]) / (at[i] - at[i - order]);
            // Newton's form, multiplied out
            for (int i = nodes - 1; i >= 0; --i) {
                for (int power = degree; power > 0; --power) p[power] = p[power - 1] - at[i] * p[power];
                p[0] = difference[i] - at[i] * p[0];
            }
            std::uint32_t const slot = (std::uint32_t(k) + (to_bits(offset) >> digits_left)) % count;
            for (int power = 0; power <= degree; ++power)
                coefficients[power][slot] = power < divided ? 0.0f : float(p[power - divided]);
            starts[slot] = float(start);
        }
    }

    // h*'(a) for 0 <= a < end, of several registers, for all of which a coefficient is read once.
    NPGM_INLINE void operator()(Together const& a, Together& u) const {
        auto const read = [](float const* values) NPGM_INLINE_LAMBDA { return Table(values); };
        evaluate(read, coefficients, starts, a, u);
    }

    // The same for 0 <= a < near, which are half of the intervals: a coefficient is one register, and stays there.
    class Near {
    public:
        NPGM_INLINE explicit Near(Pieces const& all) : start(half(all.starts)) {
            for (int power = 0; power <= degree; ++power) coefficient[power] = half(all.coefficients[power]);
        }
        NPGM_INLINE void operator()(Together const& a, Together& u) const {
            auto const given = [](HalfTable table) NPGM_INLINE_LAMBDA { return table; };
            evaluate(given, coefficient, start, a, u);
        }

    private:
        NPGM_INLINE static HalfTable half(float const* values) {
            return {_mm512_mask_blend_ps(first_half, _mm512_load_ps(values + 16), _mm512_load_ps(values))};
        }
        HalfTable coefficient[degree + 1], start;
    };

private:
    // by the last five digits of a place, and by its last four
    struct Table {
        NPGM_INLINE explicit Table(float const* values)
            : low(_mm512_load_ps(values)), high(_mm512_load_ps(values + 16)) {}
        NPGM_INLINE __m512 operator()(__m512i place) const { return _mm512_permutex2var_ps(low, place, high); }
        __m512 low, high;
    };
    struct HalfTable {
        NPGM_INLINE __m512 operator()(__m512i place) const { return _mm512_permutexvar_ps(place, values); }
        __m512 values;
    };

    template <class TableOf, class Coefficients, class Starts>
    NPGM_INLINE static void evaluate(TableOf const& table_of, Coefficients const& coefficients, Starts const& starts,
                                     Together const& a, Together& u) {
        Together z;
        __m512i place[together];
        for (int i = 0; i < together; ++i) {
            __m512 const shifted = _mm512_add_ps(a[i], _mm512_set1_ps(offset));
            place[i] = _mm512_srli_epi32(_mm512_castps_si512(shifted), digits_left);
        }
        // Polynomials of a itself lose four digits. The difference is exact, as the first interval starts at 0, and
        // others at half their end or later.
        auto const start = table_of(starts);
        for (int i = 0; i < together; ++i) z[i] = short_numbers ? a[i] : _mm512_sub_ps(a[i], start(place[i]));
        auto const leading = table_of(coefficients[degree]);
        for (int i = 0; i < together; ++i) u[i] = leading(place[i]);
        for (int power = degree - 1; power >= 0; --power) {
            auto const coefficient = table_of(coefficients[power]);
            for (int i = 0; i < together; ++i) u[i] = _mm512_fmadd_ps(u[i], z[i], coefficient(place[i]));
        }
    }

    alignas(64) float coefficients[degree + 1][count], starts[count];
};

template <class Kernel, class S>
Pieces<S> const& pieces_of() {
    static Pieces<S> const pieces{Kernel()};
    return pieces;
}

// What `walk_registers` makes of y, by those polynomials up to their end, and as the kernel says beyond.
template <class Kernel, class S>
class ByPieces {
public:
    // λ whose inverse is a number of the dtype
    static bool takes(Step const& step) { return step.scale >= 0x1p-100 && step.scale <= 0x1p100; }

    NPGM_INLINE ByPieces(Step const& step, double)
        : own(step, 0.0),
          inverse_scale(_mm512_set1_ps(float(1.0 / step.scale))),
          all(pieces_of<Kernel, S>()),
          near(all) {}

    // Whether all entries are near, as only then they are replaced. As bits NaN and infinity are larger than numbers.
    NPGM_INLINE bool replace_near(Together& y) const {
        Together a, u;
        __m512i largest = _mm512_setzero_si512();
        for (int i = 0; i < together; ++i) {
            a[i] = ratio(y[i]);
            largest = _mm512_max_epi32(largest, _mm512_castps_si512(a[i]));
        }
        __m512i const end = _mm512_set1_epi32(static_cast<int>(to_bits(all.near)));
        if (_mm512_cmp_epi32_mask(largest, end, _MM_CMPINT_NLT)) return false;
        near(a, u);
        for (int i = 0; i < together; ++i) y[i] = with_sign(u[i], y[i]);
        return true;
    }

    NPGM_INLINE void replace(Together& y) const {
        Together a, u;
        __mmask16 beyond[together];
        int any = 0;
        for (int i = 0; i < together; ++i) {
            a[i] = ratio(y[i]);
            beyond[i] = _mm512_cmp_ps_mask(a[i], _mm512_set1_ps(all.end), _CMP_NLT_UQ);
            any |= beyond[i];
        }
        all(a, u);
        for (int i = 0; i < together; ++i) u[i] = with_sign(u[i], y[i]);
        if (any) [[unlikely]] {
            for (int i = 0; i < together; ++i)
                if (beyond[i]) u[i] = _mm512_mask_mov_ps(u[i], beyond[i], formula(own, y[i]));
        }
        for (int i = 0; i < together; ++i) y[i] = u[i];
    }

private:
    NPGM_INLINE __m512 ratio(__m512 y) const { return _mm512_mul_ps(_mm512_abs_ps(y), inverse_scale); }

    // not inlined, as several copies would leave no registers for what is done with each entry
    NPGM_NOINLINE static __m512 formula(Separable<float, Kernel> own, __m512 y) {
        alignas(64) float values[16];
        _mm512_store_ps(values, y);
#pragma omp simd
        for (int i = 0; i < 16; ++i) values[i] = own.template direction<Range::any>(values[i]);
        return _mm512_load_ps(values);
    }

    Separable<float, Kernel> own;
    __m512 inverse_scale;
    Pieces<S> const& all;
    typename Pieces<S>::Near near;
};

}  // namespace
}  // namespace npgm
