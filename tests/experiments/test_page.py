from __future__ import annotations

import base64
from html.parser import HTMLParser

from npgm.experiments.page import page


class Reader(HTMLParser):
    """Collects what a page refers to, and checks that its elements are closed in order."""

    void = ("meta", "img", "br", "hr")

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
    assert reader.sources == ["data:image/png;base64," + base64.b64encode(b"picture").decode()]
    assert "table" in reader.seen
    assert "script" not in reader.seen
    assert "<td>a | b</td>" in html
    assert "‖∇f‖" in html
    assert "<title>A &amp; B</title>" in html
