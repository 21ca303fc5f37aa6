"""A figure's picture or table, and what its settings spent, as files that a page shows without running anything."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.errors import InvalidInput
from fedsim.reproduce.figures import Figure
from fedsim.reproduce.system import LINKS, PHONES
from fedsim.results import Result, write_atomic
from fedsim.sweeps.study import Study, row

PICTURE, TABLES = "figure.png", "tables.json"
Row = Mapping[str, Any]


def draw(figure: Figure, study: Study, varied: Sequence[str], folder: Path) -> str:
    """Write figure.png and tables.json into the figure's folder; what could not be drawn, or ""."""
    tables: dict[str, Any] = {"title": figure.title, "note": clock_note(study), "spent": _columns(spent(study, varied))}
    problem, png = "", None
    try:
        png = figure.file.picture(study)
        if figure.table is not None:
            tables["table"] = _columns(figure.table(study))
    except Exception as error:  # it is for the eye: whatever it is, the claims stand
        problem = f"{type(error).__name__}: {error}"
    if png is None:
        (folder / PICTURE).unlink(missing_ok=True)  # one of an earlier time would be another's
    else:
        write_atomic(folder / PICTURE, png)
    write_atomic(folder / TABLES, (json.dumps(tables, indent=1, allow_nan=False) + "\n").encode())
    return problem


def spent(study: Study, varied: Sequence[str]) -> list[Row]:
    """A row per setting: what it spent, medians over replicas, and its metrics at the end.

    What ran on one machine sends nothing, and without a clock there are no seconds: both are None.
    """
    rows: list[Row] = []
    for settings, result in study.runs:
        ends = row({}, result)
        alone = _alone(result)
        rows.append(
            {name: settings[name] for name in varied}
            | {"rounds": ends["rounds"], "uplink_bits": None if alone else ends["uplink_bits"]}
            | {"seconds": ends["seconds"] if any(_clock(result)) else None}
            | {name: ends[name] for name in (*result.over_replicas, *result.per_replica) if name in ends}
        )
    return rows


def clock_note(study: Study) -> str:
    """What the seconds of a study are made of."""
    clocks = {_clock(result) for _, result in study.runs if not _alone(result)}
    if clocks == {(True, True)}:
        return f"Our clock (the papers give none): {PHONES}."
    if clocks == {(True, False)}:
        return f"Our clock (the papers give none): {LINKS}; computing takes no time."
    return "No clock: nothing is assumed about links and devices."


def _clock(result: Result) -> tuple[bool, bool]:
    """Whether transfers and computing take time."""
    clock = result.manifest["clock"]
    return bool(clock["network"]), bool(clock["compute"])


def _alone(result: Result) -> bool:
    """Whether it ran on one machine: a reference that has all data."""
    return bool(result.manifest["scenario"]["problem"].get("clients") == 1)


def _columns(rows: object) -> dict[str, Any]:
    """Rows as JSON keeps them: {"columns": [...], "rows": [[...], ...]}."""
    if not isinstance(rows, list) or not rows or not all(isinstance(one, Mapping) for one in rows):
        raise InvalidInput("table() returned no rows; return a list of {column: value}")
    columns = list(dict.fromkeys(name for one in rows for name in one))
    return {"columns": columns, "rows": [[_plain(one.get(name)) for name in columns] for one in rows]}


def _plain(value: object) -> str | float | None:
    """NumPy's numbers as Python's; None for what JSON has no word for."""
    if value is None or isinstance(value, str | bool):
        return value
    number = value.item() if isinstance(value, np.generic) else value
    if not isinstance(number, int | float):
        return str(value)
    return number if math.isfinite(number) else None
