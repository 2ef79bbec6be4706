"""A Markdown report as one self-contained HTML page, in light and dark."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from npgm.lab.experiments.claims import VERDICTS
from npgm.lab.files import replacing

_STYLE = Path(__file__).with_name("page.css")
_TYPES = {".png": "image/png", ".svg": "image/svg+xml"}
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
{body}</body>
</html>
"""
_LONG = 40
"""Characters from which a table's cell is prose, and is not squeezed into a narrow column."""


def write(path: Path, html: Path, title: str, markdown: str) -> list[Path]:
    """Write a report in Markdown and as a page, both in one folder, and return the two files; see `page`."""
    for file, content in ((path, markdown), (html, page(title, markdown, path.parent))):
        with replacing(file) as stream:
            stream.write(content.encode())
    return [path, html]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def page(title: str, markdown: str, folder: Path) -> str:
    """Return a report as an HTML page that needs no other file and no network, and asks the browser to forbid it one.

    Links to other reports lead to their pages.

    Args:
        title: the title of the page.
        markdown: the report; cells of tables that are a verdict are coloured.
        folder: where the images are that the report shows, in SVG or PNG.
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(markdown)
    headings, column = list[str](), 0
    for before, inside, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        children = inside.children or []
        if before.type == "table_open":
            headings = []
        if before.type == "tr_open":
            column = 0
        if [child.type for child in children] == ["image"]:
            before.tag = after.tag = "figure"
            inside.children = [_figure(children[0], folder)]
        content = "".join(child.content for child in children)
        if before.type == "heading_open":
            before.attrs["id"] = content.lower().replace(" ", "-")
        if before.type == "th_open":
            headings.append(content)
        if before.type == "td_open":
            before.attrs |= {"class": _cell_class(content), "data-heading": headings[column]}
            column += 1
        for child in children:
            if child.type == "link_open":
                child.attrs["href"] = str(child.attrs["href"]).replace("report.md", "report.html")
    body = parser.renderer.render(tokens, parser.options, {})
    body = body.replace("<table>", '<div class="wide"><table>').replace("</table>", "</table></div>")
    return _PAGE.format(title=escape(title), style=_STYLE.read_text(encoding="utf-8"), body=body)


def _cell_class(content: str) -> str:
    for verdict, sentence in VERDICTS.items():
        if content.startswith(f"{sentence} "):
            return f"verdict {verdict.replace(' ', '-')}"
    return "prose" if len(content) >= _LONG else "short"


def _figure(image: Token, folder: Path) -> Token:
    """Return an image with its caption."""
    path = folder / str(image.attrs["src"])
    source = f"data:{_TYPES[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"
    caption = escape(image.content)
    html = f'<img src="{source}" alt="{caption}">\n<figcaption>{caption}</figcaption>\n'
    return Token("html_inline", "", 0, content=html)
