"""Nothing of npgm is computed in the 16 bits of a caller's autocast; steps are tested in test_optimizer.py."""

import pytest
import torch

import npgm
from npgm import references


@pytest.mark.slow
@pytest.mark.parametrize("name", references.names())
@pytest.mark.parametrize("shape", [(50_000,), (2, 50_000)])
def test_reference_functions(name, shape):
    if name.startswith("spectral") and shape == (50_000,):
        return
    phi = npgm.reference(name)
    y = torch.full(shape, 1.5)
    axis = -1 if phi.lift != "spectral" and len(shape) == 2 else None
    functions = [phi.precondition, phi.conjugate, phi.stationarity, lambda y, axis: phi.conjugate_hvp(y, y, axis)]
    for function in functions:
        want = function(y, axis)
        with torch.autocast("cpu", torch.float16):
            assert torch.equal(function(y, axis), want)


def test_minimize():
    def fun(x):
        with torch.autocast("cpu", enabled=False):  # the caller's own affair
            return 0.5 * x @ x, x

    x0 = torch.ones(200_000)
    want = npgm.minimize(fun, x0, jac=True, lr=0.5, maxiter=5)
    with torch.autocast("cpu", torch.float16):
        got = npgm.minimize(fun, x0, jac=True, lr=0.5, maxiter=5)
    assert torch.equal(got.x, want.x)
    assert got.nit == want.nit
