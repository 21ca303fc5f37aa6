"""The section of a page about a published figure: its picture, its claims and the costs of its settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedsim.analysis.report import html

if TYPE_CHECKING:
    import pandas as pd

WORDS = {True: "held", False: "not held", None: "not run"}


def figure(name: str, verdicts: list[dict[str, Any]], pictures: Sequence[bytes], tables: dict[str, Any] | None) -> str:
    """Return the section; `tables` is the content of the figure's tables.json."""
    tables = {} if tables is None else tables
    spent = html.table(_frame(tables["spent"]), tall=False) if "spent" in tables else ""
    return html.section(
        name,
        html.text(tables.get("title", "")),
        *(html.image(tables.get("title") or name, png) for png in pictures),
        html.table(_frame(tables["table"])) if "table" in tables else "",
        html.titled("Claims", html.table(_judged(verdicts))),
        html.titled("Cost of each setting", html.text(tables.get("note", ""), "note") + spent) if spent else "",
    )


def _judged(verdicts: list[dict[str, Any]]) -> pd.DataFrame:
    """Return one row per claim; `why` explains claims that did not hold."""
    import pandas as pd

    rows = [
        {"claim": v["claim"], "verdict": WORDS[v["held"]], "expected": v["expected"], "ours": v["ours"],
         "published": v["published"], "why": v["why"] if v["held"] is not True or v["expected"] != "holds" else ""}
        for v in verdicts
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    return frame.drop(columns=[c for c in ("ours", "why") if not frame[c].any()])


def _frame(table: dict[str, Any]) -> pd.DataFrame:
    """Return a table of tables.json without its empty columns."""
    import pandas as pd

    frame = pd.DataFrame(table["rows"], columns=table["columns"], dtype=object)
    return frame.loc[:, frame.notna().any()]
