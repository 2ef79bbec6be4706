"""A Markdown report as one self-contained HTML page, whose figures and tables can be explored where scripts may run."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from npgm._files import replacing
from npgm.experiments.claims import VERDICTS

_WEB = Path(__file__).with_name("web")
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
{body}<script>
{script}</script>
</body>
</html>
"""
_LONG = 40
"""Characters from which a table's cell is prose, and is not squeezed into a narrow column."""


def write(path: Path, html: Path, title: str, markdown: str, charts: Mapping[str, Any] | None = None) -> list[Path]:
    """Write a report in Markdown and as a page, both in one folder, and return the two files; see `page`."""
    for file, content in ((path, markdown), (html, page(title, markdown, path.parent, charts))):
        with replacing(file) as stream:
            stream.write(content.encode())
    return [path, html]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def page(title: str, markdown: str, folder: Path, charts: Mapping[str, Any] | None = None) -> str:
    """Return a report as an HTML page that needs no other file and no network, and asks the browser to forbid it one.

    Links to other reports lead to their pages.

    Args:
        title: the title of the page.
        markdown: the report; cells of tables that are a verdict are coloured.
        folder: where the PNG images are that the report shows.
        charts: for the names of some of the images, the data of the chart to put below, as `npgm.experiments.chart`
            makes it.
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(markdown)
    for before, inside, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        children = inside.children or []
        if [child.type for child in children] == ["image"]:
            before.tag = after.tag = "figure"
            inside.children = [_figure(children[0], folder, charts or {})]
        if before.type == "td_open":
            before.attrs["class"] = _cell_class("".join(child.content for child in children))
        for child in children:
            if child.type == "link_open":
                child.attrs["href"] = str(child.attrs["href"]).replace("report.md", "report.html")
    body = parser.renderer.render(tokens, parser.options, {})
    body = body.replace("<table>", '<div class="wide"><table>').replace("</table>", "</table></div>")
    style, script = _read("page.css"), _read("page.js")
    if charts:
        style += _read("uplot/uPlot.min.css")
        script = f"/* {_read('uplot/LICENSE')} */\n{_read('uplot/uPlot.iife.min.js')}\n{script}"
    return _PAGE.format(title=escape(title), style=style, body=body, script=script)


def _cell_class(content: str) -> str:
    if content in VERDICTS:
        return f"verdict {content.replace(' ', '-')}"
    return "prose" if len(content) >= _LONG else "short"


def _figure(image: Token, folder: Path, charts: Mapping[str, Any]) -> Token:
    """Return an image with its caption, and the chart of the same data if there is one."""
    name = str(image.attrs["src"])
    picture, caption = base64.b64encode((folder / name).read_bytes()).decode(), escape(image.content)
    html = f'<img src="data:image/png;base64,{picture}" alt="{caption}">\n<figcaption>{caption}</figcaption>\n'
    if name in charts:
        data = json.dumps(charts[name], ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        data = data.replace("<", r"\u003c")  # which could end the element
        html += f'<script type="application/json" class="chart">{data}</script>\n'
    return Token("html_inline", "", 0, content=html)


def _read(name: str) -> str:
    return (_WEB / name).read_text(encoding="utf-8")
