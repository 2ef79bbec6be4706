"""Lets the site show what is made when npgm is imported, which its source does not show."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import griffe

import npgm.optax  # noqa: F401  which griffe would look for, and for all that it imports, in the folder of npgm alone
from npgm.torch import NPGM

_MARKED = re.compile(r"^( *)>>> .*(?:\n.+)*|(?<=[φψh])\*", re.MULTILINE)


def _as_markdown(docstring: str) -> str:
    return _MARKED.sub(
        lambda found: r"\*" if found[0] == "*" else f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", docstring
    )


def _objects(parent: griffe.Object) -> Iterator[griffe.Object]:
    yield parent
    for member in parent.members.values():
        if not isinstance(member, griffe.Alias):
            yield from _objects(member)


def _add_options(documented: griffe.Class, optimizer: type[NPGM]) -> None:
    """Put the options by name in the place of ``**choices`` of the constructor, which may be that of a base class."""
    own = [parameter for parameter in documented["__init__"].parameters if parameter.name != "choices"]
    known = {parameter.name for parameter in own}
    options = [
        griffe.Parameter(
            option.name,
            annotation=inspect.formatannotation(option.annotation).replace("typing.", "").replace("NoneType", "None"),
            kind=griffe.ParameterKind.keyword_only,
            default=repr(option.default),
        )
        for option in inspect.signature(optimizer).parameters.values()
        if option.name not in known
    ]
    documented.set_member("__init__", griffe.Function("__init__", parameters=griffe.Parameters(*own, *options)))


class Dynamic(griffe.Extension):
    """Takes the options of the optimizers, and the functions of `npgm.optax`, as they are when these are imported.

    In all docstrings examples become blocks of code, which Markdown would read as quotations, and the asterisk of a
    conjugate, as in φ*, is escaped, which would begin emphasis.
    """

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """See griffe."""
        if pkg.name != "npgm":
            return
        for optimizer in (NPGM, *NPGM.__subclasses__()):
            module = optimizer.__module__.removeprefix("npgm.")
            documented = pkg[f"{module}.{optimizer.__name__}"]
            documented.docstring.value = inspect.cleandoc(optimizer.__doc__ or "")
            _add_options(documented, optimizer)
        optimizers = pkg["torch"]
        optimizers.set_member("minimize", optimizers["minimize"]["minimize"])  # the function, not its file of that name
        transformations = pkg["optax"]
        inspected = griffe.inspect("npgm.optax", filepath=transformations.filepath)
        for name in ("ihgd", "shgd", "ngd", "sngd"):
            transformations.set_member(name, inspected[name])
        for documented in _objects(pkg):
            decorators = documented.decorators if isinstance(documented, griffe.Function) else []
            if "elementwise" in [str(decorator.value) for decorator in decorators]:  # which gives it the namespace
                own = [parameter for parameter in documented.parameters if parameter.name != "xp"]
                documented.parameters = griffe.Parameters(*own)
            if documented.docstring:
                documented.docstring.value = _as_markdown(documented.docstring.value)
