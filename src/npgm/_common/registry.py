"""Registries: classes by name, of npgm, of a user's own code, and of installed packages."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Collection, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class Keyed(Protocol):
    """A class that states the name under which it is registered."""

    @property
    def key(self) -> str: ...


T = TypeVar("T")
R = TypeVar("R")
E = TypeVar("E", bound=Keyed)

_all: list[Registry[Any]] = []


class Registry(MutableMapping[str, T], Generic[T]):
    """Classes or functions by name.

    A package registers its own by naming a module as an entry point of the registry's group. The module is imported
    when a name is looked up that is not there yet, or when all names are listed.

    Args:
        kind: what is registered, in words.
        module: the module whose attribute ``registry`` this is.
        group: the group of entry points.
    """

    def __init__(self, kind: str, module: str, group: str) -> None:
        self.kind, self.group = kind, group
        self._module = module
        self._entries: dict[str, T] = {}
        self._discovered = False
        _all.append(self)

    @property
    def hint(self) -> str:
        """What an error says to those who look in vain for an entry of their own."""
        return (
            f"a {self.kind} of your own is known in each process, or worker, that imports the module which registers it"
        )

    def register(self, entry: E) -> E:
        """Enter a class under its ``key``; use it as a decorator.

        Raises:
            ValueError: if another class holds the key already.
        """
        self.enter(entry.key, entry)
        return entry

    def enter(self, key: str, entry: Any) -> None:
        """Enter ``entry`` under ``key``. A class that is defined again, as in a notebook, replaces its older self.

        Raises:
            ValueError: if another class holds the key, even one of the same name in another module.
        """
        taken = self._entries.get(key)
        if taken is not None and _path(taken) != _path(entry):
            raise ValueError(f"the {self.kind} key {key!r} is taken by {_path(taken)}; give {_path(entry)} another")
        self._entries[key] = entry

    def __getitem__(self, key: str) -> T:
        if key not in self._entries:
            self._discover()
        return self._entries[key]

    def __setitem__(self, key: str, entry: T) -> None:
        self._entries[key] = entry

    def __delitem__(self, key: str) -> None:
        del self._entries[key]

    def __iter__(self) -> Iterator[str]:
        self._discover()
        return iter(self._entries)

    def __len__(self) -> int:
        self._discover()
        return len(self._entries)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> Any:
        return _registry_of, (self._module,)

    def _discover(self) -> None:
        if self._discovered:
            return
        self._discovered = True  # before the imports, which may look here
        discover(self.group, lambda entry_point: entry_point.load())


def discover(group: str, load: Callable[[EntryPoint], R]) -> list[R]:
    """Return what a function makes of each entry point of a group; one with which it fails is a warning."""
    from importlib.metadata import entry_points  # a fifth of the time of `import npgm`, where nothing is looked up

    made = []
    for entry_point in entry_points(group=group):
        try:
            made.append(load(entry_point))
        except Exception as error:  # noqa: BLE001  whatever is wrong in another package, npgm works without it
            what = f"the entry point {entry_point.name!r} of {group} ({entry_point.value})"
            warnings.warn(f"{what} cannot be loaded: {error!r}", RuntimeWarning, stacklevel=3)
    return made


Extensions = list[tuple[Registry[Any], dict[str, Any]]]


def extensions() -> Extensions:
    """Return what the registries hold beside npgm's own, to be handed to another process."""
    found = ((registry, {k: v for k, v in registry._entries.items() if not _own(v)}) for registry in _all)
    return [(registry, entries) for registry, entries in found if entries]


def modules(keys: Collection[str]) -> list[str]:
    """Return the modules that must be imported for the registries to have entries of some keys, in order.

    Those of npgm and of installed packages are found without; what was entered by a program itself has no module.
    """
    from importlib.metadata import entry_points

    found = {
        (registry.group, str(entry.__module__))
        for registry, own in extensions()
        for k, entry in own.items()
        if k in keys
    }
    known = {group: {point.module.partition(".")[0] for point in entry_points(group=group)} for group, _ in found}
    return sorted({name for group, name in found if name != "__main__" and name.partition(".")[0] not in known[group]})


def extend(extensions: Extensions) -> None:
    """Enter in this process what `extensions` has found in another one."""
    for registry, entries in extensions:
        registry._entries.update(entries)


def _registry_of(module: str) -> Registry[Any]:
    registry: Registry[Any] = importlib.import_module(module).registry
    return registry


def _own(entry: Any) -> bool:
    return str(getattr(entry, "__module__", type(entry).__module__)).partition(".")[0] == "npgm"


def _path(entry: Any) -> str:
    return f"{entry.__module__}.{entry.__qualname__}"
