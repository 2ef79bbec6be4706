#include "driver.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <stdexcept>

namespace npgm {
namespace {

// A block is the unit of work and of summation. Its size is fixed, so that a sum does not depend on the threads.
constexpr std::size_t block_size = 16384;
// A thread takes so many entries at a time: enough to pay for the way to it, few enough to even out other load.
constexpr std::size_t chunk_size = 8 * block_size;

std::size_t size_of(Dtype dtype) {
    switch (dtype) {
        case Dtype::float64: return 8;
        case Dtype::float32: return 4;
        case Dtype::bfloat16:
        case Dtype::float16: return 2;
        case Dtype::none: break;
    }
    return 0;
}

std::vector<Instructions const*> available() {
    std::vector<Instructions const*> result;
#if defined(NPGM_X86)
    __builtin_cpu_init();
    bool const has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        result.push_back(&avx512);
    if (has_avx2) result.push_back(&avx2);
#endif
    result.push_back(&baseline);
    return result;
}

std::atomic<Instructions const*> chosen{available().front()};

struct Block {
    std::size_t tensor, offset, size;
};

std::vector<Block> blocks_of(std::span<std::size_t const> sizes) {
    std::vector<Block> blocks;
    blocks.reserve(sizes.size());
    for (std::size_t tensor = 0; tensor < sizes.size(); ++tensor)
        for (std::size_t offset = 0; offset < sizes[tensor]; offset += block_size)
            blocks.push_back({tensor, offset, std::min(block_size, sizes[tensor] - offset)});
    return blocks;
}

// Call `work(i)` for each block, on up to `threads` threads.
template <class Work>
void for_each(std::vector<Block> const& blocks, [[maybe_unused]] int threads, Work const& work) {
    std::size_t total = 0;
    std::vector<std::size_t> starts;  // of chunks
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        if (total / chunk_size >= starts.size()) starts.push_back(i);
        total += blocks[i].size;
    }
    std::size_t const chunks = starts.size();
    starts.push_back(blocks.size());
    std::atomic<std::size_t> next{0};
    auto const take = [&] {
        for (std::size_t chunk; (chunk = next.fetch_add(1, std::memory_order_relaxed)) < chunks;)
            for (std::size_t i = starts[chunk]; i < starts[chunk + 1]; ++i) work(i);
    };
#if defined(_OPENMP)
    int const useful = static_cast<int>(std::min<std::size_t>(chunks, static_cast<std::size_t>(std::max(threads, 1))));
    if (useful > 1) {
#pragma omp parallel num_threads(useful)
        take();
        return;
    }
#endif
    take();
}

template <class T>
T* at(std::uintptr_t address, std::size_t offset, std::size_t bytes) {
    return reinterpret_cast<T*>(address + offset * bytes);
}

void check(Tensors const& tensors) {
    std::size_t const count = tensors.sizes.size();
    if (tensors.parameters.size() != count || tensors.gradients.size() != count ||
        (!tensors.momentum.empty() && tensors.momentum.size() != count))
        throw std::invalid_argument("there must be as many gradients, momentum buffers and sizes as parameters");
    if (tensors.momentum.empty() != (tensors.momentum_dtype == Dtype::none) && count != 0)
        throw std::invalid_argument("momentum buffers and their dtype must be given together");
}

struct Range {
    std::uintptr_t first, last;
    bool written;
};

bool overlap(Range const& a, Range const& b) {
    return (a.written || b.written) && a.first < b.last && b.first < a.last;
}

// Whether a tensor that is written shares memory with another: then they must be moved one after the other, as a loop
// over them would. Within one tensor the result would depend on the instructions.
bool overlaps(Tensors const& tensors) {
    std::vector<Range> ranges;
    ranges.reserve(3 * tensors.sizes.size());
    std::size_t const bytes = size_of(tensors.dtype), momentum_bytes = size_of(tensors.momentum_dtype);
    for (std::size_t i = 0; i < tensors.sizes.size(); ++i) {
        if (tensors.sizes[i] == 0) continue;
        auto const range = [&](std::uintptr_t address, std::size_t each, bool written) {
            return Range{address, address + tensors.sizes[i] * each, written};
        };
        Range const parameter = range(tensors.parameters[i], bytes, true);
        Range const gradient = range(tensors.gradients[i], bytes, false);
        bool own = overlap(parameter, gradient);
        if (!tensors.momentum.empty()) {
            Range const momentum = range(tensors.momentum[i], momentum_bytes, true);
            own = own || overlap(momentum, parameter) || overlap(momentum, gradient);
            ranges.push_back(momentum);
        }
        if (own) throw std::invalid_argument("a parameter, its gradient and its momentum overlap in memory");
        ranges.push_back(parameter);
        ranges.push_back(gradient);
    }
    std::sort(ranges.begin(), ranges.end(), [](Range const& a, Range const& b) { return a.first < b.first; });
    std::uintptr_t end = 0, written_end = 0;
    for (Range const& range : ranges) {
        if (range.first < (range.written ? end : written_end)) return true;
        end = std::max(end, range.last);
        if (range.written) written_end = std::max(written_end, range.last);
    }
    return false;
}

// Moments of several blocks as those of one, in the order of the calls.
void merge(Moments& sum, Moments const& part) {
    sum.largest = part.largest > sum.largest || std::isnan(part.largest) ? part.largest : sum.largest;
    if (part.unit > sum.unit) {
        double const ratio = sum.unit / part.unit;
        sum.squares = sum.squares * ratio * ratio + part.squares;
        sum.unit = part.unit;
    } else {
        double const ratio = part.unit / sum.unit;
        sum.squares += part.squares * ratio * ratio;
    }
}

Norm norm_of(Moments const& moments) {
    double const root = std::sqrt(moments.squares);
    bool const scaled = moments.largest > 0.0 && std::isfinite(moments.largest);
    return {moments.largest, scaled ? root * (moments.unit / moments.largest) : root};
}

}  // namespace

bool has_step(Dtype parameter, Dtype momentum) {
    return chosen.load()->update(Map::isotropic, parameter, momentum) != nullptr;
}

void update(Tensors const& tensors, Map map, Step const& step, std::span<double const> factors, int threads) {
    check(tensors);
    std::size_t const needed = map == Map::isotropic ? tensors.sizes.size() : 0;
    if (factors.size() != needed && !(factors.size() == 1 && needed != 0))
        throw std::invalid_argument("an isotropic step needs one factor, or one for each tensor; a separable one none");
    Update* const loop = chosen.load()->update(map, tensors.dtype, tensors.momentum_dtype);
    if (loop == nullptr) throw std::invalid_argument("there is no fused step for these dtypes");
    if (overlaps(tensors)) threads = 1;
    auto const blocks = blocks_of(tensors.sizes);
    std::size_t const bytes = size_of(tensors.dtype), momentum_bytes = size_of(tensors.momentum_dtype);
    for_each(blocks, threads, [&](std::size_t i) {
        auto const [tensor, offset, size] = blocks[i];
        loop(at<void>(tensors.parameters[tensor], offset, bytes), at<void>(tensors.gradients[tensor], offset, bytes),
             tensors.momentum.empty() ? nullptr : at<void>(tensors.momentum[tensor], offset, momentum_bytes), size,
             step, factors.empty() ? 0.0 : factors[factors.size() == 1 ? 0 : tensor]);
    });
}

std::vector<Norm> measure(Tensors const& tensors, Step const& step, bool per_tensor, int threads) {
    check(tensors);
    Instructions const& instructions = *chosen.load();
    auto const find = step.coupled_decay != 0.0 ? instructions.measure_decayed : instructions.measure;
    Measure* const loop = find(tensors.dtype);
    if (loop == nullptr) throw std::invalid_argument("there is no fused norm for this dtype");
    auto const blocks = blocks_of(tensors.sizes);
    std::size_t const bytes = size_of(tensors.dtype);
    std::vector<Moments> parts(blocks.size());
    for_each(blocks, threads, [&](std::size_t i) {
        auto const [tensor, offset, size] = blocks[i];
        parts[i] = loop(at<void>(tensors.parameters[tensor], offset, bytes),
                        at<void>(tensors.gradients[tensor], offset, bytes), size, step);
    });
    std::vector<Moments> sums(per_tensor ? tensors.sizes.size() : 1, Moments{0.0, 0x1p-1022, 0.0});
    for (std::size_t i = 0; i < blocks.size(); ++i) merge(sums[per_tensor ? blocks[i].tensor : 0], parts[i]);
    std::vector<Norm> result;
    result.reserve(sums.size());
    for (Moments const& sum : sums) result.push_back(norm_of(sum));
    return result;
}

std::span<Kernel const> kernels() {
#define NPGM_ENTRY(name, parameters) {#name, Map::name, parameters},
    static constexpr Kernel all[] = {NPGM_KERNELS(NPGM_ENTRY)};
#undef NPGM_ENTRY
    return all;
}

std::optional<Kernel> find_kernel(std::string_view name) {
    for (Kernel const& kernel : kernels())
        if (kernel.name == name) return kernel;
    return std::nullopt;
}

std::vector<std::string> instruction_sets() {
    std::vector<std::string> names;
    for (Instructions const* instructions : available()) names.emplace_back(instructions->name);
    return names;
}

Instructions const& instructions() { return *chosen.load(); }

void use_instruction_set(std::string_view name) {
    for (Instructions const* instructions : available())
        if (instructions->name == name) {
            chosen = instructions;
            return;
        }
    throw std::invalid_argument("this machine or this build does not have the instruction set " + std::string(name));
}

}  // namespace npgm
