// For AVX2 and AVX-512: a preconditioner as a polynomial on each of 16 or 32 intervals, whose coefficients lie in registers.
// A permutation fetches a coefficient for all entries of a register, so that neither branch of a formula is computed in
// vain, nor a root, a quotient or an exponential. Written with intrinsics, as no compiler finds that instruction.
#pragma once

#include "maps.hpp"
#include "registers.hpp"

namespace npgm {
namespace {

// The k-th interval starts where a + offset has the k-th pair of exponent and leading digits. The degree is that for results
// of which the digits of S are kept.
template <class S>
class PiecewisePolynomial {
    static constexpr bool short_numbers = sizeof(S) == 2;
    static constexpr int octaves = 8, each = lanes / 4, count = octaves * each, digits_left = each == 4 ? 21 : 22;
    static constexpr int degree = each == 2 ? 7 : std::is_same_v<S, float> ? 5 : std::is_same_v<S, Float16> ? 4 : 3;
    static constexpr float offset = 0.25f;
    struct Table;
    struct NearTable;

public:
    static constexpr float near = 3.75f, end = 63.75f;  // of the first half of the octaves, and of all

    // By interpolation at Chebyshev nodes, in double precision; on the first interval of h*'(a)/a, where the relative
    // error is to be small next to 0.
    template <class Kernel>
    explicit PiecewisePolynomial(Kernel const& kernel) {
        for (int k = 0; k < count; ++k) {
            double const octave = double(offset) * double(1 << k / each), width = octave / each;
            double const start = octave + (k % each) * width - double(offset), origin = short_numbers ? 0.0 : start;
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
    NPGM_INLINE void operator()(Unrolled const& a, Unrolled& u) const {
        auto const read = [](float const* values) NPGM_INLINE_LAMBDA { return Table(values); };
        evaluate(read, coefficients, starts, a, u);
    }

    // The same for 0 <= a < near, for which one register holds all that a coefficient may be, and stays.
    class Near {
    public:
        NPGM_INLINE explicit Near(PiecewisePolynomial const& all) : start(Table(all.starts)) {
            for (int power = 0; power <= degree; ++power) coefficient[power] = NearTable(Table(all.coefficients[power]));
        }
        NPGM_INLINE void operator()(Unrolled const& a, Unrolled& u) const {
            auto const given = [](NearTable table) NPGM_INLINE_LAMBDA { return table; };
            evaluate(given, coefficient, start, a, u);
        }

    private:
        NearTable coefficient[degree + 1], start;
    };

private:
    struct Table {
        NPGM_INLINE explicit Table(float const* values) : low(read(values)), high(read(values + lanes)) {}
        NPGM_INLINE Vector operator()(Integers places) const { return look_up(low, high, places); }
        Vector low, high;
    };
    struct NearTable {
        NearTable() = default;
        // the places of the first octaves are the last of the second register and the first of the first one
        NPGM_INLINE explicit NearTable(Table const& all) : values(joined(all.low, all.high)) {}
        NPGM_INLINE Vector operator()(Integers places) const { return look_up(values, places); }
        Vector values;
    };

    template <class TableOf, class Coefficients, class Starts>
    NPGM_INLINE static void evaluate(TableOf const& table_of, Coefficients const& coefficients, Starts const& starts,
                                     Unrolled const& a, Unrolled& u) {
        Unrolled z;
        Integers place[unrolled];
        for (int i = 0; i < unrolled; ++i) place[i] = shifted_down(to_bits(plus(a[i], filled(offset))), digits_left);
        // Polynomials of a itself lose four digits. The difference is exact, as the first interval starts at 0, and
        // others at half their end or later.
        auto const start = table_of(starts);
        for (int i = 0; i < unrolled; ++i) z[i] = short_numbers ? a[i] : minus(a[i], start(place[i]));
        auto const leading = table_of(coefficients[degree]);
        for (int i = 0; i < unrolled; ++i) u[i] = leading(place[i]);
        for (int power = degree - 1; power >= 0; --power) {
            auto const coefficient = table_of(coefficients[power]);
            for (int i = 0; i < unrolled; ++i) u[i] = madd(u[i], z[i], coefficient(place[i]));
        }
    }

    alignas(64) float coefficients[degree + 1][count], starts[count];
};

template <class Kernel, class S>
PiecewisePolynomial<S> const& piecewise_of() {
    static PiecewisePolynomial<S> const pieces{Kernel()};
    return pieces;
}

// What `walk_registers` makes of y, by those polynomials up to their end, and as the kernel says beyond.
template <class Kernel, class S>
class ByPolynomials {
public:
    // λ whose inverse is a number of the dtype
    static bool takes(Step const& step) { return step.scale >= 0x1p-100 && step.scale <= 0x1p100; }

    NPGM_INLINE ByPolynomials(Step const& step, double)
        : own(step, 0.0),
          inverse_scale(filled(float(1.0 / step.scale))),
          all(piecewise_of<Kernel, S>()),
          near(all) {}

    // Whether all entries are near, as only then they are replaced.
    NPGM_INLINE bool replace_near(Unrolled& y) const {
        Unrolled a, u;
        if (!all_below(ratios(y, inverse_scale, a), PiecewisePolynomial<S>::near)) return false;
        near(a, u);
        for (int i = 0; i < unrolled; ++i) y[i] = with_sign(u[i], y[i]);
        return true;
    }

    NPGM_INLINE void replace(Unrolled& y) const {
        Unrolled a, u;
        if (all_below(ratios(y, inverse_scale, a), PiecewisePolynomial<S>::end)) [[likely]] {
            all(a, u);
            for (int i = 0; i < unrolled; ++i) y[i] = with_sign(u[i], y[i]);
        } else {
            Unrolled far;  // a copy, as what others are given lies in memory
            for (int i = 0; i < unrolled; ++i) far[i] = y[i];
            replace_far(own, all, inverse_scale, far);
            for (int i = 0; i < unrolled; ++i) y[i] = far[i];
        }
    }

private:
    // a = |y|/λ; the largest of each place, as bits, of which those of NaN and infinity are larger than those of numbers
    NPGM_INLINE static Integers ratios(Unrolled const& y, Vector inverse_scale, Unrolled& a) {
        Integers largest;
        for (int i = 0; i < unrolled; ++i) {
            a[i] = times(absolute(y[i]), inverse_scale);
            largest = i == 0 ? to_bits(a[i]) : larger(largest, to_bits(a[i]));
        }
        return largest;
    }

    // Not inlined, as it would leave no registers to others.
    NPGM_NOINLINE static void replace_far(Separable<float, Kernel> own, PiecewisePolynomial<S> const& all, Vector inverse_scale,
                                          Unrolled& y) {
        Unrolled a, u;
        Integers const largest = ratios(y, inverse_scale, a);
        alignas(64) float values[unrolled * lanes];
        for (int i = 0; i < unrolled; ++i) write(values + i * lanes, y[i]);
        auto const by_formula = [&]<Range range>() NPGM_INLINE_LAMBDA {
#pragma omp simd
            for (int i = 0; i < unrolled * lanes; ++i) values[i] = own.template direction<range>(values[i]);
        };
        bool bounded = false;
        if constexpr (requires { Kernel::moderate; }) bounded = all_below(largest, Kernel::moderate);
        if (bounded)
            by_formula.template operator()<Range::moderate>();
        else
            by_formula.template operator()<Range::any>();

        bool below = false;
        for (int i = 0; i < unrolled; ++i) below = below || is_any_below(a[i], PiecewisePolynomial<S>::end);
        if (below) all(a, u);
        for (int i = 0; i < unrolled; ++i) {
            Vector const formula = read(values + i * lanes);
            y[i] = below ? chosen(a[i], PiecewisePolynomial<S>::end, formula, with_sign(u[i], y[i])) : formula;
        }
    }

    Separable<float, Kernel> own;
    Vector inverse_scale;
    PiecewisePolynomial<S> const& all;
    typename PiecewisePolynomial<S>::Near near;
};

}  // namespace
}  // namespace npgm
