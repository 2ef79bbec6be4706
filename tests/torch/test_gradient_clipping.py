"""The statements of docs/gradient-clipping.md."""

import functools
import math

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler

import npgm
from npgm import references
from npgm.torch import IHGD, NGD, NPGM, SHGD, SNGD
from tensors import each_way

LR, RADIUS = 0.1, 2.0


def step(make, gradient, clip=None):
    """Return the step that an optimizer makes from zero."""
    p = torch.zeros_like(gradient, requires_grad=True)
    p.grad = gradient.clone()
    if clip is not None:
        clip([p])
    make([p]).step()
    return -p.detach()


def sgd(params):
    return torch.optim.SGD(params, lr=LR)


def clip_norm(params):
    torch.nn.utils.clip_grad_norm_(params, RADIUS)


def clip_value(params):
    torch.nn.utils.clip_grad_value_(params, RADIUS)


def of_norm(size):
    direction = torch.tensor([1.0, -2.0, 2.0], dtype=torch.float64) / 3
    return size * direction


REPLACEMENTS = {"ngd": NGD, "ihgd": IHGD, "sngd": SNGD, "shgd": SHGD}


@pytest.mark.parametrize("name", REPLACEMENTS)
def test_small_gradients_make_the_steps_of_sgd(name):
    gradient = of_norm(1e-4 * RADIUS)
    replaced = step(lambda ps: REPLACEMENTS[name](ps, lr=LR * RADIUS, scale=RADIUS), gradient)
    clip = clip_value if name.startswith("s") else clip_norm
    torch.testing.assert_close(replaced, step(sgd, gradient, clip), rtol=2e-4, atol=0)
    torch.testing.assert_close(replaced, LR * gradient, rtol=2e-4, atol=0)


def test_large_gradients_make_clipping_and_ihgd_logarithmic():
    gradient = of_norm(1e6 * RADIUS)
    clipped = step(sgd, gradient, clip_norm)
    assert torch.linalg.vector_norm(clipped).item() == pytest.approx(LR * RADIUS, rel=1e-6)
    torch.testing.assert_close(
        step(lambda ps: NGD(ps, LR * RADIUS, scale=RADIUS), gradient), clipped, rtol=2e-6, atol=0
    )
    of_values = step(sgd, gradient, clip_value)
    torch.testing.assert_close(
        step(lambda ps: SNGD(ps, LR * RADIUS, scale=RADIUS), gradient), of_values, rtol=1e-5, atol=0
    )
    for size in (1e3, 1e6):
        moved = step(lambda ps: IHGD(ps, LR * RADIUS, scale=RADIUS), of_norm(size * RADIUS))
        assert torch.linalg.vector_norm(moved).item() == pytest.approx(LR * RADIUS * math.asinh(size))


@pytest.mark.parametrize(("cls", "clip"), [(IHGD, clip_norm), (SHGD, clip_value)])
def test_the_logarithm_needs_a_stepsize_divided_by_its_value(cls, clip):
    gradient = of_norm(100.0 * RADIUS) if cls is IHGD else torch.full((3,), 100.0 * RADIUS, dtype=torch.float64)
    clipped = step(sgd, gradient, clip)
    assert 5.2 < math.asinh(100.0) < 5.35
    torch.testing.assert_close(step(lambda ps: cls(ps, LR * RADIUS, scale=RADIUS), gradient), math.asinh(100) * clipped)
    for below in (1.0, 10.0, 1e3):
        lr, scale = LR * RADIUS / math.asinh(below), 100.0 * RADIUS / below
        torch.testing.assert_close(step(functools.partial(cls, lr=lr, scale=scale), gradient), clipped)


def test_ngd_is_shorter_than_clipping_by_at_most_2():
    ratios = []
    for size in np.logspace(-3, 3, 61):  # its middle is 1
        gradient = of_norm(size * RADIUS)
        ngd = step(lambda ps: NGD(ps, LR * RADIUS, scale=RADIUS), gradient)
        ratios.append((torch.linalg.vector_norm(step(sgd, gradient, clip_norm)) / torch.linalg.vector_norm(ngd)).item())
    assert min(ratios) >= 1
    assert max(ratios) == pytest.approx(2, rel=1e-6)
    assert np.argmax(ratios) == 30


def test_the_table_of_directions():
    gradient, c = of_norm(3.0), RADIUS
    r = 3.0 / c
    for cls, want in [
        (NGD, gradient / (1 + r)),
        (IHGD, gradient * math.asinh(r) / r),
        (SNGD, gradient / (1 + gradient.abs() / c)),
        (SHGD, c * torch.asinh(gradient / c)),
    ]:
        torch.testing.assert_close(step(lambda ps, cls=cls: cls(ps, LR * c, scale=c), gradient), LR * want)
    torch.testing.assert_close(
        step(lambda ps: NGD(ps, LR, scale=1e-9), gradient), LR * gradient / 3.0, rtol=1e-8, atol=0
    )


def test_scope_tensor_is_clipping_of_each_tensor():
    params = [torch.zeros(3, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    for p, size in zip(params, (1e6, 1e-6), strict=True):
        p.grad = of_norm(size)
    NGD(params, LR * RADIUS, scale=RADIUS, scope="tensor").step()
    for p in params:
        torch.testing.assert_close(-p.detach(), step(sgd, p.grad, clip_norm), rtol=1e-5, atol=0)


@each_way
@pytest.mark.parametrize(
    "decay", [{}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "decoupled_weight_decay": True}], ids=str
)
@pytest.mark.parametrize("beta", [0.0, 0.9])
@pytest.mark.parametrize("lr", [LR, torch.tensor(LR, dtype=torch.float64)], ids=type)
def test_with_lr_like_sgd_hard_clipping_is_that_of_the_script(beta, decay, path, lr):
    own, other = (torch.ones(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    lr = lr.clone() if isinstance(lr, torch.Tensor) else lr  # which schedules change in place
    numbers = {"lr": lr, "momentum": beta, "scale": RADIUS, "lr_like": "sgd"}
    optimizer = NPGM([own], reference="isotropic-huber", **numbers, **decay, **path)
    script = torch.optim.SGD([other], LR, momentum=beta)
    schedules = [torch.optim.lr_scheduler.ExponentialLR(one, 0.5) for one in (optimizer, script)]
    for size in (0.1, 5.0, -2.0, 0.3):
        own.grad, other.grad = of_norm(size * RADIUS), of_norm(size * RADIUS)
        if "decoupled_weight_decay" in decay:
            other.data.mul_(1 - 0.1 * script.param_groups[0]["lr"])
        elif decay:
            other.grad += 0.1 * other.detach()
        other.grad *= min(1.0, float(RADIUS / torch.linalg.vector_norm(other.grad)))
        for one in (optimizer, script, *schedules):
            one.step()
        torch.testing.assert_close(own, other, rtol=1e-12, atol=1e-12)


SCHEDULES = {
    "one-cycle": lambda opt: lr_scheduler.OneCycleLR(opt, LR, total_steps=40, cycle_momentum=False),
    "one-cycle, momentum too": lambda opt: lr_scheduler.OneCycleLR(opt, LR, total_steps=40),
    "warmup": lambda opt: lr_scheduler.SequentialLR(
        opt, [lr_scheduler.LinearLR(opt, 0.1, total_iters=5), lr_scheduler.CosineAnnealingLR(opt, 35)], [5]
    ),
    "plateau": lambda opt: lr_scheduler.ReduceLROnPlateau(opt, patience=2),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_carry_over_unless_they_cycle_momentum(name):
    own, other = (torch.ones(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    numbers = {"lr": LR, "momentum": 0.9, "scale": RADIUS, "lr_like": "sgd"}
    pair = NPGM([own], reference="isotropic-huber", **numbers), torch.optim.SGD([other], LR, momentum=0.9)
    schedules = [SCHEDULES[name](opt) for opt in pair]
    for k in range(40):
        own.grad, other.grad = of_norm(RADIUS * (1 + k % 5) / 3), of_norm(min(RADIUS, RADIUS * (1 + k % 5) / 3))
        for opt, schedule in zip(pair, schedules, strict=True):
            opt.step()
            schedule.step(*([1.0] if name == "plateau" else []))
    same = torch.allclose(own, other, rtol=1e-10, atol=1e-10)
    assert same == (name != "one-cycle, momentum too")


@pytest.mark.parametrize(
    "name", ["isotropic-log", "separable-cosh", "isotropic-logx2", "separable-artanh", "spectral-sqrt"]
)
@pytest.mark.parametrize("order", ["after", "before"])
def test_with_lr_like_sgd_small_gradients_take_the_steps_of_sgd(name, order):
    own, other = (torch.ones(2, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    optimizer = NPGM([own], LR, 0.9, name, scale=1e8, lr_like="sgd", momentum_order=order)
    undamped = torch.optim.SGD([other], LR, momentum=0.9)
    for seed in range(4):
        own.grad = torch.randn(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        other.grad = own.grad.clone()
        optimizer.step()
        undamped.step()
    torch.testing.assert_close(own, other, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr_like": "adam"}, "unknown lr_like 'adam'; accepted: paper, sgd"),
        ({"lr_like": "sgd", "scale": "auto"}, "needs a number as scale"),
        ({"lr_like": "sgd", "reference": "isotropic-pow"}, "needs a φ whose ∇φ\\* is linear at small gradients"),
    ],
)
def test_what_lr_like_does_not_go_with(options, message):
    with pytest.raises(ValueError, match=message):
        NPGM([torch.ones(1)], LR, **options)


@pytest.mark.parametrize("beta", [0.5, 0.9])
def test_momentum_carries_over(beta):
    own, other = (torch.zeros(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    linear = NPGM([own], LR / (1 - beta), beta, "isotropic-quad")
    undamped = torch.optim.SGD([other], LR, momentum=beta)
    for size in (1.0, 5.0, -2.0, 0.3):
        own.grad, other.grad = of_norm(size), of_norm(size)
        linear.step()
        undamped.step()
        torch.testing.assert_close(own, other)

    huge = NGD([own], 1.0, beta, scale=RADIUS)
    own.grad = of_norm(1e9)
    huge.step()
    assert torch.linalg.vector_norm(huge.state[own]["momentum_buffer"]) <= 1


def test_a_call_that_is_left_in_place():
    gradient = of_norm(1e3)
    # a radius below the scale: close to clipping alone
    small = step(
        lambda ps: NGD(ps, LR * 100, scale=100.0), gradient, lambda ps: torch.nn.utils.clip_grad_norm_(ps, 1.0)
    )
    assert torch.linalg.vector_norm(small).item() == pytest.approx(LR, rel=0.011)
    # a large one does nothing
    large = step(lambda ps: NGD(ps, LR, scale=RADIUS), gradient, lambda ps: torch.nn.utils.clip_grad_norm_(ps, 1e4))
    torch.testing.assert_close(large, step(lambda ps: NGD(ps, LR, scale=RADIUS), gradient))


def test_norms_that_are_only_read():
    p = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    p.grad = of_norm(7.0)
    assert torch.nn.utils.get_total_norm([p.grad]).item() == pytest.approx(7.0)
    assert torch.nn.utils.clip_grad_norm_([p], math.inf).item() == pytest.approx(7.0)
    assert torch.equal(p.grad, of_norm(7.0))


def test_what_is_not_finite():
    for make, error in [
        (lambda ps: torch.nn.utils.clip_grad_norm_(ps, 1.0, error_if_nonfinite=True), "non-finite"),
        (
            lambda ps: NGD(ps, LR, nonfinite="raise").step(),
            "the gradient of parameter 0 of group 0 contains NaN or infinity",
        ),
    ]:
        p = torch.zeros(2, requires_grad=True)
        p.grad = torch.tensor([torch.nan, 1.0])
        with pytest.raises(RuntimeError, match=error):
            make([p])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of libraries that we do not own
def test_what_trainers_do_by_themselves():
    transformers = pytest.importorskip("transformers")
    assert transformers.TrainingArguments(output_dir="unused", use_cpu=True).max_grad_norm == 1.0
    lightning = pytest.importorskip("lightning")
    assert lightning.Trainer(logger=False, accelerator="cpu").gradient_clip_val is None
    half = lightning.pytorch.plugins.MixedPrecision("16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu"))
    optimizer = NGD([torch.zeros(1, requires_grad=True)], LR)
    with pytest.raises(RuntimeError, match="does not allow for gradient clipping because it performs unscaling"):
        half.clip_gradients(optimizer, 1.0)


@pytest.mark.parametrize("name", references.names("isotropic", "separable"))
def test_a_scaled_gradient_is_another_scale_of_the_reference(name):
    gradient = of_norm(3.0)
    scaled = npgm.reference(name, scale=8.0).precondition(4.0 * gradient)
    torch.testing.assert_close(scaled, npgm.reference(name, scale=2.0).precondition(gradient), rtol=1e-14, atol=0)


@pytest.mark.parametrize("cls", REPLACEMENTS.values())
def test_mean_sum_and_accumulation(cls):
    torch.manual_seed(0)
    x, y = torch.randn(8, 3, dtype=torch.float64), 10 * torch.randn(8, dtype=torch.float64)

    def run(scale, losses):
        p = torch.zeros(3, dtype=torch.float64, requires_grad=True)
        optimizer = cls([p], LR, scale=scale)
        for part in losses(p):
            part.backward()
        optimizer.step()
        return p.detach()

    def residuals(p, rows=slice(None)):
        return (x[rows] @ p - y[rows]).square()

    whole = run(RADIUS, lambda p: [residuals(p).mean()])
    summed = run(RADIUS, lambda p: [residuals(p).sum()])
    torch.testing.assert_close(summed, run(RADIUS / 8, lambda p: [residuals(p).mean()]))
    assert not torch.allclose(summed, whole)
    accumulated = run(RADIUS, lambda p: [residuals(p, slice(i, i + 2)).mean() / 4 for i in range(0, 8, 2)])
    torch.testing.assert_close(accumulated, whole)


def test_weight_decay_is_preconditioned_unless_decoupled():
    p, q = (torch.full((1,), 1e6, dtype=torch.float64, requires_grad=True) for _ in range(2))
    p.grad, q.grad = torch.zeros_like(p), torch.zeros_like(q)
    NGD([p], LR, weight_decay=0.1, scale=1.0).step()
    NGD([q], LR, weight_decay=0.1, scale=1.0, decoupled_weight_decay=True).step()
    assert 1e6 - p.item() == pytest.approx(LR, rel=1e-4)  # bounded, as every gradient is
    assert q.item() == pytest.approx(1e6 * (1 - LR * 0.1))


@pytest.mark.parametrize("unscale", [False, True])
@pytest.mark.parametrize("cls", REPLACEMENTS.values())
def test_mixed_precision_recipe(cls, unscale):
    params = [torch.full((3,), 2.0, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    optimizers = [cls([p], LR, 0.9) for p in params]
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(3):
        scaler.scale(params[0].pow(4).sum()).backward()
        if unscale:
            scaler.unscale_(optimizers[0])
        scaler.step(optimizers[0])
        scaler.update()
        params[1].pow(4).sum().backward()
        optimizers[1].step()
        for optimizer in optimizers:
            optimizer.zero_grad()
    torch.testing.assert_close(*params)


def test_the_logged_norm_and_the_share_of_steps_beyond_the_scale():
    torch.manual_seed(0)
    p = torch.zeros(7, requires_grad=True)
    optimizer = IHGD([p], lr=0.1, scale=RADIUS)
    beyond, clipped, steps = 0, 0, 6
    for step in range(steps):
        p.grad = torch.randn(7) * step / 2
        norm = torch.nn.utils.clip_grad_norm_([p], math.inf)
        optimizer.step()
        torch.testing.assert_close(optimizer.last_grad_norm, norm.double())
        beyond += optimizer.last_grad_norm > RADIUS
        clipped += int(norm > RADIUS)
    assert 0 < beyond / steps == clipped / steps < 1
