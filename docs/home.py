"""Makes the home page of the site from the README, whose links lead from the root of the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

README = Path(__file__).parent.parent / "README.md"
PAGES = {"CONTRIBUTING.md": "extending.md", "CHANGELOG.md": "changelog.md"}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the README in place of the home page, without its last paragraph, whose files are not on the site."""
    if not page.is_homepage:
        return markdown
    text = README.read_text(encoding="utf-8").rpartition("\n\n")[0]
    return re.sub(r"\]\(([^)#:]+)", lambda link: f"]({PAGES.get(link[1], link[1].removeprefix('docs/'))}", text)
