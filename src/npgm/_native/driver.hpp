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

// max|y| and ‖y‖ / max|y|, the latter ‖y‖ where the former is zero or not finite.
struct Norm {
    double largest, ratio;
};

bool has_step(Dtype parameter, Dtype momentum);

// All of them throw std::invalid_argument for tensors that they do not support.
void update(Tensors const&, Map, Step const&, std::span<double const> factors, int threads);
std::vector<Norm> measure(Tensors const&, Step const&, bool per_tensor, int threads);

// A kernel that has a separable step, and the number of its parameters.
struct Kernel {
    std::string_view name;
    Map map;
    std::size_t parameters;
};
std::span<Kernel const> kernels();
std::optional<Kernel> find_kernel(std::string_view name);

// The instruction sets of this machine that the module was built for, the one that is chosen first.
std::vector<std::string> instruction_sets();
void use_instruction_set(std::string_view name);
// The loops of the one in use.
Instructions const& instructions();

}  // namespace npgm
