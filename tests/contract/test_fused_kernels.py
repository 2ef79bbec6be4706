"""The kernels that have a fused step, in C++ and in Triton: known by key, and entered in one file each."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

import npgm
from npgm import _native
from npgm.kernels import registry

SOURCE = Path(npgm.__file__).parent
FUSED = {"_native/kernels.hpp", "torch/triton/preconditioners.py"}


def own():
    return {key: cls for key, cls in registry.items() if cls.__module__.startswith("npgm.kernels.")}


@pytest.mark.skipif(not _native.available(), reason="no native module")
def test_the_native_table_is_of_the_registry():
    table = _native.core().kernels
    assert table == {key: len(fields(registry[key])) for key in table}
    assert table.keys() <= own().keys()


def test_the_table_of_triton_is_of_the_registry():
    preconditioners = pytest.importorskip("npgm.torch.triton.preconditioners", exc_type=ImportError)
    assert preconditioners.PRECONDITIONERS.keys() <= own().keys()
    assert not any(fields(registry[key]) for key in preconditioners.PRECONDITIONERS), "its functions have no parameters"


def test_a_kernel_is_fused_by_two_files_beside_its_class():
    """As CONTRIBUTING says: no other file of the rooms that take fused steps knows a kernel that it does not choose."""
    text = {
        path.relative_to(SOURCE).as_posix(): path.read_text()
        for room in ("_native", "torch")
        for path in (SOURCE / room).rglob("*")
        if path.suffix in {".py", ".pyi", ".hpp", ".cpp"}
    }
    text = {name: content for name, content in text.items() if not name.startswith("torch/spectral/")}  # never fused
    chosen = {"cosh", "log", "quad", "sqrt"}  # by IHGD, NGD, gradient descent and SpectralGD
    for key, cls in own().items():
        if key in chosen:
            continue
        named = re.compile(rf'\b{cls.__name__}\b|"{key}"')
        assert {name for name, content in text.items() if named.search(content)} <= FUSED, key
