// Compiled several times, as loops.cpp, and with products and sums contracted where the instruction set has that.
#include "tiles.hpp"

#include <string.h>

#include "compiler.hpp"

namespace npgm {
namespace {

#if defined(__AVX512F__)
constexpr std::size_t register_bytes = 64, rows = 12;
#elif defined(__AVX2__)
constexpr std::size_t register_bytes = 32, rows = 6;
#else
constexpr std::size_t register_bytes = 16, rows = 6;
#endif

template <class T>
constexpr std::size_t lanes = register_bytes / sizeof(T);

#if defined(_MSC_VER) && !defined(__clang__)
template <class T>
struct Register {
    struct Type {
        T of[lanes<T>];

        friend Type operator*(T a, Type b) {
            for (T& each : b.of) each *= a;
            return b;
        }
        friend Type operator+(Type a, Type const& b) {
            for (std::size_t i = 0; i < lanes<T>; ++i) a.of[i] += b.of[i];
            return a;
        }
        Type& operator+=(Type const& b) { return *this = *this + b; }
    };
};
#else
template <class T>
struct Register {
    typedef T Type __attribute__((vector_size(register_bytes)));
};
#endif
template <class T>
constexpr std::size_t columns = 2 * lanes<T>;

template <class T>
typename Register<T>::Type read(T const* x) {
    typename Register<T>::Type result;
    memcpy(&result, x, sizeof result);
    return result;
}

// The tile stays in registers, of which two are as wide as it.
template <class T>
void add(T* matrix, std::size_t stride, T const* left, T const* right, std::size_t depth, T factor) {
    typename Register<T>::Type sums[rows][2] = {};
    for (; depth > 0; --depth, left += rows, right += columns<T>) {
        auto const first = read(right), second = read(right + lanes<T>);
NPGM_UNROLL
        for (std::size_t i = 0; i < rows; ++i) {
            sums[i][0] += left[i] * first;
            sums[i][1] += left[i] * second;
        }
    }
NPGM_UNROLL
    for (std::size_t i = 0; i < rows; ++i, matrix += stride)
NPGM_UNROLL
        for (std::size_t half = 0; half < 2; ++half) {
            T* const at = matrix + half * lanes<T>;
            auto const sum = read(at) + factor * sums[i][half];
            memcpy(at, &sum, sizeof sum);
        }
}

template <class T, std::size_t width>
void pack(T* panels, T const* matrix, std::size_t stride, std::size_t depth, std::size_t columns) {
    for (std::size_t start = 0; start < columns; start += width) {
        std::size_t const rest = columns - start;
        for (std::size_t k = 0; k < depth; ++k, panels += width) {
            T const* const row = matrix + k * stride + start;
            if (rest >= width)
                memcpy(panels, row, width * sizeof(T));
            else
                for (std::size_t i = 0; i < width; ++i) panels[i] = i < rest ? row[i] : T(0);
        }
    }
}

template <class T>
constexpr Tile<T> tile{rows, columns<T>, add<T>, pack<T, rows>, pack<T, columns<T>>};

}  // namespace

#define NPGM_TILES_OF(name) name##_tiles
#define NPGM_TILES(name) NPGM_TILES_OF(name)
Tiles const NPGM_TILES(NPGM_INSTRUCTIONS){tile<float>, tile<double>};

}  // namespace npgm
