#include "driver.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "compiler.hpp"

namespace npgm {
namespace {

// A block is the unit of work and of summation. Its size is fixed, so that a sum does not depend on the threads.
constexpr std::size_t block_size = 16384;
// A thread takes so many entries at a time: enough to pay for the way to it, few enough to even out other load.
constexpr std::size_t chunk_size = 2 * block_size;
constexpr double largest_finite = std::numeric_limits<double>::max(), nan = std::numeric_limits<double>::quiet_NaN();

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
    Processor const processor;
    if (processor.avx512) result.push_back(&avx512);
    if (processor.avx2) result.push_back(&avx2);
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

struct Extent {
    std::uintptr_t first, last;
    bool written;
};

bool overlap(Extent const& a, Extent const& b) {
    return (a.written || b.written) && a.first < b.last && b.first < a.last;
}

// Call `see(extents)` with the memory of each tensor, its gradient and its momentum.
template <class See>
void for_each_extents(Tensors const& tensors, See const& see) {
    std::size_t const bytes = size_of(tensors.dtype), momentum_bytes = size_of(tensors.momentum_dtype);
    for (std::size_t i = 0; i < tensors.sizes.size(); ++i) {
        if (tensors.sizes[i] == 0) continue;
        auto const extent = [&](std::uintptr_t address, std::size_t each, bool written) {
            return Extent{address, address + tensors.sizes[i] * each, written};
        };
        Extent const extents[] = {extent(tensors.parameters[i], bytes, true), extent(tensors.gradients[i], bytes, false),
                                  extent(tensors.momentum.empty() ? 0 : tensors.momentum[i], momentum_bytes, true)};
        see(std::span(extents, tensors.momentum.empty() ? 2 : 3));
    }
}

// Whether a tensor that is written shares memory with another: then they must be moved one after the other, as a loop
// over them would.
bool overlaps(Tensors const& tensors) {
    std::vector<Extent> extents;
    extents.reserve(3 * tensors.sizes.size());
    for_each_extents(tensors, [&](std::span<Extent const> own) { extents.insert(extents.end(), own.begin(), own.end()); });
    std::sort(extents.begin(), extents.end(), [](Extent const& a, Extent const& b) { return a.first < b.first; });
    std::uintptr_t end = 0, written_end = 0;
    for (Extent const& extent : extents) {
        if (extent.first < (extent.written ? end : written_end)) return true;
        end = std::max(end, extent.last);
        if (extent.written) written_end = std::max(written_end, extent.last);
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

// What to divide by lest squares overflow, as npgm._common.array.divisor.
double divisor(double largest) { return largest > 0.0 && std::isfinite(largest) ? largest : 1.0; }

Norm norm_of(Moments const& moments) {
    return {moments.largest, std::sqrt(moments.squares) * (moments.unit / divisor(moments.largest))};
}

// As Isotropic.factor of npgm.references, divided by m, for the norm m q with m = divisor(largest): by the separable
// step of one number from 0 to h*'(‖y‖/λ).
double factor_of(Rule const& rule, Norm const& norm) {
    if (norm.ratio == 0.0) return 0.0;
    double const m = divisor(norm.largest), product = m * norm.ratio;
    double const size = std::isinf(product) && std::isfinite(norm.ratio) ? largest_finite : product;
    double u = 0.0;
    Step const step{1.0, 0.0, rule.scale, 1.0, 1.0, -1.0, rule.parameters.data()};
    chosen.load()->update(*rule.kernel, Dtype::float64, Dtype::none)(&u, &size, nullptr, 1, step, 0.0);
    return u / norm.ratio / m;
}

// The norm of the vector that is made up of several.
Norm joint(std::span<Norm const> norms) {
    if (norms.size() == 1) return norms.front();
    double largest = 0.0, squares = 0.0;
    for (Norm const& norm : norms)
        if (norm.largest > largest || std::isnan(norm.largest)) largest = norm.largest;
    for (Norm const& norm : norms) {
        double const part = norm.ratio * (divisor(norm.largest) / divisor(largest));
        squares += part * part;
    }
    return {largest, std::sqrt(squares)};
}

double of_each(std::span<double const> values, std::size_t tensor) { return values[values.size() == 1 ? 0 : tensor]; }

double length_of(Norm const& norm) { return divisor(norm.largest) * norm.ratio; }

Lengths lengths_of(std::span<Norm const> norms, std::span<double const> factors) {
    std::vector<Norm> made;
    for (std::size_t i = 0; i < norms.size(); ++i)
        made.push_back({divisor(norms[i].largest) * of_each(factors, i), norms[i].ratio});
    return {length_of(joint(norms)), length_of(joint(made))};
}

Lengths lengths_of(std::span<Squares const> squares) {
    Squares sum;
    for (Squares const& each : squares) sum += each;
    return {std::sqrt(sum.given), std::sqrt(sum.made)};
}

// Of which `gradient_factor` is that of each tensor.
Step step_of(Rule const& rule, double lr) {
    return {rule.sign,
            rule.coupled_decay,
            rule.scale,
            1.0 - rule.momentum,
            1.0 - lr * rule.decoupled_decay,
            lr,
            rule.parameters.data(),
            rule.before};
}

void check_scales(std::span<double const> grad_scales, std::size_t count) {
    if (grad_scales.size() != 1 && grad_scales.size() != count)
        throw std::invalid_argument("there must be one grad_scale, or one for each tensor");
}

}  // namespace

bool has_step(Dtype parameter, Dtype momentum) {
    return chosen.load()->update(UpdateKind::isotropic, parameter, momentum) != nullptr;
}

bool overlaps_itself(Tensors const& tensors) {
    bool result = false;
    for_each_extents(tensors, [&](std::span<Extent const> own) {
        for (std::size_t i = 0; i < own.size(); ++i)
            for (std::size_t j = 0; j < i; ++j) result = result || overlap(own[i], own[j]);
    });
    return result;
}

std::vector<Squares> apply_step(Tensors const& tensors, Rule const& rule, std::span<double const> factors, double lr,
                          std::span<double const> grad_scales, int threads, bool track) {
    check(tensors);
    check_scales(grad_scales, tensors.sizes.size());
    std::size_t const count = tensors.sizes.size();
    if (factors.size() != count && !(factors.size() == 1 && count != 0) && (rule.isotropic || !factors.empty()))
        throw std::invalid_argument("a step needs one factor, or one for each tensor; a separable one may have none");
    if (!rule.isotropic && !rule.kernel) throw std::invalid_argument("a separable step needs a kernel");
    if (overlaps_itself(tensors))
        throw std::invalid_argument("a parameter, its gradient and its momentum overlap in memory");
    UpdateKind const kind = rule.isotropic ? UpdateKind::isotropic : *rule.kernel;
    Update* const loop = chosen.load()->update(kind, tensors.dtype, tensors.momentum_dtype);
    if (loop == nullptr) throw std::invalid_argument("there is no fused step for these dtypes");
    Step const step = step_of(rule, lr);
    if (overlaps(tensors)) threads = 1;
    auto const blocks = blocks_of(tensors.sizes);
    std::size_t const bytes = size_of(tensors.dtype), momentum_bytes = size_of(tensors.momentum_dtype);
    std::vector<Squares> parts(track ? blocks.size() : 0);
    for_each(blocks, threads, [&](std::size_t i) {
        auto const [tensor, offset, size] = blocks[i];
        double const factor = factors.empty() ? step.scale : of_each(factors, tensor);
        Step own = step;
        own.gradient_factor /= of_each(grad_scales, tensor);
        if (!rule.isotropic) own.scale = factor;
        own.tracks = track;
        Squares const part = loop(
            at<void>(tensors.parameters[tensor], offset, bytes), at<void>(tensors.gradients[tensor], offset, bytes),
            tensors.momentum.empty() ? nullptr : at<void>(tensors.momentum[tensor], offset, momentum_bytes), size, own,
            factor);
        if (track) parts[i] = part;
    });
    std::vector<Squares> sums(track ? count : 0);
    for (std::size_t i = 0; i < parts.size(); ++i) sums[blocks[i].tensor] += parts[i];
    return sums;
}

std::vector<Norm> measure(Tensors const& tensors, Rule const& rule, std::span<double const> grad_scales, int threads) {
    check(tensors);
    check_scales(grad_scales, tensors.sizes.size());
    Instructions const& instructions = *chosen.load();
    bool const averages = rule.before && !tensors.momentum.empty();
    auto const find = rule.coupled_decay != 0.0 ? instructions.measure_decayed : instructions.measure;
    Measure* const loop = find(tensors.dtype, averages ? tensors.momentum_dtype : Dtype::none);
    if (loop == nullptr) throw std::invalid_argument("there is no fused norm for this dtype");
    Step const step = step_of(rule, 0.0);
    auto const blocks = blocks_of(tensors.sizes);
    std::size_t const bytes = size_of(tensors.dtype), momentum_bytes = size_of(tensors.momentum_dtype);
    std::vector<Moments> parts(blocks.size());
    for_each(blocks, threads, [&](std::size_t i) {
        auto const [tensor, offset, size] = blocks[i];
        Step own = step;
        own.gradient_factor /= of_each(grad_scales, tensor);
        parts[i] = loop(at<void>(tensors.parameters[tensor], offset, bytes),
                        at<void>(tensors.gradients[tensor], offset, bytes),
                        averages ? at<void>(tensors.momentum[tensor], offset, momentum_bytes) : nullptr, size, own);
    });
    std::vector<Moments> sums(rule.per_tensor ? tensors.sizes.size() : 1, Moments{0.0, 0x1p-1022, 0.0});
    for (std::size_t i = 0; i < blocks.size(); ++i) merge(sums[rule.per_tensor ? blocks[i].tensor : 0], parts[i]);
    std::vector<Norm> result;
    result.reserve(sums.size());
    for (Moments const& sum : sums) result.push_back(norm_of(sum));
    return result;
}

Stepped step(std::span<Part const> parts, double grad_scale, int threads, bool track) {
    std::span<double const> const grad_scales(&grad_scale, 1);
    std::vector<std::vector<Norm>> norms(parts.size());
    std::vector<Norm> all, members;
    bool applies = true;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        if (!parts[i].rule->isotropic && !parts[i].skip) continue;
        norms[i] = measure(*parts[i].tensors, *parts[i].rule, grad_scales, threads);
        if (parts[i].skip)
            for (Norm const& norm : norms[i]) applies = applies && std::isfinite(norm.largest);
        if (parts[i].rule->isotropic) all.insert(all.end(), norms[i].begin(), norms[i].end());
    }
    Stepped result;
    if (track) result.lengths.assign(parts.size(), Lengths{nan, nan});
    if (!all.empty()) result.norm = length_of(joint(all));
    if (!applies) return result;
    std::vector<double> factors;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        Rule const& rule = *parts[i].rule;
        factors.clear();
        if (rule.isotropic && rule.per_tensor) {
            for (Norm const& norm : norms[i]) factors.push_back(factor_of(rule, norm));
        } else if (rule.isotropic) {
            members.clear();
            for (std::size_t j = 0; j < parts.size(); ++j)
                if (parts[j].rule->isotropic && !parts[j].rule->per_tensor && parts[j].vector == parts[i].vector)
                    members.push_back(norms[j].front());
            factors.push_back(factor_of(rule, joint(members)));
        }
        auto const squares = apply_step(*parts[i].tensors, rule, factors, parts[i].lr, grad_scales, threads, track);
        if (track) result.lengths[i] = rule.isotropic ? lengths_of(norms[i], factors) : lengths_of(squares);
    }
    return result;
}

std::span<Kernel const> kernels() { return {chosen.load()->kernels, chosen.load()->kernel_count}; }

UpdateKind find_kernel(std::string_view key, std::size_t parameters) {
    auto const all = kernels();
    for (std::size_t i = 0; i < all.size(); ++i)
        if (all[i].key == key && all[i].parameters == parameters) return static_cast<UpdateKind>(i);
    throw std::invalid_argument("there is no fused step for the kernel " + std::string(key) + " with " +
                                std::to_string(parameters) + " parameters");
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
