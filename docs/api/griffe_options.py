"""Lets the site show the options of `npgm.torch.NPGM`, whose docstring is made from their table."""

import inspect
from typing import Any

import griffe

from npgm.torch import NPGM


class Options(griffe.Extension):
    """Takes the docstring of the class in place of that of its source."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """See griffe."""
        if cls.path == f"{NPGM.__module__}.{NPGM.__name__}" and cls.docstring is not None:
            cls.docstring.value = inspect.cleandoc(NPGM.__doc__ or "")
