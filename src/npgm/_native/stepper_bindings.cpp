// The steppers of stepper.hpp in Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "driver.hpp"
#include "stepper.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace npgm {
namespace {

Shape shape_of(std::size_t runs, std::size_t size, std::string_view dtype) {
    return {runs, size, dtype == "float32" ? Dtype::float32 : dtype == "float64" ? Dtype::float64 : Dtype::none};
}

// Gives up the lock of the interpreter where that takes less time than the work.
class Released {
public:
    explicit Released(Stepper const& stepper) {
        if (stepper.runs * stepper.size > 50'000) release.emplace();
    }

private:
    std::optional<nb::gil_scoped_release> release;
};

// Of a method whose only option is the stepsize.
template <std::unique_ptr<Stepper> (*make)(Shape, double)>
void bind_with_lr(nb::module_& m, char const* name) {
    m.def(
        name,
        [](std::size_t runs, std::size_t size, std::string_view dtype, double lr) {
            return make(shape_of(runs, size, dtype), lr);
        },
        "runs"_a, "size"_a, "dtype"_a, nb::kw_only(), "lr"_a);
}

}  // namespace

void bind_steppers(nb::module_& m) {
    nb::class_<Stepper>(m, "Stepper")
        .def(
            "step",
            [](Stepper& stepper, std::uintptr_t x, std::uintptr_t gradient, std::uintptr_t last_x,
               std::uintptr_t last_gradient, std::uintptr_t following, std::uintptr_t norms, std::uintptr_t f,
               std::uintptr_t running, std::uintptr_t lr) {
                Released const released(stepper);
                stepper.step({x, gradient, last_x, last_gradient, following, reinterpret_cast<double const*>(norms),
                              reinterpret_cast<double const*>(f), reinterpret_cast<bool const*>(running),
                              reinterpret_cast<double*>(lr)});
            },
            "x"_a, "gradient"_a, "last_x"_a, "last_gradient"_a, "following"_a, "norms"_a, "f"_a, "running"_a, "lr"_a)
        .def(
            "judge",
            [](Stepper& stepper, std::uintptr_t gradient, std::uintptr_t next_gradient, std::uintptr_t f,
               std::uintptr_t next_f, std::uintptr_t norms, std::uintptr_t next_norms, std::uintptr_t taken) {
                Released const released(stepper);
                auto const numbers = [](std::uintptr_t address) { return reinterpret_cast<double const*>(address); };
                return stepper.judge({gradient, next_gradient, numbers(f), numbers(next_f), numbers(norms),
                                      numbers(next_norms), reinterpret_cast<bool*>(taken)});
            },
            "gradient"_a, "next_gradient"_a, "f"_a, "next_f"_a, "norms"_a, "next_norms"_a, "taken"_a)
        .def(
            "write_norms",
            [](Stepper const& stepper, std::uintptr_t gradient, std::uintptr_t f, std::uintptr_t norms) {
                Released const released(stepper);
                return stepper.write_norms(gradient, reinterpret_cast<double const*>(f), reinterpret_cast<double*>(norms));
            },
            "gradient"_a, "f"_a, "norms"_a);

    nb::class_<CompositeStepper, Stepper>(m, "CompositeStepper")
        .def(
            "total",
            [](CompositeStepper& stepper, std::uintptr_t x, std::uintptr_t gradient, std::uintptr_t f,
               std::uintptr_t moved, std::uintptr_t subgradient, std::uintptr_t value, std::uintptr_t norms) {
                Released const released(stepper);
                stepper.total(x, gradient, reinterpret_cast<double const*>(f), reinterpret_cast<bool const*>(moved),
                              subgradient, reinterpret_cast<double*>(value), reinterpret_cast<double*>(norms));
            },
            "x"_a, "gradient"_a, "f"_a, "moved"_a, "subgradient"_a, "value"_a, "norms"_a)
        .def(
            "write_decreases",
            [](CompositeStepper const& stepper, std::uintptr_t to) {
                stepper.write_decreases(reinterpret_cast<double*>(to));
            },
            "to"_a);

    m.def(
        "heavy_ball",
        [](std::size_t runs, std::size_t size, std::string_view dtype, double lr, double momentum,
           std::string_view kernel, std::vector<double> parameters, double scale, bool isotropic) {
            UpdateKind const kind = find_kernel(kernel, parameters.size());
            return heavy_ball(shape_of(runs, size, dtype), lr, momentum, {kind, std::move(parameters), scale, isotropic});
        },
        "runs"_a, "size"_a, "dtype"_a, nb::kw_only(), "lr"_a, "momentum"_a, "kernel"_a, "kernel_parameters"_a,
        "scale"_a, "isotropic"_a);
    nb::class_<NewtonOptions>(m, "NewtonOptions")
        .def_rw("memory", &NewtonOptions::memory)
        .def_rw("first", &NewtonOptions::first)
        .def_rw("curved", &NewtonOptions::curved)
        .def_rw("kept", &NewtonOptions::kept)
        .def_rw("straight", &NewtonOptions::straight)
        .def_rw("fade", &NewtonOptions::fade)
        .def_rw("gain", &NewtonOptions::gain)
        .def_rw("spread", &NewtonOptions::spread)
        .def_rw("clear", &NewtonOptions::clear)
        .def_rw("flatter", &NewtonOptions::flatter)
        .def_rw("steeper", &NewtonOptions::steeper)
        .def_rw("armijo", &NewtonOptions::armijo)
        .def_rw("steep", &NewtonOptions::steep)
        .def_rw("longer", &NewtonOptions::longer)
        .def_rw("last", &NewtonOptions::last)
        .def_rw("shortest", &NewtonOptions::shortest)
        .def_rw("longest", &NewtonOptions::longest)
        .def_rw("stretch", &NewtonOptions::stretch);
    nb::class_<AutoOptions, NewtonOptions>(m, "AutoOptions")
        .def(nb::init<>())
        .def_rw("momentum", &AutoOptions::momentum)
        .def_rw("safety", &AutoOptions::safety)
        .def_rw("discount", &AutoOptions::discount)
        .def_rw("decrease", &AutoOptions::decrease)
        .def_rw("calm", &AutoOptions::calm)
        .def_rw("saturated", &AutoOptions::saturated)
        .def_rw("scale", &AutoOptions::scale)
        .def_rw("relative_scale", &AutoOptions::relative_scale)
        .def_rw("quadratic", &AutoOptions::quadratic)
        .def_rw("newtons", &AutoOptions::newtons)
        .def_rw("window", &AutoOptions::window)
        .def_rw("cosine", &AutoOptions::cosine)
        .def_rw("least_degree", &AutoOptions::least_degree)
        .def_rw("largest_degree", &AutoOptions::largest_degree)
        .def_rw("budget", &AutoOptions::budget)
        .def_rw("calmed", &AutoOptions::calmed)
        .def_rw("sharper", &AutoOptions::sharper)
        .def_rw("rejections", &AutoOptions::rejections);
    nb::class_<CompositeOptions, NewtonOptions>(m, "CompositeOptions")
        .def(nb::init<>())
        .def_rw("decrease", &CompositeOptions::decrease)
        .def_rw("trials", &CompositeOptions::trials)
        .def_rw("far", &CompositeOptions::far)
        .def_rw("cosine", &CompositeOptions::cosine)
        .def_rw("discount", &CompositeOptions::discount);
    m.def(
        "address",
        [](nb::handle array) {
            Py_buffer view;
            if (PyObject_GetBuffer(array.ptr(), &view, PyBUF_ANY_CONTIGUOUS) != 0) throw nb::python_error();
            auto const address = reinterpret_cast<std::uintptr_t>(view.buf);
            PyBuffer_Release(&view);
            return address;
        },
        "array"_a);
    m.def(
        "automatic",
        [](std::size_t runs, std::size_t size, std::string_view dtype, AutoOptions const& options) {
            return automatic(shape_of(runs, size, dtype), options);
        },
        "runs"_a, "size"_a, "dtype"_a, "options"_a);
    m.def(
        "composite",
        [](std::size_t runs, std::size_t size, std::string_view dtype, CompositeOptions const& options,
           std::uintptr_t l1, std::uintptr_t l2, std::uintptr_t lower, std::uintptr_t upper) {
            auto const numbers = [](std::uintptr_t address) { return reinterpret_cast<double const*>(address); };
            return composite(shape_of(runs, size, dtype), options,
                             {numbers(l1), numbers(l2), numbers(lower), numbers(upper)});
        },
        "runs"_a, "size"_a, "dtype"_a, "options"_a, nb::kw_only(), "l1"_a = 0, "l2"_a = 0, "lower"_a = 0,
        "upper"_a = 0);
    m.def(
        "clipped",
        [](std::size_t runs, std::size_t size, std::string_view dtype, double lr, double max_step, double momentum,
           double nu) { return clipped(shape_of(runs, size, dtype), lr, max_step, momentum, nu); },
        "runs"_a, "size"_a, "dtype"_a, nb::kw_only(), "lr"_a, "max_step"_a, "momentum"_a, "nu"_a);
    bind_with_lr<adgd>(m, "adgd");
    bind_with_lr<adgd_accel>(m, "adgd_accel");
}

}  // namespace npgm
