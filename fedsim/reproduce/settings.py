"""The settings of a figure: the paper's beside those of the quick and the full form, with departures."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from fedsim.reproduce.figures import Figure

REPEATED = "seed"  # more independent repetitions than the paper's are no departure
Row = dict[str, Any]  # setting, paper, quick, full, departs, harmless


def settings_table(figure: Figure, form: str) -> list[Row]:
    """Return one row per setting; `departs` marks a difference of the form from the paper.

    A difference that the figure declares as harmless, with the reason, leaves the verdicts comparable.
    """
    parameters = figure.file.parameters if figure.file is not None else ()
    defaults = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
    names = dict.fromkeys([*figure.paper_settings, *figure.quick, *figure.full])
    rows = []
    for name in names:
        forms = {"quick": _value(figure.quick, defaults, name), "full": _value(figure.full, defaults, name)}
        paper = figure.paper_settings.get(name)
        given = name in figure.paper_settings and name != REPEATED
        rows.append(
            {"setting": name, "paper": paper if name in figure.paper_settings else "not given", **forms}
            | {"departs": given and not _same(paper, forms[form]), "harmless": figure.harmless.get(name, "")}
        )
    return rows


def departures(rows: list[Row], form: str) -> list[str]:
    """Return the differences that make the verdicts of a form incomparable with the paper."""
    return [
        f"{row['setting']} is {row[form]}, in the paper {row['paper']}"
        for row in rows
        if row["departs"] and not row["harmless"]
    ]


def _value(form: Mapping[str, Any], defaults: Mapping[str, Any], name: str) -> Any:
    return form[name] if name in form else defaults.get(name)


def _same(paper: object, ours: object) -> bool:
    """Return True if a form has the paper's value, or all values of the paper's axis."""
    axis, own = (value if isinstance(value, list) else [value] for value in (paper, ours))
    return all(value in own for value in axis)
