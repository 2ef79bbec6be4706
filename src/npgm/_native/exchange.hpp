// The tensors of another library, read through the functions in C that it offers by DLPack.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>

#include "driver.hpp"

namespace npgm {

struct DLPackFunctions;

// Reads pointers, dtypes and strides without a call of Python for each.
class Exchange {
public:
    // Of the `__dlpack_c_exchange_api__` of a type of tensors; none if it is of a version that is not known here.
    static std::optional<Exchange> of(nanobind::capsule table, nanobind::tuple types);

    // None unless all are objects of exactly one of the types, dense in the memory of the CPU, with gradients and
    // momentum laid out as their parameters are and not in the same memory, and of dtypes for which there is a step.
    std::optional<Tensors> tensors(nanobind::list parameters, nanobind::list gradients, nanobind::list momentum) const;

private:
    Exchange(DLPackFunctions const* functions, nanobind::tuple types);
    bool lend(PyObject* object, nanobind::dlpack::dltensor& result) const;

    DLPackFunctions const* functions;
    nanobind::tuple types;
    nanobind::object is_neg;
};

}  // namespace npgm
