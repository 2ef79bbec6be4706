from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser

from npgm.experiments.page import page, table, write


class Reader(HTMLParser):
    """Collects what a page refers to, and checks that its elements are closed in order."""

    void = ("meta", "link", "img", "br", "hr")

    def __init__(self):
        super().__init__()
        self.sources, self.open, self.seen = [], [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        self.sources += [value for name, value in attributes if name in ("src", "href")]
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert tag in self.void or self.open.pop() == tag


def test_a_page_has_its_figures_within_and_its_text_escaped(tmp_path):
    (tmp_path / "a.png").write_bytes(b"picture")
    text = "# T\n\n![a < b](a.png)\n\n| method | ‖∇f‖ |\n| --- | --- |\n| <script> | a \\| b |\n"
    reader = Reader()
    html = page("A & B", text, tmp_path)
    reader.feed(html)
    assert reader.open == []
    assert reader.sources == ["data:,", "data:image/png;base64," + base64.b64encode(b"picture").decode()]
    assert reader.seen.count("figure") == reader.seen.count("table") == 1
    assert reader.seen.count("script") == 1  # the page's own
    assert '<td class="short">a | b</td>' in html
    assert "‖∇f‖" in html
    assert "<title>A &amp; B</title>" in html


def test_a_chart_is_below_its_figure_as_data_that_cannot_end_its_element(tmp_path):
    (tmp_path / "a.png").write_bytes(b"picture")
    (tmp_path / "b.png").write_bytes(b"picture")
    data = {"label": "</script><img src=x>", "values": [1.5, None]}
    reader = Reader()
    html = page("T", "![one](a.png)\n\n![two](b.png)\n", tmp_path, {"a.png": data})
    reader.feed(html)
    assert reader.open == []
    assert reader.seen.count("img") == 2
    assert reader.seen.count("script") == 2
    (text,) = re.findall(
        r'<figcaption>one</figcaption>\n<script type="application/json" class="chart">(.*?)</script>', html
    )
    assert json.loads(text) == data
    assert "Copyright (c) 2022 Leon Sorokin" in html  # the notice of the library that draws charts
    assert "Leon Sorokin" not in page("T", "no chart", tmp_path)


def test_verdicts_are_coloured_and_links_lead_to_pages(tmp_path):
    rows = [("x" * 50, "holds in part", "[paper](mnist/paper/report.md)", "a | b")]
    markdown, html = write(tmp_path / "report.md", tmp_path / "index.html", "T", table(("a", "b", "c", "d"), rows))
    assert "| a \\| b |" in markdown.read_text()
    for part in ('<td class="prose">xxx', '<td class="verdict holds-in-part">', '<td class="short">a | b',
                 '<td class="short"><a href="mnist/paper/report.html">paper</a>'):  # fmt: skip
        assert part in html.read_text()
