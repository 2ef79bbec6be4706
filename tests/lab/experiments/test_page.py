import base64
from html.parser import HTMLParser

from npgm.lab.experiments.page import page, table, write


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
    (tmp_path / "a.svg").write_bytes(b"picture")
    text = "# T\n\n![a < b](a.svg)\n\n| method | ‖∇f‖ |\n| --- | --- |\n| <script> | a \\| b |\n"
    reader = Reader()
    html = page("A & B", text, tmp_path)
    reader.feed(html)
    assert reader.open == []
    assert reader.sources == ["data:,", "data:image/svg+xml;base64," + base64.b64encode(b"picture").decode()]
    assert reader.seen.count("figure") == reader.seen.count("table") == 1
    assert "script" not in reader.seen
    assert '<td class="short" data-heading="‖∇f‖">a | b</td>' in html
    assert "‖∇f‖" in html
    assert "<title>A &amp; B</title>" in html


def test_verdicts_are_coloured_and_links_lead_to_pages(tmp_path):
    rows = [("x" * 50, "It holds in part at cpu.", "[paper](mnist/paper/report.md)", "a | b")]
    markdown, html = write(tmp_path / "report.md", tmp_path / "index.html", "T", table(("a", "b", "c", "d"), rows))
    assert "| a \\| b |" in markdown.read_text()
    for part in ('<td class="prose" data-heading="a">xxx', '<td class="verdict holds-in-part" data-heading="b">', '<td class="short" data-heading="d">a | b',
                 '<td class="short" data-heading="c"><a href="mnist/paper/report.html">paper</a>'):  # fmt: skip
        assert part in html.read_text()
