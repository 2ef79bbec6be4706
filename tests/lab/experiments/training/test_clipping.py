"""The published rules of clipping, by sequences of norms that are computed by hand, and in an optimizer."""

import math

import pytest
import torch

from npgm.lab.experiments.training import clipping, optimizers


def cut(rule, sequence):
    """The norms that are left of a sequence of norms, of one tensor each."""
    state = {}
    return [norm * rule([norm], state)[0] for norm in sequence]


def test_zclip_cuts_an_outlier_the_more_the_further_out_it_is():
    norms = [1.0, 3.0] * 12 + [2.0]  # of mean 2 and variance 0.96
    far, further = (cut(clipping.zclip, [*norms, norm, 2.0])[25:] for norm in (10.0, 1e6))
    deviation = math.sqrt(0.96)
    assert far[0] == pytest.approx(2 + 2.5**2 * deviation / (8 / (deviation + 1e-6)))
    assert further[0] == pytest.approx(2 + 2.5**2 * deviation / (999998 / (deviation + 1e-6)))
    assert (far[1], cut(clipping.zclip, [*norms, 4.0])[25]) == (2.0, 4.0)  # which are no outliers
    state = {}
    for norm in (*norms, 1e6):
        clipping.zclip([norm], state)
    mean = 0.97 * 2 + 0.03 * further[0]
    assert state["mean"] == pytest.approx(mean)
    assert state["variance"] == pytest.approx(0.97 * 0.96 + 0.03 * (further[0] - mean) ** 2)


def test_adagc_cuts_each_tensor_by_its_own_average():
    state = {}
    assert clipping.adagc([3.0, 4.0], state) == [0.2, 0.2]
    for _ in range(99):
        assert clipping.adagc([0.3, 0.9], state) == [1.0, 1.0]
    assert state["averages"] == pytest.approx([0.3, 0.8])
    factors = clipping.adagc([3e5, 0.5], state)
    assert factors == pytest.approx([1.05 * 0.3 / 3e5, 1.0])
    assert state["averages"] == pytest.approx([0.98 * 0.3 + 0.02 * 1.05 * 0.3, 0.98 * 0.8 + 0.02 * 0.5])


def test_autoclip_cuts_at_a_percentile_of_all_norms():
    assert cut(clipping.autoclip, [1.0, 2.0, 11.0]) == pytest.approx([1.0, 1.1, 1.2])


@pytest.mark.parametrize("rule", clipping.RULES)
def test_a_rule_goes_on_from_a_state_dictionary(rule):
    gradients = torch.randn(130, 2, 5).double() * torch.rand(130, 2, 1) ** 4
    whole, parts = ([torch.zeros(5).double(), torch.zeros(5).double()] for _ in range(2))
    make = {"lr": 1.0, "clip": rule}
    [optimizer] = optimizers.build("sgd", {"a": whole[0], "b": whole[1]}, make)
    [before] = optimizers.build("sgd", {"a": parts[0], "b": parts[1]}, make)
    for k, gradient in enumerate(gradients):
        if k == 110:
            [after] = optimizers.build("sgd", {"a": parts[0], "b": parts[1]}, make)
            after.load_state_dict(before.state_dict())
            before = after
        for tensors, one in ((whole, optimizer), (parts, before)):
            for tensor, own in zip(tensors, gradient, strict=True):
                tensor.grad = own.clone()
            one.step()
    torch.testing.assert_close(whole, parts, rtol=0.0, atol=0.0)
    plain = -gradients.sum(0)
    assert any(not torch.allclose(tensor, own) for tensor, own in zip(whole, plain, strict=True))


def test_an_unknown_rule():
    with pytest.raises(ValueError, match="unknown clip 'x'; accepted: AdaGC, AutoClip, ZClip"):
        optimizers.update("sgd", {"lr": 0.1, "clip": "x"})
