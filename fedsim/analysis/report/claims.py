"""The section of a page about a published figure: its picture, its claims and the costs of its settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedsim.analysis.report import html

if TYPE_CHECKING:
    import pandas as pd

FAILURES = ("refuted", "not held", "inconclusive")


def failures(rows: list[dict[str, Any]]) -> str:
    """Return the section of all claims that were judged and did not hold; "" if there are none."""
    return html.section("Claims that did not hold", *(_block(row) for row in rows if row["verdict"] in FAILURES))


def figure(name: str, rows: list[dict[str, Any]], pictures: Sequence[bytes], tables: dict[str, Any] | None) -> str:
    """Return the section; `rows` are ordered by verdict, `tables` is the content of the figure's tables.json."""
    tables = {} if tables is None else tables
    spent = html.table(_frame(tables["spent"]), tall=False) if "spent" in tables else ""
    return html.section(
        name,
        html.text(tables.get("title", "")),
        *(html.image(tables.get("title") or name, png) for png in pictures),
        html.table(_frame(tables["table"])) if "table" in tables else "",
        html.titled("Claims", html.table(_judged(rows))),
        html.titled("Settings", html.table(_settings(rows[0]["settings"]), tall=False)) if rows[0]["settings"] else "",
        *(_block(row) for row in rows if row["verdict"] not in FAILURES),
        html.titled("Cost of each setting", html.text(tables.get("note", ""), "note") + spent) if spent else "",
    )


def _block(row: dict[str, Any]) -> str:
    """Return all facts about a claim."""
    seen = "The outcome was known when the criterion was written." if row["seen_before"] else ""
    facts = {
        "the paper": f"\u201c{row['quote']}\u201d ({row['where']})",
        "figure": f"{row['paper']}/{row['figure']}",
        "criterion": f"{row['criterion']}; {row['tolerance']} ({row['reason']})",
        "ours": row["ours"],
        "published": row["published"],
        "why": row["why"],
        "what would change it": row["change"],
        "history": " ".join(filter(None, [seen, *row["history"]])),
    }
    return html.titled(f"{verdict(row)}: {row['claim']}", html.facts({k: v for k, v in facts.items() if v}))


def _judged(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return one row per claim, without empty columns."""
    import pandas as pd

    names = ("claim", "verdict", "ours", "published")
    frame = pd.DataFrame([row | {"verdict": verdict(row)} for row in rows])[[*names]]
    return frame.drop(columns=[column for column in frame if not frame[column].any()])


def verdict(row: dict[str, Any]) -> str:
    """Return the verdict with what qualifies it: a stand-in, a date or a verdict of an older version."""
    notes = [f"{row['on_stand_in']} on the stand-in"] if row["on_stand_in"] else []
    notes += [row["date"]] if row["date"] else []
    notes += [row["older"]] if row["older"] else []
    return f"{row['verdict']} ({', '.join(notes)})" if notes else str(row["verdict"])


def _settings(rows: list[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    marks = [f"departs{': ' + row['harmless'] if row['harmless'] else ''}" if row["departs"] else "" for row in rows]
    frame = pd.DataFrame([{name: row[name] for name in ("setting", "paper", "quick", "full")} for row in rows])
    return frame.astype(object).where(frame.notna(), "").assign(departure=marks)


def _frame(table: dict[str, Any]) -> pd.DataFrame:
    """Return a table of tables.json without its empty columns."""
    import pandas as pd

    frame = pd.DataFrame(table["rows"], columns=table["columns"], dtype=object)
    return frame.loc[:, frame.notna().any()]
