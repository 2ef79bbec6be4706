"""The nonlinearly preconditioned gradient method for Keras 3, on its backends JAX and PyTorch.

>>> from npgm.keras import NGD                                             # doctest: +SKIP
>>> model.compile(NGD(0.1, momentum=0.9, scale=1.0), "mse")                # doctest: +SKIP
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras

from npgm._common import optimizers, validate
from npgm._common.array import Array, joint_norm, promote
from npgm.references import Isotropic, Reference, Spectral, as_reference
from npgm.references import reference as build
from npgm.references.training import like_sgd

__all__ = ["IHGD", "NGD", "NPGM", "SHGD", "SNGD"]

_BACKENDS = ("jax", "torch")


@keras.saving.register_keras_serializable("npgm")
class NPGM(keras.optimizers.Optimizer):  # type: ignore[misc]
    """Preconditioned gradients with momentum: m ← β m + (1-β) ∇φ*(∇f), x ← x - γ m, from m = 0.

    Algorithm 1 of the paper. An isotropic φ sees the gradients of all trainable variables as one vector, and so
    replaces ``global_clipnorm``; a separable φ acts on each entry. NaN and infinity in a gradient reach the variables,
    as in Keras's own optimizers; a `keras.optimizers.LossScaleOptimizer` skips such steps.

    Args:
        learning_rate: γ > 0: a float, a `LearningRateSchedule`, or a callable.
        momentum: β in [0, 1).
        reference: φ, isotropic or separable, or its name.
        scale: λ > 0, in place of that of ``reference``.
        lr_like: what ``learning_rate`` means: ``"paper"``, the γ of Algorithm 1, or ``"sgd"``, that of
            `keras.optimizers.SGD` with the same momentum, whose steps small gradients then make.
        **options: those of every Keras optimizer, such as ``weight_decay``, which is decoupled, ``use_ema``,
            ``gradient_accumulation_steps`` and ``name``.

    Raises:
        TypeError, ValueError: if an argument is not accepted, or the backend is neither JAX nor PyTorch.
    """

    def __init__(
        self,
        learning_rate: Any,
        momentum: float = 0.0,
        reference: Reference | str | dict[str, Any] = "isotropic-cosh",
        scale: float | None = None,
        lr_like: str = "paper",
        **options: Any,
    ) -> None:
        if (backend := keras.backend.backend()) not in _BACKENDS:
            raise ValueError(f"npgm.keras needs one of the backends {', '.join(_BACKENDS)}, not {backend!r}")
        super().__init__(learning_rate=learning_rate, **options)
        phi = build(**reference) if isinstance(reference, dict) else as_reference(reference)
        if isinstance(phi, Spectral):
            raise ValueError(f"npgm.keras takes an isotropic or separable reference function, not {phi!r}")
        self.phi = phi if scale is None else phi.with_scale(scale)
        self.momentum = validate.fraction("momentum", momentum)
        self.lr_like = validate.choice("lr_like", lr_like, optimizers.LR_LIKE)
        self._factor = 1.0
        if lr_like == "sgd":
            self._factor = like_sgd(self.phi, self.phi.scale, self.momentum, follows=False)

    def build(self, variables: Sequence[Any]) -> None:
        """Make the momentum of each variable."""
        if self.built:
            return
        super().build(variables)
        self._momenta = self.add_optimizer_variables(variables, "momentum") if self.momentum else []

    def update_step(self, gradient: Array, variable: Any, learning_rate: Any) -> None:
        """Move one variable along its preconditioned gradient, which `_backend_update_step` hands over."""
        ops = keras.ops
        u = ops.cast(gradient, variable.dtype)
        if self._momenta:
            momentum = self._momenta[self._get_variable_index(variable)]
            self.assign_add(momentum, ops.multiply(ops.subtract(u, momentum), 1.0 - self.momentum))
            u = ops.convert_to_tensor(momentum)
        lr = ops.multiply(ops.cast(learning_rate, variable.dtype), self._factor)
        self.assign_sub(variable, ops.multiply(u, lr))

    def _backend_update_step(self, grads: Sequence[Array], variables: Sequence[Any], learning_rate: Any) -> None:
        # Keras calls this once a step with all gradients: the one place where the norm of all of them can be taken
        for gradient, variable in zip(self._preconditioned(list(grads)), variables, strict=True):
            self.update_step(gradient, variable, learning_rate)

    def _preconditioned(self, grads: list[Array]) -> list[Array]:
        if not isinstance(self.phi, Isotropic):
            return [self.phi.precondition(g) for g in grads]
        m, q = joint_norm(grads)
        xp, m, _ = promote(m)
        factor = self.phi.factor(xp, m, q)
        return [restore(g / m * factor) for _, g, restore in map(promote, grads)]

    def get_config(self) -> dict[str, Any]:
        """Return what `from_config` builds the optimizer from: φ by its name, λ and the kernel's parameters."""
        phi = {"name": self.phi.name, "scale": self.phi.scale, **dataclasses.asdict(self.phi.kernel)}  # type: ignore[call-overload]
        own = {"momentum": self.momentum, "reference": phi, "lr_like": self.lr_like}
        return super().get_config() | own  # type: ignore[no-any-return]


class _Named(NPGM):
    """A method whose reference function is part of its name."""

    lift_and_kernel: str

    def __init__(
        self, learning_rate: Any, momentum: float = 0.0, scale: float = 1.0, lr_like: str = "paper", **options: Any
    ) -> None:
        reference = build(self.lift_and_kernel, scale=scale)
        super().__init__(learning_rate, momentum, reference, lr_like=lr_like, **options)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        return config | {"scale": config.pop("reference")["scale"]}


@keras.saving.register_keras_serializable("npgm")
class IHGD(_Named):
    """`NPGM` with φ(x) = λ(cosh‖x‖ - 1): steps of length arsinh(‖g‖/λ)."""

    lift_and_kernel = "isotropic-cosh"


@keras.saving.register_keras_serializable("npgm")
class SHGD(_Named):
    """`NPGM` with φ(x) = λ Σ(cosh xᵢ - 1): steps of arsinh(gᵢ/λ) in each entry."""

    lift_and_kernel = "separable-cosh"


@keras.saving.register_keras_serializable("npgm")
class NGD(_Named):
    """`NPGM` with u = g/(λ + ‖g‖), smooth clipping of the norm of all gradients."""

    lift_and_kernel = "isotropic-log"


@keras.saving.register_keras_serializable("npgm")
class SNGD(_Named):
    """`NPGM` with uᵢ = gᵢ/(λ + |gᵢ|) in each entry."""

    lift_and_kernel = "separable-log"
