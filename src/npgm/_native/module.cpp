#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <utility>

#include "driver.hpp"
#include "exchange.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Addresses = std::vector<std::uintptr_t>;
using Sizes = std::vector<std::size_t>;

npgm::Dtype dtype_of(std::string_view name) {
    if (name == "float32") return npgm::Dtype::float32;
    if (name == "float64") return npgm::Dtype::float64;
    if (name == "bfloat16") return npgm::Dtype::bfloat16;
    if (name == "float16") return npgm::Dtype::float16;
    throw std::invalid_argument("there is no fused step for the dtype " + std::string(name));
}

// An isotropic step has no kernel.
npgm::Kernel kernel_of(std::string_view name) {
    if (name.empty()) return {name, npgm::Map::isotropic, 0};
    if (auto const kernel = npgm::find_kernel(name)) return *kernel;
    throw std::invalid_argument("there is no fused step for the kernel " + std::string(name));
}

}  // namespace

namespace npgm {
void bind_steppers(nb::module_&);  // stepper_bindings.cpp
}

NB_MODULE(_core, m) {
    std::vector<std::string> names;
    for (npgm::Kernel const& kernel : npgm::kernels()) names.emplace_back(kernel.name);
    m.attr("kernels") = nb::cast(names);
    m.attr("dtypes") = nb::cast(std::vector<std::string>{"float32", "float64", "bfloat16", "float16"});
    m.def("instruction_sets", npgm::instruction_sets);
    m.def("use_instruction_set", npgm::use_instruction_set, "name"_a);

    nb::class_<npgm::Tensors>(m, "Tensors")
        .def(
            "__init__",
            [](npgm::Tensors* self, Addresses parameters, Addresses gradients, Addresses momentum, Sizes sizes,
               std::string_view dtype, std::string_view momentum_dtype) {
                new (self) npgm::Tensors{
                    std::move(parameters),
                    std::move(gradients),
                    std::move(momentum),
                    std::move(sizes),
                    dtype_of(dtype),
                    momentum_dtype.empty() ? npgm::Dtype::none : dtype_of(momentum_dtype),
                };
            },
            "parameters"_a, "gradients"_a, "momentum"_a, "sizes"_a, nb::kw_only(), "dtype"_a, "momentum_dtype"_a = "");

    nb::class_<npgm::Exchange>(m, "Exchange")
        .def_static("of", &npgm::Exchange::of, "table"_a, "types"_a)
        .def("tensors", &npgm::Exchange::tensors, "parameters"_a, "gradients"_a, "momentum"_a);

    m.def(
        "update",
        [](npgm::Tensors const& tensors, std::string_view kernel, std::vector<double> kernel_parameters,
           std::vector<double> factors, double gradient_factor, double coupled_decay, double scale, double weight,
           double shrink, double lr, int threads) {
            auto const [_, map, count] = kernel_of(kernel);
            if (kernel_parameters.size() != count)
                throw std::invalid_argument("the number of parameters of the kernel is " + std::to_string(count) +
                                            ", not " + std::to_string(kernel_parameters.size()));
            npgm::Step const step{gradient_factor, coupled_decay, scale, weight, shrink, lr, kernel_parameters.data()};
            nb::gil_scoped_release const released;
            npgm::update(tensors, map, step, factors, threads);
        },
        "tensors"_a, nb::kw_only(), "kernel"_a, "kernel_parameters"_a, "factors"_a, "gradient_factor"_a,
        "coupled_decay"_a, "scale"_a, "weight"_a, "shrink"_a, "lr"_a, "threads"_a);

    m.def(
        "measure",
        [](npgm::Tensors const& tensors, double gradient_factor, double coupled_decay, bool per_tensor, int threads) {
            npgm::Step const step{gradient_factor, coupled_decay, 1.0, 1.0, 1.0, 0.0, nullptr};
            std::vector<npgm::Norm> norms;
            {
                nb::gil_scoped_release const released;
                norms = npgm::measure(tensors, step, per_tensor, threads);
            }
            std::vector<double> largest, ratios;
            for (npgm::Norm const& norm : norms) {
                largest.push_back(norm.largest);
                ratios.push_back(norm.ratio);
            }
            return std::pair(largest, ratios);
        },
        "tensors"_a, nb::kw_only(), "gradient_factor"_a, "coupled_decay"_a, "per_tensor"_a, "threads"_a);

    npgm::bind_steppers(m);
}
