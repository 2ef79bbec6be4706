// The innermost loops of matrix products, compiled once for each instruction set.
#pragma once

#include <cstddef>

namespace npgm {

// A product CᵀD is made tile by tile, of so many rows and columns. What a tile takes of a factor lies together, row after
// row: a panel.
template <class T>
struct Tile {
    std::size_t rows, columns;
    // Add factor LᵀR to a tile of a matrix, whose rows are `stride` entries apart, of two panels of `depth` rows.
    void (*add)(T* matrix, std::size_t stride, T const* left, T const* right, std::size_t depth, T factor);
    // Write the panels of a matrix, as wide as a tile has rows, or columns; the last one ends with zeros.
    void (*pack_left)(T* panels, T const* matrix, std::size_t stride, std::size_t depth, std::size_t columns);
    void (*pack_right)(T* panels, T const* matrix, std::size_t stride, std::size_t depth, std::size_t columns);
};

struct Tiles {
    Tile<float> of_float;
    Tile<double> of_double;

    template <class T>
    Tile<T> const& of() const {
        if constexpr (sizeof(T) == sizeof(float))
            return of_float;
        else
            return of_double;
    }
};

extern Tiles const baseline_tiles, avx2_tiles, avx512_tiles;

}  // namespace npgm
