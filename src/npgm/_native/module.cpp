#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "driver.hpp"
#include "exchange.hpp"
#include "inverse_root.hpp"

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

nb::tuple pair_of(std::vector<npgm::Norm> const& norms) {
    nb::list largest, ratios;
    for (npgm::Norm const& norm : norms) {
        largest.append(norm.largest);
        ratios.append(norm.ratio);
    }
    return nb::make_tuple(largest, ratios);
}

npgm::Stepped step(nb::list parts, double grad_scale, int threads, bool track) {
    std::vector<npgm::Part> taken;
    taken.reserve(parts.size());
    for (nb::handle part : parts) {
        auto const [tensors, rule, lr, vector, skip] =
            nb::cast<std::tuple<npgm::Tensors const*, npgm::Rule const*, double, int, bool>>(part);
        taken.push_back({tensors, rule, lr, vector, skip});
    }
    nb::gil_scoped_release const released;
    return npgm::step(taken, grad_scale, threads, track);
}

}  // namespace

namespace npgm {
void bind_steppers(nb::module_&);  // stepper_bindings.cpp
}

NB_MODULE(_core, m) {
    // torch keeps the Python functions of its operators, with all that they hold, beyond the end of the interpreter
    nb::set_leak_warnings(false);
    nb::dict kernels;
    for (npgm::Kernel const& kernel : npgm::kernels()) kernels[kernel.key] = kernel.parameters;
    m.attr("kernels") = kernels;
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

    nb::class_<npgm::Rule>(m, "Rule")
        .def(
            "__init__",
            [](npgm::Rule* self, std::string_view kernel, std::vector<double> parameters, bool isotropic,
               bool per_tensor, bool before, double scale, double momentum, double coupled_decay,
               double decoupled_decay, bool maximize) {
                std::optional<npgm::UpdateKind> kind;
                if (!kernel.empty()) kind = npgm::find_kernel(kernel, parameters.size());
                new (self) npgm::Rule{
                    .kernel = kind,
                    .parameters = std::move(parameters),
                    .isotropic = isotropic,
                    .per_tensor = per_tensor,
                    .before = before,
                    .scale = scale,
                    .momentum = momentum,
                    .coupled_decay = coupled_decay,
                    .decoupled_decay = decoupled_decay,
                    .sign = maximize ? -1.0 : 1.0,
                };
            },
            nb::kw_only(), "kernel"_a, "parameters"_a, "isotropic"_a, "per_tensor"_a, "before"_a, "scale"_a,
            "momentum"_a, "coupled_decay"_a, "decoupled_decay"_a, "maximize"_a);

    m.def(
        "measure",
        [](npgm::Tensors const& tensors, npgm::Rule const& rule, std::vector<double> const& grad_scales, int threads) {
            std::vector<npgm::Norm> norms;
            {
                nb::gil_scoped_release const released;
                norms = npgm::measure(tensors, rule, grad_scales, threads);
            }
            return pair_of(norms);
        },
        "tensors"_a, "rule"_a, nb::kw_only(), "grad_scales"_a = std::vector<double>{1.0}, "threads"_a);

    m.def(
        "apply_step",
        [](npgm::Tensors const& tensors, npgm::Rule const& rule, std::vector<double> const& factors, double lr,
           std::vector<double> const& grad_scales, int threads, bool track) {
            std::vector<npgm::Squares> squares;
            {
                nb::gil_scoped_release const released;
                squares = npgm::apply_step(tensors, rule, factors, lr, grad_scales, threads, track);
            }
            nb::list given, made;
            for (npgm::Squares const& each : squares) {
                given.append(std::sqrt(each.given));
                made.append(std::sqrt(each.made));
            }
            return nb::make_tuple(given, made);
        },
        "tensors"_a, "rule"_a, nb::kw_only(), "factors"_a, "lr"_a, "grad_scales"_a = std::vector<double>{1.0},
        "threads"_a, "track"_a = false);

    m.def(
        "step",
        [](nb::list parts, double grad_scale, int threads) { return step(parts, grad_scale, threads, false).norm; },
        "parts"_a, nb::kw_only(), "grad_scale"_a = 1.0, "threads"_a);

    m.def(
        "step_tracked",
        [](nb::list parts, double grad_scale, int threads) {
            npgm::Stepped const stepped = step(parts, grad_scale, threads, true);
            nb::list lengths;
            for (npgm::Lengths const& each : stepped.lengths) lengths.append(nb::make_tuple(each.given, each.made));
            return nb::make_tuple(stepped.norm, lengths);
        },
        "parts"_a, nb::kw_only(), "grad_scale"_a = 1.0, "threads"_a);

    m.def(
        "apply_sqrt",
        [](std::uintptr_t z, std::uintptr_t u, std::size_t rows, std::size_t columns, std::vector<double> const& q,
           int threads) {
            nb::gil_scoped_release const released;
            npgm::apply_sqrt(*npgm::instructions().tiles, reinterpret_cast<float const*>(z), reinterpret_cast<float*>(u),
                             rows, columns, q, threads);
        },
        "z"_a, "u"_a, nb::kw_only(), "rows"_a, "columns"_a, "q"_a, "threads"_a);

    npgm::bind_steppers(m);
}
