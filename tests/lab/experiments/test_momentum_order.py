"""The experiments on the order of momentum."""

import numpy as np
import pytest
import scipy.stats

from npgm.lab import experiments
from npgm.lab.experiments.solving import instances


def test_the_family_has_its_name():
    names = [f"momentum-order-{name}" for name in ("gpt", "phase", "rnn", "skewed", "symmetric")]
    assert sorted(experiments.chosen("momentum-order")) == names


@pytest.mark.parametrize(("noise", "skewness", "least_excess"), [("normal", 0.0, -0.3), ("skewed", 2.67, 3.0)])
def test_the_noise_is_what_it_is_called(noise, skewness, least_excess):
    line = instances.registry["noisy-line"](noise, threads=1)
    fun, start = line.objective(range(5000)), line.starts(range(5000))
    f, gradients = fun(start)
    noises = (gradients - start)[:, 0]
    np.testing.assert_allclose(f, 2.0)
    assert abs(noises.mean()) < 0.2
    assert noises.std() == pytest.approx(3.0, rel=0.1)
    assert scipy.stats.skew(noises) == pytest.approx(skewness, abs=0.3)
    assert scipy.stats.kurtosis(noises) > least_excess
    assert (gradients != 0.0).all()  # where a run would end


def test_heavy_noise_has_no_variance_and_a_median_of_zero():
    line = instances.registry["noisy-line"]("heavy", threads=1)
    start = line.starts(range(5000))
    noises = np.abs((line.objective(range(5000))(start)[1] - start)[:, 0])
    assert np.mean((line.objective(range(5000))(start)[1] - start) > 0.0) == pytest.approx(0.5, abs=0.03)
    largest = np.sort(noises)[-250:]
    assert 1.0 / np.mean(np.log(largest[1:] / largest[0])) == pytest.approx(1.5, abs=0.3)
    with pytest.raises(ValueError, match="noise"):
        instances.registry["noisy-line"]("none", threads=1)
