"""What came out of the runs of a grid, a line each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedsim.analysis import units
from fedsim.analysis.summary import clock, final_metrics, reasons, warnings
from fedsim.sweeps.study import Study, outcome

TITLES = {"seconds": "virtual time", "uplink_bits": "uplink", "real_s": "real"}


def table(study: Study, wide: int = units.NARROW) -> list[str]:
    """Settings that differ, what was spent, the metrics at the end; then what all runs have in common."""
    shown: dict[str, Callable[[Any], str]] = {
        "rounds": units.number,
        "seconds": units.seconds,
        "uplink_bits": units.bits,
        **dict.fromkeys(final_metrics(study.runs[0][1]), units.number),
        "real_s": units.seconds,
        "fingerprint": _first_eight,
    }
    settings = [given for given, _ in study.runs]
    axes = [name for name in settings[0] if len({str(given[name]) for given in settings}) > 1]
    stops = [reasons(result) for _, result in study.runs]
    same = len(set(stops)) == 1
    rows = [[*axes, *(TITLES.get(name, name) for name in shown), *([] if same else ["stopped by"])]]
    for (given, result), stop in zip(study.runs, stops, strict=True):
        ends = outcome(result)
        facts = [form(ends[name]) for name, form in shown.items()]
        rows.append([*(str(given[name]) for name in axes), *facts, *([] if same else [stop])])
    foot = [*([f"all stopped by {stops[0]}"] if same else []), clock(study.runs[0][1])]
    for given, result in study.runs:
        words = " ".join(f"{name}={given[name]}" for name in axes)
        foot += [f"! {words}{': ' if words else ''}{text}" for text in warnings(result)]
    return [
        *units.columns(rows, wide, keys=len(axes)),
        *(piece for line in foot for piece in units.wrapped(line, wide, indent=2)),
    ]


def _first_eight(text: str) -> str:
    return text[:8]
