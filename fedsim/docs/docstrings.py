"""Docstrings, which are written as plain text with pipe tables and indented blocks, as reStructuredText."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

SPECIAL = re.compile(r"(`[^`]*`)|([*|])|(?<=\w)_(?=\W|$)")


def setup(app: Sphinx) -> dict[str, bool]:
    """Rewrite docstrings, as an extension of Sphinx."""
    app.connect("autodoc-process-docstring", process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def process(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Rewrite the lines of a docstring, as an event of autodoc."""
    lines[:] = as_rst(lines)


def as_rst(lines: list[str]) -> list[str]:
    """Return the docstring with tables as list tables and indented blocks as literal blocks."""
    made: list[str] = []
    for paragraph in _paragraphs(lines):
        if paragraph[0].startswith("|"):
            made += _table(paragraph)
        elif paragraph[0].startswith("    "):
            made += ["::", "", *paragraph]
        else:
            made += _text(paragraph)
        made.append("")
    return made


def _paragraphs(lines: list[str]) -> list[list[str]]:
    """Return runs of lines of one kind: a table, an indented block (with its blank lines) or text."""
    found: list[list[str]] = []
    kind = ""
    for line in lines:
        now = "table" if line.startswith("|") else "block" if line.startswith("    ") else "text" if line else ""
        if now == "" and kind != "block":
            kind = ""
        elif now == "":
            found[-1].append("")
        elif now == kind:
            found[-1].append(line)
        else:
            found.append([line])
            kind = now
    return found


def _text(lines: list[str]) -> list[str]:
    """Return text with special characters escaped, and a blank line before a list."""
    made: list[str] = []
    for line in lines:
        bullet = line.startswith("- ")
        if bullet and made and not made[-1].startswith(("- ", "  ")):
            made.append("")
        if made and made[-1].startswith(("- ", "  ")) and not line.startswith(("- ", "  ")):
            made.append("")
        made.append(line)
    return SPECIAL.sub(_escaped, "\n".join(made)).split("\n")


def _escaped(found: re.Match[str]) -> str:
    return found[1] or (f"\\{found[2]}" if found[2] else "\\_")


def _table(rows: list[str]) -> list[str]:
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip().strip("|"))] for row in rows]
    header = int(len(cells) > 1 and all(re.fullmatch(r":?-+:?", cell) for cell in cells[1]))
    body = cells[:1] + cells[2:] if header else cells
    width = max(map(len, body))
    made = [".. list-table::", f"   :header-rows: {header}", ""]
    for row in body:
        for i, cell in enumerate(row + [""] * (width - len(row))):
            (text,) = _text([cell]) or [""]
            made.append(f"   {'* -' if i == 0 else '  -'} {text}")
    return made
