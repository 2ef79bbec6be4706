#include "exchange.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

namespace nb = nanobind;

namespace npgm {

using DLTensor = nb::dlpack::dltensor;

// `DLPackExchangeAPI` of dlpack.h. The start is the same in all versions.
struct DLPackFunctions {
    std::uint32_t major, minor;
    DLPackFunctions const* earlier;
    void *allocate, *share, *receive;
    int (*lend)(void* object, DLTensor* result);
    void* stream;
};

namespace {

Dtype dtype_of(nb::dlpack::dtype dtype) {
    auto const is = [&](nb::dlpack::dtype_code code, int bits) {
        return dtype.code == static_cast<std::uint8_t>(code) && dtype.bits == bits && dtype.lanes == 1;
    };
    using enum nb::dlpack::dtype_code;
    if (is(Float, 32)) return Dtype::float32;
    if (is(Float, 64)) return Dtype::float64;
    if (is(Bfloat, 16)) return Dtype::bfloat16;
    if (is(Float, 16)) return Dtype::float16;
    return Dtype::none;
}

std::uintptr_t address(DLTensor const& tensor) {
    return reinterpret_cast<std::uintptr_t>(tensor.data) + tensor.byte_offset;
}

std::size_t size_of(DLTensor const& tensor) {
    std::int64_t size = 1;
    for (std::int32_t i = 0; i < tensor.ndim; ++i) size *= tensor.shape[i];
    return static_cast<std::size_t>(size);
}

// Whether the entries fill the memory from the first to the last, in any order of the dimensions.
bool is_dense(DLTensor const& tensor) {
    if (size_of(tensor) == 0) return true;
    std::int64_t expected = 1;
    std::int32_t i = tensor.ndim;
    while (i > 0 && (tensor.shape[i - 1] == 1 || tensor.strides[i - 1] == expected)) expected *= tensor.shape[--i];
    if (i == 0) return true;
    std::vector<std::pair<std::int64_t, std::int64_t>> dimensions;
    for (i = 0; i < tensor.ndim; ++i)
        if (tensor.shape[i] != 1) dimensions.emplace_back(tensor.strides[i], tensor.shape[i]);
    std::sort(dimensions.begin(), dimensions.end());
    expected = 1;
    for (auto const& [stride, size] : dimensions) {
        if (stride != expected) return false;
        expected *= size;
    }
    return true;
}

bool same_layout(DLTensor const& a, DLTensor const& b) {
    if (a.ndim != b.ndim) return false;
    for (std::int32_t i = 0; i < a.ndim; ++i)
        if (a.shape[i] != b.shape[i] || (a.shape[i] != 1 && a.strides[i] != b.strides[i])) return false;
    return true;
}

}  // namespace

std::optional<Exchange> Exchange::of(nb::capsule table, nb::tuple types) {
    if (types.size() == 0) throw std::invalid_argument("there must be at least one type of tensors");
    for (auto const* functions = static_cast<DLPackFunctions const*>(table.data("dlpack_exchange_api"));
         functions != nullptr; functions = functions->earlier)
        if (functions->major == 1 && functions->lend != nullptr) return Exchange(functions, types);
    return std::nullopt;
}

Exchange::Exchange(DLPackFunctions const* functions, nb::tuple types)
    : functions(functions), types(types), is_neg(types[0].attr("is_neg")) {}

// Whether `object` is one whose memory may be used, which is then described by `result`.
bool Exchange::lend(PyObject* object, DLTensor& result) const {
    auto* const type = reinterpret_cast<PyObject*>(Py_TYPE(object));
    bool known = false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(types.ptr()); ++i)
        known = known || type == PyTuple_GET_ITEM(types.ptr(), i);
    if (!known) return false;
    if (functions->lend(object, &result) != 0) {
        PyErr_Clear();
        return false;
    }
    if (result.device.device_type != nb::device::cpu::value) return false;
    // zeros that are only implied, and the wrappers of functionalization, are of a plain type and have no memory
    if (result.data == nullptr && size_of(result) != 0) return false;
    // DLPack does not tell of a negation that is still to be done
    nb::object const negated = nb::steal(PyObject_Vectorcall(is_neg.ptr(), &object, 1, nullptr));
    if (!negated.is_valid()) throw nb::python_error();
    return negated.is(Py_False);
}

std::optional<Tensors> Exchange::tensors(nb::list parameters, nb::list gradients, nb::list momentum) const {
    std::size_t const count = parameters.size();
    if (count == 0 || gradients.size() != count || (momentum.size() != 0 && momentum.size() != count))
        return std::nullopt;

    // One list after the other: objects that were made one after the other are fetched in advance by the processor.
    std::vector<DLTensor> leading(count);
    auto const take = [&](nb::list const& objects, std::vector<std::uintptr_t>& addresses) {
        bool const leads = &objects == &parameters;
        Dtype dtype = Dtype::none;
        addresses.reserve(count);
        for (std::size_t i = 0; i < count; ++i) {
            DLTensor tensor;
            if (!lend(PyList_GET_ITEM(objects.ptr(), static_cast<Py_ssize_t>(i)), tensor)) return Dtype::none;
            if (leads) leading[i] = tensor;
            if (!(leads ? is_dense(tensor) : same_layout(tensor, leading[i]))) return Dtype::none;
            if (i == 0) dtype = dtype_of(tensor.dtype);
            if (dtype_of(tensor.dtype) != dtype) return Dtype::none;
            addresses.push_back(address(tensor));
        }
        return dtype;
    };
    Tensors result{};
    result.dtype = take(parameters, result.parameters);
    if (result.dtype == Dtype::none || take(gradients, result.gradients) != result.dtype) return std::nullopt;
    result.momentum_dtype = Dtype::none;
    if (momentum.size() != 0) {
        result.momentum_dtype = take(momentum, result.momentum);
        if (result.momentum_dtype == Dtype::none) return std::nullopt;
    }
    if (!has_step(result.dtype, result.momentum_dtype)) return std::nullopt;
    result.sizes.reserve(count);
    for (DLTensor const& tensor : leading) result.sizes.push_back(size_of(tensor));
    if (overlaps_itself(result)) return std::nullopt;
    return result;
}

}  // namespace npgm
