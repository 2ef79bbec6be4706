"""A Markdown report as one self-contained HTML page."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from html import escape
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222; }}
p {{ max-width: 50rem; }}
img {{ max-width: 100%; height: auto; }}
table {{ display: block; overflow-x: auto; border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .3rem .7rem; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top; }}
code {{ background: #f3f3f3; padding: .1rem .2rem; }}
</style>
</head>
<body>
{body}</body>
</html>
"""


def page(title: str, markdown: str, folder: Path) -> str:
    """Return a report as an HTML page that needs no other file and no network.

    Args:
        title: the title of the page.
        markdown: the report.
        folder: where the PNG images are that the report shows.
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(markdown)
    for token in _images(tokens):
        picture = (folder / str(token.attrs["src"])).read_bytes()
        token.attrs["src"] = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
    return _PAGE.format(title=escape(title), body=parser.renderer.render(tokens, parser.options, {}))


def _images(tokens: Iterable[Token]) -> Iterable[Token]:
    for token in tokens:
        if token.type == "image":
            yield token
        yield from _images(token.children or ())
