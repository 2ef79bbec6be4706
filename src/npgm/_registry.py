"""One way to enter a class in a registry."""

from __future__ import annotations

from typing import Any


def enter(registry: dict[str, Any], cls: Any, kind: str) -> None:
    """Enter a class under its ``key``; it may take the place of an earlier definition of itself.

    Raises:
        ValueError: if another class holds the key already.
    """
    taken = registry.get(cls.key)
    if taken is not None and taken.__qualname__ != cls.__qualname__:
        raise ValueError(f"the {kind} key {cls.key!r} is taken by {taken.__qualname__}")
    registry[cls.key] = cls
