"""Gives each verdict in a table of the site the colour that it has in the HTML reports."""

from __future__ import annotations

import re
from typing import Any

from npgm.lab.experiments.claims import VERDICTS

_VERDICT = f"({'|'.join(sorted(VERDICTS, key=len, reverse=True))})"
_CELL = re.compile(rf"<td>(?:(?=It (?:is |was )?{_VERDICT} at )|(?={_VERDICT}(?:[:;,]|</td>)))")


def on_page_content(html: str, **_: Any) -> str:
    """Return the page with classes at the cells that begin with a verdict."""
    return _CELL.sub(lambda cell: f'<td class="verdict {(cell[1] or cell[2]).replace(" ", "-")}">', html)
