"""The page of the papers: every published claim with its criterion, and its verdict where results are stored."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAPERS = Path(__file__).parents[1] / "scenarios" / "papers"
HEAD = """# Papers and claims

Each sentence below is quoted from a paper. Its criterion was written from the sentence alone. Verdicts are those of
stored results; `fedsim reproduce PAPER` judges again, and `fedsim explain reproduce` describes it.
"""


def page() -> str:
    """Return the source of the page."""
    folders = [path.parent for path in sorted(PAPERS.glob("*/claims.toml"))]
    return HEAD + "".join(_section(folder) for folder in folders)


def pictures() -> list[Path]:
    """Return the figures among the stored results."""
    return sorted(PAPERS.glob("*/results/*.png"))


def stored_verdicts(paper: Path) -> dict[str, str]:
    """Return the verdict of each claim of a paper in its stored results."""
    files = sorted((paper / "results").glob("*.json"))
    rows = (row for file in files for row in _rows(json.loads(file.read_text(encoding="utf-8"))))
    return {str(row["claim"]): str(row["verdict"]) for row in rows}


def _rows(value: object) -> Iterator[dict[str, Any]]:
    """Yield the parts of a stored file that have a claim and a verdict."""
    if isinstance(value, dict) and "claim" in value and "verdict" in value:
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _rows(part)


def _section(paper: Path) -> str:
    claims = tomllib.loads((paper / "claims.toml").read_text(encoding="utf-8"))["claim"]
    verdicts = stored_verdicts(paper)
    text = [f"\n## {paper.name}\n\n{_counts(claims, verdicts)}\n"]
    text += [f"![{paper.name}](/_static/papers/{place(path)})\n" for path in pictures() if path.parents[1] == paper]
    text.append(f":::{{dropdown}} The {len(claims)} claims of {paper.name}\n")
    for claim in claims:
        verdict = verdicts.get(claim["id"], "")
        facts = "; ".join(part for part in (claim["kind"], verdict) if part)
        text.append(f"**{claim['id']}** ({facts}), {_line(claim['where'])}\n")
        text.append(f"> {_line(claim['quote'])}\n\nCriterion: {_line(claim['tolerance'])}.\n")
    return "\n".join([*text, ":::\n"])


def place(picture: Path) -> str:
    """Return the name of a stored figure on the site."""
    return f"{picture.parents[1].name}-{picture.name}"


def _counts(claims: list[dict[str, Any]], verdicts: dict[str, str]) -> str:
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(Counter(claim["kind"] for claim in claims).items()))
    if not verdicts:
        return f"{len(claims)} claims: {kinds}. No results are stored yet, so no verdict is shown."
    counts = Counter(verdicts.get(claim["id"], "not run") for claim in claims)
    return f"{len(claims)} claims: {kinds}. Verdicts: {', '.join(f'{v} {n}' for v, n in sorted(counts.items()))}."


def _line(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|$#~^])", r"\\\1", " ".join(text.split()).rstrip("."))
