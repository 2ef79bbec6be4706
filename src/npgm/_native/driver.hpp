// Steps of many tensors in one call: blocks, threads and the choice of the instruction set.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loops.hpp"

namespace npgm {

// Dense tensors of equal sizes, position by position. `momentum` is empty without momentum.
struct Tensors {
    std::vector<std::uintptr_t> parameters, gradients, momentum;
    std::vector<std::size_t> sizes;
    Dtype dtype, momentum_dtype;
};

// What the options of a group make of its step; npgm.torch.options.Rule says more.
struct Rule {
    std::optional<UpdateKind> kernel;  // none for one that is not known here, of an isotropic φ
    std::vector<double> parameters;
    bool isotropic, per_tensor, before;
    double scale, momentum, coupled_decay, decoupled_decay, sign;
};

// max|y| and ‖y‖ / max|y|, the latter ‖y‖ where the former is zero or not finite; y is what φ is given.
struct Norm {
    double largest, ratio;
};

bool has_step(Dtype parameter, Dtype momentum);
// Whether a tensor shares memory with its own gradient or momentum: then the result would depend on the instructions.
bool overlaps_itself(Tensors const&);

// The two halves of a step. `factors` are what an isotropic φ multiplies by, one for all tensors or one for each, or the
// λ of a separable φ in place of that of its rule; `grad_scales` are what a gradient is divided by, one for all tensors
// or one for each. Both throw std::invalid_argument for tensors that they do not support. With `track` the
// squares of each tensor are returned, 0 for an isotropic φ; without, none.
std::vector<Norm> measure(Tensors const&, Rule const&, std::span<double const> grad_scales, int threads);
std::vector<Squares> apply_step(Tensors const&, Rule const&, std::span<double const> factors, double lr,
                          std::span<double const> grad_scales, int threads, bool track = false);

// Both halves for several groups, whose rules have known kernels. Groups with the same `vector` have one norm.
struct Part {
    Tensors const* tensors;
    Rule const* rule;
    double lr;
    int vector;
    bool skip;  // nothing moves if what this part is given is not finite
};
// ‖y‖ and ‖u‖ of a part, NaN if nothing moved.
struct Lengths {
    double given, made;
};
struct Stepped {
    std::optional<double> norm;  // of all that isotropic φ are given, if there is such a φ
    std::vector<Lengths> lengths;  // of each part, if the step tracks
};
Stepped step(std::span<Part const>, double grad_scale, int threads, bool track);

std::span<Kernel const> kernels();
// Throws std::invalid_argument if there is no such kernel with so many parameters.
UpdateKind find_kernel(std::string_view key, std::size_t parameters);

// The instruction sets of this machine that the module was built for, the one that is chosen first.
std::vector<std::string> instruction_sets();
void use_instruction_set(std::string_view name);
// The loops of the one in use.
Instructions const& instructions();

}  // namespace npgm
