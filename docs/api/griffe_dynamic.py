"""Lets the site show what is made when npgm is imported, which its source does not show."""

import inspect
from typing import Any

import griffe

import npgm.optax  # noqa: F401  which griffe would look for, and for all that it imports, in the folder of npgm alone
from npgm.torch import NPGM


class Dynamic(griffe.Extension):
    """Takes the docstring with the table of options, and the functions of `npgm.optax` with φ chosen, as they are."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """See griffe."""
        if pkg.name != "npgm":
            return
        optimizer = pkg["torch.optimizer.NPGM"]
        optimizer.docstring.value = inspect.cleandoc(NPGM.__doc__ or "")
        transformations = pkg["optax"]
        inspected = griffe.inspect("npgm.optax", filepath=transformations.filepath)
        for name in ("ihgd", "shgd", "ngd", "sngd"):
            transformations.set_member(name, inspected[name])
