// ∇φ* of the spectral φ of the kernel sqrt, by matrix products and inverses alone.
#pragma once

#include <cstddef>
#include <span>

#include "tiles.hpp"

namespace npgm {

// Write (I + Y Yᵀ)^-½ Y for Y = q Z, of each of the matrices that `z` holds one after another, row by row and with no more
// rows than columns; there is one q for each. Entries are finite, and q ‖Z‖ at most 1e6.
void apply_sqrt(Tiles const&, float const* z, float* u, std::size_t rows, std::size_t columns,
                std::span<double const> q, int threads);

}  // namespace npgm
