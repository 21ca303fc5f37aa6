"""Run figures as sweeps, judge their claims and write their files.

`out`/claims.json has the verdicts; `out`/PAPER/FIGURE has the runs, figure.png and tables.json. Complete runs are
skipped.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.errors import CorruptData, FedsimError, Interrupted, InvalidInput
from fedsim.reproduce import stored
from fedsim.reproduce.claims import Claim, not_run
from fedsim.reproduce.figures import LINKS, PHONES, Figure, figures, load_figure
from fedsim.reproduce.judging import COUNTED, Outcome
from fedsim.reproduce.settings import departures, settings_table
from fedsim.reproduce.studies import check_streams
from fedsim.results import Result, files, write_atomic
from fedsim.results.checksums import parsed
from fedsim.sweeps import run_sweep
from fedsim.sweeps.spec import make_spec
from fedsim.sweeps.study import Study, row

CLAIMS = "claims.json"
Row = dict[str, Any]  # a claim with its verdict, as in claims.json


@dataclass(frozen=True)
class FigureProgress:
    """The progress of a figure: it starts (`verdicts` is None), or it is finished."""

    figure: Figure
    runs: int
    verdicts: list[Row] | None = None
    real_s: float = 0.0
    failed: str = ""
    not_drawn: str = ""


def reproduce(
    name: str | None = None, *, out: str | Path, form: str = "quick", jobs: int | None = None,
    observer: Callable[[FigureProgress], None] | None = None, stop: threading.Event | None = None, store: bool = False,
) -> tuple[list[Row], list[str]]:  # fmt: skip
    """Return the verdicts on the claims of a paper or figure (None: all), and the failures.

    `out`/claims.json is updated after every figure and keeps the verdicts on other figures. Figures whose runs are
    complete are only judged and drawn. The quick form shows stored verdicts in place of those that it cannot give;
    `store=True` stores the verdicts of each figure beside its scenario.
    """
    folder = Path(out).absolute()
    stop = stop if stop is not None else threading.Event()
    notify = observer if observer is not None else lambda _: None
    verdicts: list[Row] = []
    failures: list[str] = []
    _read(folder / CLAIMS)  # refuses a file of another program before any work
    if files.is_folder(folder):
        files.remove_stale(folder, CLAIMS)
    for paper, path in figures(name):
        if stop.is_set():
            raise Interrupted("stopped; repeat the command to resume")
        figure = load_figure(paper, path)
        began = time.perf_counter()
        own, failed, study = _figure(figure, form, folder / paper / figure.name, jobs, stop, notify)
        if store and not failed:
            stored.store(figure, form, own, time.perf_counter() - began)
        own = [_with_stored(row, older, form) for row, older in _beside(figure, own)]
        verdicts += own
        failures += failed
        files.make_parents(folder)
        _update(folder / CLAIMS, own)
        varied = list(figure.sweep(form)[0])
        not_drawn = draw(figure, study, varied, folder / paper / figure.name) if study else ""
        runs = len(study.runs) if study else 0
        notify(FigureProgress(figure, runs, own, time.perf_counter() - began, "; ".join(failed), not_drawn))
    return verdicts, failures


def _update(file: Path, own: list[Row]) -> None:
    """Replace a figure's verdicts in claims.json, which is ordered by figure."""
    earlier = _read(file)
    order = {(paper, path.stem): number for number, (paper, path) in enumerate(figures())}
    new = {(v["paper"], v["figure"]) for v in own}
    others = [v for v in earlier if (v["paper"], v["figure"]) in order and (v["paper"], v["figure"]) not in new]
    both = sorted([*others, *own], key=lambda v: order[v["paper"], v["figure"]])  # stable
    write_atomic(file, (json.dumps(both, indent=1, allow_nan=False) + "\n").encode())


def _read(file: Path) -> list[Row]:
    """Return the verdicts in a claims.json, none if it is missing."""
    try:
        found = parsed(file)
    except FileNotFoundError:
        return []
    if not isinstance(found, list) or not all(isinstance(v, dict) and {"paper", "figure"} <= v.keys() for v in found):
        raise CorruptData(f"{file} holds no claims of fedsim reproduce; remove it or choose another --out")
    return found


def _figure(
    figure: Figure,
    form: str,
    folder: Path,
    jobs: int | None,
    stop: threading.Event,
    notify: Callable[[FigureProgress], None],
) -> tuple[list[Row], list[str], Study | None]:
    """Return the rows of its claims, failures, and the study if all its runs are complete."""
    study: Study | None = None
    absent, failed = figure.missing(), []
    if figure.file is not None and not absent:
        spec = make_spec(figure.file, *figure.sweep(form), folder)
        notify(FigureProgress(figure, len(spec.runs)))
        study = run_sweep(spec, folder, jobs=jobs, resume=True, retry_failed=True, stop=stop)
        if study.failed:
            absent = f"a run failed: {study.failed[0].message}"
            failed, study = [f"{figure.paper}/{figure.name}: {absent}"], None
    given_up = not_run(figure.paper) if figure.claims else {}
    table = settings_table(figure, form)
    rows = []
    for claim in figure.claims:
        outcome, error = _judged(figure, claim, study, absent, given_up)
        failed += error
        rows.append(_row(figure, claim, outcome, form, table))
    return rows, failed, study


def _judged(
    figure: Figure, claim: Claim, study: Study | None, absent: str, given_up: Mapping[str, tuple[Any, str]]
) -> tuple[Outcome, list[str]]:
    """Return the outcome of a claim's judge, and the error that it raised."""
    judge = figure.judges.get(claim.id)
    if judge is None:
        verdict, reason = given_up.get(claim.id, ("not run", "no judge yet"))
        return Outcome(verdict, "", why=reason), []
    if claim.id in given_up:
        raise InvalidInput(f"{figure.path}: {claim.id} has a judge and is in not_run.toml; remove one of them")
    if judge.needs_study and study is None:
        return Outcome("not run", "", why=absent), []
    try:
        if judge.needs_study and study is not None:
            check_streams(study, figure.paired)
        return judge(study), []
    except (FedsimError, ValueError, LookupError, ArithmeticError) as error:
        text = f"{type(error).__name__}: {error}"
        return Outcome("not run", "", why=f"it could not be judged ({text})"), [
            f"{figure.paper}/{figure.name}: {claim.id}: {text}"
        ]


def _row(figure: Figure, claim: Claim, outcome: Outcome, form: str, table: list[Row]) -> Row:
    """Return the row of claims.json: the claim, its verdict and the settings behind it."""
    judge = figure.judges.get(claim.id)
    uses_runs = judge is not None and judge.needs_study
    differences = departures(table, form) if uses_runs else []
    if uses_runs and figure.stand_in:
        differences = [f"stand-in data: {figure.stand_in}", *differences]
    comparable = not differences or outcome.verdict not in COUNTED
    return {
        "paper": figure.paper, "figure": figure.name, "claim": claim.id, "kind": claim.kind, "quote": claim.quote,
        "where": claim.where, "metric": claim.metric, "criterion": claim.comparison, "tolerance": claim.tolerance,
        "reason": claim.reason, "seen_before": claim.seen_before, "history": list(claim.history),
        "verdict": outcome.verdict if comparable else "not comparable",
        "on_stand_in": "" if comparable else outcome.verdict, "ours": outcome.ours, "published": outcome.published,
        "interval": list(map(_plain, outcome.interval)) if outcome.interval else None, "seeds": outcome.seeds,
        "change": outcome.change if comparable else "; ".join(differences), "why": outcome.why,
        "settings": [{**row, **{n: _shown(row[n]) for n in ("paper", "quick", "full")}} for row in table],
        "form": form if uses_runs else "exact", "date": "", "older": "",
    }  # fmt: skip


def _beside(figure: Figure, rows: list[Row]) -> list[tuple[Row, Row | None]]:
    """Return each row with the stored one of its claim."""
    found = stored.load_stored(figure)
    return [(row, found.get(row["claim"])) for row in rows]


def _with_stored(row: Row, older: Row | None, form: str) -> Row:
    """Return the stored row where the quick form has no counted verdict; name one of an older version."""
    if older is None or form != "quick" or row["verdict"] in COUNTED:
        return row
    if not older["current"]:
        return {**row, "older": f"{older['verdict']} ({older['date']}, older version {older['version']})"}
    return {name: older.get(name, value) for name, value in row.items()}


def _shown(value: object) -> str | float | bool | None:
    return ", ".join(map(str, value)) if isinstance(value, list) else _plain(value)


PICTURE, TABLES = "figure.png", "tables.json"


def draw(figure: Figure, study: Study, varied: Sequence[str], folder: Path) -> str:
    """Write figure.png and tables.json into the figure's folder; return the error of drawing, or ""."""
    tables: dict[str, Any] = {"title": figure.title, "note": clock_note(study), "spent": _columns(spent(study, varied))}
    problem, png = "", None
    try:
        png = figure.file.picture(study) if figure.file is not None else None
        if figure.table is not None:
            tables["table"] = _columns(figure.table(study))
    except Exception as error:  # an error in drawing does not affect the claims
        problem = f"{type(error).__name__}: {error}"
    if png is None:
        files.remove(folder / PICTURE)  # it would show earlier runs
    else:
        write_atomic(folder / PICTURE, png)
    write_atomic(folder / TABLES, (json.dumps(tables, indent=1, allow_nan=False) + "\n").encode())
    return problem


def spent(study: Study, varied: Sequence[str]) -> list[Row]:
    """Return one row per setting: costs, medians over replicas, and final metrics.

    Bits are None for runs on one machine, seconds are None without a clock.
    """
    rows: list[Row] = []
    for settings, result in study.runs:
        ends = row({}, result)
        single = _one_machine(result)
        rows.append(
            {name: settings[name] for name in varied}
            | {"rounds": ends["rounds"], "uplink_bits": None if single else ends["uplink_bits"]}
            | {"seconds": ends["seconds"] if any(_clock(result)) else None}
            | {name: ends[name] for name in (*result.over_replicas, *result.per_replica) if name in ends}
        )
    return rows


def clock_note(study: Study) -> str:
    """Return what the clock of a study counts."""
    clocks = {_clock(result) for _, result in study.runs if not _one_machine(result)}
    if clocks == {(True, True)}:
        return f"Assumed clock (the papers give none): {PHONES}."
    if clocks == {(True, False)}:
        return f"Assumed clock (the papers give none): {LINKS}; computing takes no time."
    return "No clock: the runs have no network and no devices."


def _clock(result: Result) -> tuple[bool, bool]:
    """Return whether transfers and computing take time."""
    clock = result.manifest["clock"]
    return bool(clock["network"]), bool(clock["compute"])


def _one_machine(result: Result) -> bool:
    """Return True for a reference that has all data on one machine."""
    return bool(result.manifest["scenario"]["problem"].get("clients") == 1)


def _columns(rows: object) -> dict[str, Any]:
    """Return rows in the form of tables.json: {"columns": [...], "rows": [[...], ...]}."""
    if not isinstance(rows, list) or not rows or not all(isinstance(one, Mapping) for one in rows):
        raise InvalidInput("table() returned no rows; return a list of {column: value}")
    columns = list(dict.fromkeys(name for one in rows for name in one))
    return {"columns": columns, "rows": [[_plain(one.get(name)) for name in columns] for one in rows]}


def _plain(value: object) -> str | float | None:
    """Return NumPy's numbers as Python's, and non-finite ones as None."""
    if value is None or isinstance(value, str | bool):
        return value
    number = value.item() if isinstance(value, np.generic) else value
    if not isinstance(number, int | float):
        return str(value)
    return number if math.isfinite(number) else None
