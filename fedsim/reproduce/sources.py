"""Check that a quotation occurs verbatim in a paper's text."""

from __future__ import annotations

import re

LIGATURES = str.maketrans({"\ufb00": "ff", "\ufb01": "fi", "\ufb02": "fl", "\ufb03": "ffi", "\ufb04": "ffl"})
HYPHEN = re.compile(r"(\w)-\s*\n\s*(\w)")


def plain(text: str) -> str:
    """Spell out ligatures and turn runs of white space into one space."""
    return " ".join(text.translate(LIGATURES).split())


def forms(text: str) -> tuple[str, str]:
    """Return a paper's text with hyphens at line ends dropped, and with them retained."""
    return plain(HYPHEN.sub(r"\1\2", text)), plain(HYPHEN.sub(r"\1-\2", text))


def occurs(quote: str, paper: tuple[str, str]) -> bool:
    return any(plain(quote) in form for form in paper)
