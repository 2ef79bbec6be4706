"""One way to enter a class in a registry."""

from __future__ import annotations

from typing import Any


def enter(registry: dict[str, Any], cls: Any, kind: str) -> None:
    """Enter a class under its ``key``; a class that is defined again, as in a notebook, takes its own place.

    Raises:
        ValueError: if another class holds the key already, be it of the same name in another module.
    """
    taken = registry.get(cls.key)
    if taken is not None and _path(taken) != _path(cls):
        raise ValueError(f"the {kind} key {cls.key!r} is taken by {_path(taken)}; give {_path(cls)} another")
    registry[cls.key] = cls


def _path(cls: Any) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
