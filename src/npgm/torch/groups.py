"""A parameter group as a dictionary: its options are checked, stored for a checkpoint, and read from an older one."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from npgm._common import validate
from npgm.kernels import registry
from npgm.references import Isotropic, Reference, Spectral, reference
from npgm.references.training import default_scope, like_sgd
from npgm.torch.options import SPECTRAL, TABLE, defaults


def without_effect(group: dict[str, Any]) -> dict[str, str]:
    """Return the options that have no effect with the others of a group, each with what it is for."""
    lift, _, _ = group["reference"].partition("-")
    names = {} if lift == Spectral.lift else dict.fromkeys(SPECTRAL, "a spectral reference function")
    if group["scale"] != "auto":
        names |= dict.fromkeys(("relative_scale", "scale_decay"), "scale='auto'")
        if lift != Isotropic.lift and group["limit"] is None:
            names["scope"] = "an isotropic reference function, scale='auto' or a limit"
    return names


def upgraded(group: dict[str, Any]) -> dict[str, Any]:
    """Return a group that an earlier release may have saved, with the options that there are now."""
    group = defaults() | group
    if (ratio := group.pop("relative", None)) is not None:
        group |= {"scale": "auto", "relative_scale": ratio, "scale_decay": 0.0}
    return group | {name: defaults()[name] for name in without_effect(group)}


def checked(group: dict[str, Any]) -> dict[str, Any]:
    """Return the group with its options checked and its numbers as plain floats.

    Raises:
        TypeError, ValueError: if an option is not accepted, or has no effect with the others.
    """
    if "relative" in group:
        raise ValueError("there is no option relative; write scale='auto', relative_scale=relative, scale_decay=0")
    group = group | {option.name: option.metadata["check"](option.name, group[option.name]) for option in TABLE}
    for one, other in (("foreach", "differentiable"), ("fused", "foreach")):
        if group[one] and group[other]:
            raise ValueError(f"`{one}` and `{other}` cannot be `True` together.")
    if group["fused"] and group["differentiable"]:
        raise ValueError("`fused` does not support `differentiable`.")
    if group["capturable"] and group["nonfinite"] == "raise":
        raise ValueError("`capturable` cannot be combined with nonfinite='raise', which waits for the device.")
    phi = checked_reference(group)
    automatic = group["scale"] == "auto"
    for pair in (("capturable", "prox"), ("differentiable", "prox"), ("limit", "differentiable")):
        if all(group[name] not in (None, False) for name in pair):
            raise ValueError(f"{' and '.join(pair)} cannot be combined")
    default = defaults()
    for name, what in without_effect(group | {"reference": phi.name}).items():
        if (value := group[name]) != default[name]:
            raise ValueError(
                f"{name}={value!r} has no effect with {phi.name}, scale={group['scale']!r}: it is for {what}"
            )
    if group["nesterov"] and not group["momentum"]:
        raise ValueError("nesterov needs momentum > 0")
    if automatic and group["differentiable"]:
        raise ValueError("scale='auto' and differentiable cannot be combined")
    if group["lr_like"] == "sgd":
        like_sgd(phi, phi.scale, group["momentum"], follows=automatic)
    return group | stored(phi) | ({"scale": "auto"} if automatic else {})


def scope_of(group: dict[str, Any]) -> str:
    """Return the scope of a group, where that says none as well."""
    return group["scope"] or default_scope(group["reference"].partition("-")[0])


def has_norm(group: dict[str, Any]) -> bool:
    """Whether the step of a group needs the norm of what φ is given; a limit needs that of the gradients."""
    return bool(group["reference"].startswith(Isotropic.lift)) or group["scale"] == "auto"


def described(group: dict[str, Any]) -> str:
    """Return φ of a group in words, or raise as `checked_reference` does."""
    phi = checked_reference(group)
    return repr(phi) if group["scale"] != "auto" else repr(phi).replace(f"scale={phi.scale}", "scale='auto'")


def stored(phi: Reference | str) -> dict[str, Any]:
    """Return the entries of a parameter group that stand for φ: plain values, safe in a checkpoint."""
    if isinstance(phi, str):
        return {"reference": phi}
    if not isinstance(phi, Reference):
        raise TypeError(f"reference must be a reference function or the name of one, not {phi!r}")
    if registry.get(phi.kernel.key) is not type(phi.kernel):
        raise ValueError(
            f"the kernel of {phi!r} is not registered; decorate its class with npgm.kernels.register, "
            f"and call npgm.kernels.register({type(phi.kernel).__name__}) in a worker that received it"
        )
    parameters = {entry.name: getattr(phi.kernel, entry.name) for entry in fields(phi.kernel)}  # type: ignore[arg-type]
    return {"reference": phi.name, "scale": phi.scale, "kernel_parameters": parameters}


def checked_reference(group: dict[str, Any]) -> Reference:
    """Build φ from the entries of a group that stand for it, or raise; with λ = 1 where that follows the gradients."""
    if not isinstance(group["kernel_parameters"], dict):
        raise TypeError(f"kernel_parameters must be a dict, not {group['kernel_parameters']!r}")
    scale = group["scale"]
    if isinstance(scale, str):
        validate.choice("scale", scale, ["auto"])
        scale = 1.0
    return reference(group["reference"], scale=scale, **group["kernel_parameters"])
