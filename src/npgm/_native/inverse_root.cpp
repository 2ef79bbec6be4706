// Halley's iteration for the polar factor of [Y, I], of which the first block is (I + Y Yᵀ)^-½ Y. A step multiplies by a
// rational function P of M = (I + Y Yᵀ)/‖·‖ and turns M into P M P; the last one is a polynomial, where M is close to I. The
// eigenvalues of the first M lie between 1/‖·‖ and 1, so the number of steps that suffices is known. The first step is in
// doubles, since squares take twice the digits and P is as large as M is small. It leaves singular values that are at most
// twelve times apart.
#include "inverse_root.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

namespace npgm {
namespace {

std::size_t padded(std::size_t n, std::size_t width) { return (n + width - 1) / width * width; }

// In doubles, for a matrix of tiles or for panels.
std::size_t room(std::size_t rows, std::size_t columns) { return (rows + 16) * (columns + 64); }

// One piece of memory for all arrays: of many large ones the system would take the pages back after each step.
class Arena {
public:
    explicit Arena(std::size_t doubles) : entries(new double[doubles]), next(entries.get()) {}

    double* take(std::size_t doubles) { return std::exchange(next, next + doubles); }

private:
    std::unique_ptr<double[]> entries;
    double* next;
};

// Rows one after another, with room for whole tiles, and for a line more, lest all rows begin at the same place of a cache.
template <class T>
class Matrix {
public:
    Matrix(Tile<T> const& tile, std::size_t rows, std::size_t columns, double* memory)
        : tile(&tile),
          rows(rows),
          columns(columns),
          stride(padded(columns, tile.columns) + 64 / sizeof(T)),
          entries(reinterpret_cast<T*>(memory)) {
        std::fill_n(entries, padded(rows, tile.rows) * stride, T(0));
    }

    T* operator[](std::size_t row) { return entries + row * stride; }
    T const* operator[](std::size_t row) const { return entries + row * stride; }

    // Of a symmetric matrix the tiles that meet the upper triangle are made. In a row they begin here:
    std::size_t begin(std::size_t row) const { return row / tile->rows * tile->rows / tile->columns * tile->columns; }

    template <class Entry>
    void set_symmetric(T shift, Entry const& entry) {
        for (std::size_t i = 0; i < rows; ++i) {
            T* const row = (*this)[i];
            for (std::size_t j = begin(i); j < rows; ++j) row[j] = entry(i, j);
            row[i] += shift;
        }
    }
    // Copy the upper triangle to the lower one.
    void mirror() {
        constexpr std::size_t block = 16;  // of which rows and columns stay in the first cache
        for (std::size_t i0 = 0; i0 < rows; i0 += block)
            for (std::size_t j0 = i0; j0 < rows; j0 += block)
                for (std::size_t i = i0; i < std::min(i0 + block, rows); ++i)
                    for (std::size_t j = std::max(j0, i + 1); j < std::min(j0 + block, rows); ++j)
                        (*this)[j][i] = (*this)[i][j];
    }

    Tile<T> const* tile;
    std::size_t rows, columns, stride;

private:
    T* entries;
};

// The two factors of products LᵀR, as tiles read them.
template <class T>
class Panels {
public:
    Panels(double* left, double* right) : left(reinterpret_cast<T*>(left)), right(reinterpret_cast<T*>(right)) {}

    void pack_left(Matrix<T> const& a) { a.tile->pack_left(left, a[0], a.stride, a.rows, a.columns); }
    void pack_right(Matrix<T> const& a) { a.tile->pack_right(right, a[0], a.stride, a.rows, a.columns); }
    // A factor whose rows and columns `entry` is a function of.
    template <class Entry>
    void pack_right(Tile<T> const& tile, std::size_t rows, std::size_t columns, Entry const& entry) {
        T* out = right;
        for (std::size_t start = 0; start < columns; start += tile.columns)
            for (std::size_t k = 0; k < rows; ++k, out += tile.columns) {
                std::size_t const here = std::min(tile.columns, columns - start);
                for (std::size_t i = 0; i < here; ++i) out[i] = entry(k, start + i);
                std::fill(out + here, out + tile.columns, T(0));
            }
    }
    // Both factors, a matrix whose columns are factor times the beginnings of given rows.
    void pack_transposed(Tile<T> const& tile, std::size_t rows, std::size_t columns, float const* given, std::size_t stride,
                         T factor) {
        for (auto const& [panels, width] : {std::pair(left, tile.rows), std::pair(right, tile.columns)})
            for (std::size_t i = 0; i < padded(columns, width); ++i) {
                T* const out = panels + i / width * width * rows + i % width;
                for (std::size_t k = 0; k < rows; ++k) out[k * width] = i < columns ? factor * T(given[i * stride + k]) : T(0);
            }
    }

    // C ← C + factor LᵀR of factors of `depth` rows, or of a symmetric C the upper triangle.
    void add(T factor, std::size_t depth, Matrix<T>& c, bool symmetric, [[maybe_unused]] int threads) const {
        std::size_t const width = c.tile->columns, height = c.tile->rows, count = (c.columns + width - 1) / width;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
        for (std::size_t first = 0; first < count; first += group)
            for (std::size_t start = 0; start < depth; start += part)
                for (std::size_t row = 0; row < c.rows; row += height)
                    for (std::size_t panel = first; panel < std::min(first + group, count); ++panel) {
                        if (symmetric && row >= (panel + 1) * width) continue;
                        c.tile->add(c[row] + panel * width, c.stride, left + row * depth + start * height,
                                    right + panel * width * depth + start * width, std::min(part, depth - start), factor);
                    }
    }

private:
    // Rows of a panel that stay in the first cache, and panels of so many rows that stay in the second one.
    static constexpr std::size_t part = 256, group = 4;

    T *left, *right;
};

// The inverse of a positive definite matrix of a few rows, by Gauss and Jordan's elimination.
template <class T>
void invert_few(Matrix<T>& a) {
    for (std::size_t k = 0; k < a.rows; ++k) {
        T* const pivots = a[k];
        T const inverse = T(1) / std::exchange(pivots[k], T(1));
        for (std::size_t j = 0; j < a.rows; ++j) pivots[j] *= inverse;
        for (std::size_t i = 0; i < a.rows; ++i) {
            if (i == k) continue;
            T* const row = a[i];
            T const factor = std::exchange(row[k], T(0));
            for (std::size_t j = 0; j < a.rows; ++j) row[j] -= factor * pivots[j];
        }
    }
}

// Turns a positive definite matrix, whose upper triangle is given, into all of its inverse. Elimination of a block of rows
// turns [D Bᵀ; B A] into [-D⁻¹ D⁻¹Bᵀ; B D⁻¹ A-B D⁻¹Bᵀ], and of all blocks a matrix into its negative inverse.
template <class T>
class Inversion {
public:
    static std::size_t memory(std::size_t n) { return 5 * room(block, std::max(n, block)); }

    Inversion(Tile<T> const& tile, std::size_t n, Arena& arena)
        : pivots(tile, block, block, arena.take(room(block, block))),
          rows(tile, block, n, arena.take(room(block, n))),
          scaled(tile, block, n, arena.take(room(block, n))),
          panels(arena.take(room(block, std::max(n, block))), arena.take(room(block, n))) {}

    void operator()(Matrix<T>& a, int threads) {
        std::size_t const n = a.rows;
        for (std::size_t start = 0; start < n; start += block) {
            std::size_t const size = std::min(block, n - start), end = start + size;
            pivots.rows = pivots.columns = rows.rows = scaled.rows = size;
            for (std::size_t j = 0; j < start; ++j)
                for (std::size_t i = 0; i < size; ++i) rows[i][j] = a[j][start + i];
            for (std::size_t i = 0; i < size; ++i) {
                for (std::size_t j = 0; j < size; ++j)
                    pivots[i][j] = rows[i][start + j] = a[start + std::min(i, j)][start + std::max(i, j)];
                std::copy(a[start + i] + end, a[start + i] + n, rows[i] + end);
                std::fill(scaled[i], scaled[i] + n, T(0));
            }
            invert_few(pivots);
            panels.pack_left(pivots);
            panels.pack_right(rows);
            panels.add(T(1), size, scaled, false, 1);
            panels.pack_left(scaled);
            panels.add(T(-1), size, a, true, threads);
            for (std::size_t j = 0; j < start; ++j)
                for (std::size_t i = 0; i < size; ++i) a[j][start + i] = scaled[i][j];
            for (std::size_t i = 0; i < size; ++i) {
                for (std::size_t j = i; j < size; ++j) a[start + i][start + j] = -pivots[i][j];
                std::copy(scaled[i] + end, scaled[i] + n, a[start + i] + end);
            }
        }
        for (std::size_t i = 0; i < n; ++i)
            for (std::size_t j = i; j < n; ++j) a[i][j] = -a[i][j];
        a.mirror();
    }

private:
    static constexpr std::size_t block = 32;

    Matrix<T> pivots, rows, scaled;
    Panels<T> panels;
};

// Halley's x (a + b x²)/(1 + c x²) for x in [low, 1], with the weights that make its least value, the next `low`, largest
// (Nakatsukasa, Bai and Gygi, Optimizing Halley's iteration for computing the matrix polar decomposition, 2010). It is x
// times first + second/(1 + c x²).
struct Halley {
    double c, first, second, low;

    explicit Halley(double from) {
        double const square = from * from, d = std::cbrt(4.0 * (1.0 - square) / (square * square));
        double const r = std::sqrt(1.0 + d);
        double const a = r + 0.5 * std::sqrt(8.0 - 4.0 * d + 8.0 * (2.0 - square) / (square * r));
        double const b = 0.25 * (a - 1.0) * (a - 1.0);
        c = a + b - 1.0;
        first = b / c;
        second = a - first;
        low = from * (a + b * square) / (1.0 + c * square);
    }
};

// C ← C + factor A B, where all three are symmetric.
template <class T>
void multiply(Panels<T>& panels, T factor, Matrix<T> const& a, Matrix<T> const& b, Matrix<T>& c, int threads) {
    panels.pack_left(a);
    panels.pack_right(b);
    panels.add(factor, a.rows, c, true, threads);
    c.mirror();
}

double frobenius(Matrix<double> const& upper) {
    double sum = 0.0;
    for (std::size_t i = 0; i < upper.rows; ++i) {
        double above = 0.0;
        for (std::size_t j = i + 1; j < upper.rows; ++j) above += upper[i][j] * upper[i][j];
        sum += upper[i][i] * upper[i][i] + 2.0 * above;
    }
    return std::sqrt(sum);
}

// For matrices of one shape, whose memory it holds.
class InverseRoot {
public:
    InverseRoot(Tiles const& tiles, std::size_t n, std::size_t columns, int threads)
        : fine(tiles.of<double>()),
          coarse(tiles.of<float>()),
          n(n),
          columns(columns),
          width(std::min(columns, std::size_t{512})),
          threads(threads),
          arena(room(n, width) + 3 * room(n, n) + 2 * room(std::max(n, width), std::max(n, width)) +
                Inversion<double>::memory(n) + Inversion<float>::memory(n)),
          first(arena.take(room(n, width))),
          second(arena.take(room(n, n))),
          third(arena.take(room(n, n))),
          fourth(arena.take(room(n, n))),
          left(arena.take(room(std::max(n, width), n))),
          right(arena.take(std::max(room(std::max(n, width), n), room(n, width)))),
          invert_fine(fine, n, arena),
          invert_coarse(coarse, n, arena) {}

    void apply(float const* z, float* u, double q) {
        Panels<double> wide_panels(left, right);
        Panels<float> panels(left, right);

        Matrix<double> wide(fine, n, n, second);
        for (std::size_t start = 0; start < columns; start += width) {
            std::size_t const here = std::min(width, columns - start);
            wide_panels.pack_transposed(fine, here, n, z + start, columns, q);
            wide_panels.add(1.0, here, wide, true, threads);
        }
        double const norm = 1.0 + frobenius(wide);  // at least the largest eigenvalue of I + Y Yᵀ
        Matrix<float> gram(coarse, n, n, third), inverse(coarse, n, n, third + room(n, n) / 2);
        gram.set_symmetric(float(1.0 / norm), [&](std::size_t i, std::size_t j) { return float(wide[i][j] / norm); });

        Halley const wide_step(1.0 / std::sqrt(norm));
        Halley step = wide_step;
        double const part = step.c / norm;
        wide.set_symmetric(1.0 + part, [&](std::size_t i, std::size_t j) { return part * wide[i][j]; });
        invert_fine(wide, threads);
        for (std::size_t i = 0; i < n; ++i) std::copy(wide[i], wide[i] + n, inverse[i]);
        advance(panels, step, inverse, gram);

        Matrix<float> root(coarse, n, n, fourth), next(coarse, n, n, fourth + room(n, n) / 2);  // the product of other P
        for (bool is_first = true; step.low < close || is_first; is_first = false) {
            step = Halley(step.low);
            auto const c = float(step.c), a = float(step.first), b = float(step.second);
            inverse.set_symmetric(1.0f, [&](std::size_t i, std::size_t j) { return c * gram[i][j]; });
            invert_coarse(inverse, threads);
            if (is_first) {
                root.set_symmetric(a, [&](std::size_t i, std::size_t j) { return b * inverse[i][j]; });
                root.mirror();
            } else {
                next.set_symmetric(0.0f, [&](std::size_t i, std::size_t j) { return a * root[i][j]; });
                multiply(panels, b, inverse, root, next, threads);
                std::swap(root, next);
            }
            advance(panels, step, inverse, gram);
        }

        // M^-½ = I - ½D + ⅜D² for M = I + D, up to D³; singular values are centred at 1 before
        double const centre = 2.0 / (1.0 + step.low);
        auto const square = float(centre * centre);
        gram.set_symmetric(-1.0f, [&](std::size_t i, std::size_t j) { return square * gram[i][j]; });
        gram.mirror();
        inverse.set_symmetric(0.0f, [&](std::size_t i, std::size_t j) { return -0.5f * gram[i][j]; });
        multiply(panels, 0.375f, gram, gram, inverse, threads);
        next.set_symmetric(0.0f, [&](std::size_t i, std::size_t j) { return root[i][j]; });
        multiply(panels, 1.0f, inverse, root, next, threads);

        double const scale = centre * q / std::sqrt(norm);
        for (std::size_t start = 0; start < columns; start += width) {
            std::size_t const here = std::min(width, columns - start);
            auto const given = [&](std::size_t i, std::size_t j) { return double(z[i * columns + start + j]); };
            Matrix<double> moved(fine, n, here, first);  // by the first P
            for (std::size_t i = 0; i < n; ++i)
                for (std::size_t j = 0; j < here; ++j) moved[i][j] = wide_step.first * given(i, j);
            wide_panels.pack_left(wide);
            wide_panels.pack_right(fine, n, here, given);
            wide_panels.add(wide_step.second, n, moved, false, threads);
            panels.pack_left(next);
            panels.pack_right(coarse, n, here, [&](std::size_t i, std::size_t j) { return float(scale * moved[i][j]); });
            Matrix<float> result(coarse, n, here, first);
            panels.add(1.0f, n, result, false, threads);
            for (std::size_t i = 0; i < n; ++i) std::copy(result[i], result[i] + here, u + i * columns + start);
        }
    }

private:
    // From where on singular values are close enough to 1 for the last step.
    static constexpr double close = 0.96;

    // M ← P M P for P = first + second W with the inverse W of I + c M; hence c M W = I - W.
    void advance(Panels<float>& panels, Halley const& step, Matrix<float> const& inverse, Matrix<float>& gram) {
        double const square = step.second * step.second / step.c, cross = 2.0 * step.first * step.second / step.c;
        auto const of_gram = float(step.first * step.first), of_inverse = float(square - cross);
        gram.set_symmetric(float(cross), [&](std::size_t i, std::size_t j) {
            return of_gram * gram[i][j] + of_inverse * inverse[i][j];
        });
        multiply(panels, float(-square), inverse, inverse, gram, threads);
    }

    Tile<double> const& fine;
    Tile<float> const& coarse;
    // Of a wide matrix so many columns at a time, as memory grows with them.
    std::size_t n, columns, width;
    int threads;
    Arena arena;
    double *first, *second, *third, *fourth, *left, *right;
    Inversion<double> invert_fine;
    Inversion<float> invert_coarse;
};

}  // namespace

void apply_sqrt(Tiles const& tiles, float const* z, float* u, std::size_t rows, std::size_t columns,
                std::span<double const> q, int threads) {
    std::size_t const size = rows * columns, count = q.size();
    bool const apart = count >= static_cast<std::size_t>(threads);  // then a thread has matrices of its own
#pragma omp parallel num_threads(threads) if (apart && threads > 1)
    {
        InverseRoot root(tiles, rows, columns, apart ? 1 : threads);
#pragma omp for schedule(dynamic)
        for (std::size_t i = 0; i < count; ++i) root.apply(z + i * size, u + i * size, q[i]);
    }
}

}  // namespace npgm
