"""The family of `Root` where closed forms are known, and against the hypergeometric series where they are not."""

import mpmath as mp
import numpy as np
import pytest

from backends import duals, primals, ulps
from npgm.kernels import Log, Root, Sqrt

DUAL = ["conjugate", "precondition", "curvature", "stationarity", "rescaling"]


@pytest.mark.parametrize(("kappa", "member"), [(1.0, Log()), (2.0, Sqrt())])
@pytest.mark.parametrize("name", ["__call__", "gradient", *DUAL])
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_members_with_names_of_their_own(kappa, member, name):
    x = duals(np.float64) if name in DUAL else primals(1.0, np.float64)
    assert ulps(getattr(Root(kappa), name)(x), getattr(member, name)(x), np.float64) <= 6
    assert Root(kappa)(1.0) == pytest.approx(float(member(1.0)), rel=1e-14)


@pytest.mark.parametrize("kappa", [1.0 + 1e-9, 1.1, 3.7, 50.0])
def test_values_are_those_of_the_hypergeometric_function(kappa):
    k = mp.mpf(kappa)
    kernel = Root(kappa)
    for y in np.geomspace(1e-3, 1e3, 25):
        exact = float(mp.mpf(y) ** 2 / 2 * mp.hyp2f1(1 / k, 2 / k, 1 + 2 / k, -(mp.mpf(y) ** k)))
        assert kernel.conjugate(y) == pytest.approx(exact, rel=2e-15)
        u = mp.mpf(y) / (1 + mp.mpf(y) ** k) ** (1 / k)
        assert kernel.stationarity(y) == pytest.approx(float(y * u) - exact, rel=2e-15, abs=1e-15 * y)


def test_kappa_is_checked():
    with pytest.raises(ValueError, match=r"kappa must be at least 1, not 0\.5"):
        Root(0.5)
    with pytest.raises(TypeError, match="kappa must be a real number, not '4'"):
        Root("4")
