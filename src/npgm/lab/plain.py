"""Mathematics in plain letters, for a terminal or a file whose encoding lacks the signs."""

from __future__ import annotations

import codecs
import io
import unicodedata
from collections.abc import Iterable
from typing import TextIO

_SIGNS = {
    "∇": "grad ", "√": "sqrt", "∫": "int ", "Σ": "sum ", "∞": "inf", "λ": "lambda", "‖": "|", "≤": "<=", "≥": ">=",
    "⟨": "<", "⟩": ">", "±": "+/-", "−": "-", "–": "-", "×": "x", "·": "*", "•": "*", "⁄": "/", "←": "<-", "→": "->",
    "′": "'", "“": '"', "”": '"',
}  # fmt: skip


def plain(text: str) -> str:
    """Write a text in ASCII.

    >>> plain("γ ≤ 1/√(1 + ‖∇f‖²), x⁰ ∈ ℝⁿ")
    'gamma <= 1/sqrt(1 + |grad f|^2), x^0 ? R^n'
    """
    return "".join(map(_plain, text))


def _plain(sign: str) -> str:
    if sign.isascii():
        return sign
    if sign in _SIGNS:
        return _SIGNS[sign]
    name = unicodedata.name(sign, "")
    if name.startswith("GREEK SMALL LETTER "):
        return name.rpartition(" ")[2].lower()
    parts = "".join(part for part in unicodedata.normalize("NFKD", sign) if not unicodedata.combining(part))
    raised = "^" if "SUPERSCRIPT" in name else ""
    return raised + plain(parts) if parts != sign else "?"


def _replace(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return plain(error.object[error.start : error.end]), error.end


def accept_all_text(streams: Iterable[TextIO]) -> None:
    """Let streams write in plain letters what their encoding lacks, where they would raise a UnicodeEncodeError."""
    codecs.register_error("npgm.plain", _replace)
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="npgm.plain")
