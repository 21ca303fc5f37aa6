"""`fedsim sweep` and `fedsim status`: many runs, as counts and a table, and as a list of what failed.

`fedsim tune`: search settings.

What came out of the runs of a grid, a line each.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedsim import settings as texts
from fedsim import text as units
from fedsim.analysis.summary import clock, final_metrics, reasons, warnings
from fedsim.cli.terminal import Board, stopping, voices
from fedsim.errors import InvalidInput
from fedsim.protocols import Runtime
from fedsim.runtime.ray import Ray
from fedsim.scenario_file import load_file
from fedsim.sweeps import Event, run_sweep
from fedsim.sweeps.execution import Estimate, estimate, read_status
from fedsim.sweeps.execution import status as status_of
from fedsim.sweeps.spec import SweepSpec, make_spec
from fedsim.sweeps.study import Failure, Study, outcome
from fedsim.sweeps.tuner import tune as search
from fedsim.text import short_str

SHOWN = 20  # failures listed in full


def sweep(
    file: str, grid: Sequence[str], given: Sequence[str], *, out: Path, runtime: Runtime, shard: str | None,
    jobs: int | None, resume: bool, retry_failed: bool, dry_run: bool, quiet: bool,
) -> int:  # fmt: skip
    """Carry a sweep out; the exit code says whether all of this shard's runs are whole."""
    axes = {name: texts.axis(text) for name, text in texts.pairs(grid, "--grid").items()}
    what = make_spec(load_file(file), axes or None, texts.pairs(given, "--set"))
    part = _shard(shard)
    mine = what.shard(part)
    say, terminal = voices(quiet)
    found = read_status(what, mine, out)
    count = len(found.to_do) + (len(found.failed) if retry_failed else 0)
    say(_opening(what, len(mine), part, len(found.complete), count))
    if dry_run:
        _dry_run(say, estimate(what, mine), count, jobs, runtime)
        return 0
    began = time.perf_counter()
    with stopping() as stop, Board(what, len(mine), terminal, say) as board:
        study = run_sweep(
            what, out.absolute(), jobs=jobs, shard=part, resume=resume, retry_failed=retry_failed,
            runtime=runtime if isinstance(runtime, Ray) else None, observers=(board,), stop=stop,
        )  # fmt: skip
    say(*board.table())
    (say if not quiet else _complain)(*failures(out, what, study.failed))
    here = read_status(what, mine, out)
    code = 1 if here.failed else 0
    took = units.seconds(time.perf_counter() - began)
    ended = f"done: {len(here.complete):,} complete, {len(here.failed):,} failed, {took}"
    say(
        ended
        + (f", {len(here.running):,} running elsewhere" if here.running else "")
        + (f" (exit {code})" if code else "")
    )
    if code:
        say("again   add --retry-failed")
    if part is not None:
        say(f"all     fedsim status {out}      {len(study.runs):,} of {len(what.runs):,} complete")
    say(f"merged  {out}/runs.parquet, curves.parquet", f"next    fedsim report {out}")
    return code


def status(out: Path) -> tuple[list[str], int]:
    """The lines about a sweep's folder, and 1 if anything in it failed."""
    there = status_of(out)
    total = len(there.spec.runs)
    counts = {"failed": there.failed, "running": there.running, "to do": there.to_do}
    parts = [
        f"{len(there.complete):,} of {total:,} complete",
        *(f"{len(runs):,} {name}" for name, runs in counts.items()),
    ]
    again = [f"again   fedsim sweep ... --out {out} --retry-failed"] if there.failed else []
    return [f"{there.spec.name}: {', '.join(parts)}", *failures(out, there.spec, there.failed), *again], int(
        bool(there.failed)
    )


def failures(out: Path, what: SweepSpec, failed: Sequence[Failure]) -> list[str]:
    """The runs that failed, why, and where to read more."""
    lines = []
    for one in failed[:SHOWN]:
        swept = " ".join(f"{name}={one.settings[name]}" for name in what.grid)
        reason = one.message if f"{one.kind}: " in one.message else f"{one.kind}: {one.message}"
        lines += [f"failed  {one.run} {swept}", f"        {reason}", f"        log {out / one.run}/run.log"]
    return lines + ([f"failed  and {len(failed) - SHOWN:,} more"] if len(failed) > SHOWN else [])


def _complain(*lines: str) -> None:
    for line in lines:
        print(line, file=sys.stderr)


def _opening(what: SweepSpec, mine: int, shard: object, whole: int, todo: int) -> str:
    sizes = [len(values) for values in what.grid.values()]
    product = "x".join(map(str, sizes)) + " = " if len(sizes) > 1 else ""
    part = "" if shard is None else f"this shard {mine:,}: "
    return f"{product}{units.many(len(what.runs), 'run')}; {part}{whole:,} complete, {todo:,} to do"


def _dry_run(say: Callable[..., None], one: Estimate, count: int, jobs: int | None, runtime: Runtime) -> None:
    at_once = jobs or (runtime.hosts if isinstance(runtime, Ray) else None) or os.cpu_count() or 1
    total_s = one.real_s * count / min(at_once, max(count, 1))
    say(
        f"estimate: {units.seconds(one.real_s)}, {units.size(one.bytes)} each; {count:,} runs, {at_once} at a "
        f"time: {units.seconds(total_s)}, {units.size(one.bytes * count)}",
        "(timed one run; nothing was kept)",
    )


def _shard(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    if match is None:
        raise InvalidInput(
            f"--shard {short_str(text)}: write 3/20 for the runs 3, 23, 43, ... of those numbered from 0"
        )
    return int(match[1]), int(match[2])


def tune(
    file: str, grid: Sequence[str], goal: str, minimize: str, limits: Sequence[str], *, seeds: int, out: Path | None,
    given: Sequence[str], jobs: int | None, quiet: bool, runtime: Runtime,
) -> int:  # fmt: skip
    """Say what was found; the exit code is 1 if nothing reaches the goal within the limits."""
    axes = {name: texts.axis(text) for name, text in texts.pairs(grid, "--grid").items()}
    bounds = {name: _number(name, text) for name, text in texts.pairs(limits, "--limit").items()}
    say = voices(quiet)[0]

    def failed(event: Event) -> None:
        if event.state == "failed":
            say(f"failed  {event.run.name} {event.reason}")

    with stopping() as stop:
        found = search(
            file, axes, goal, minimize, bounds, out=out, settings=texts.pairs(given, "--set"), seeds=seeds, jobs=jobs,
            runtime=runtime if isinstance(runtime, Ray) else None, observers=(failed,), stop=stop,
            log=lambda line: say(f"try     {line}"),
        )  # fmt: skip
    lines = [piece for line in found.lines() for piece in units.wrapped(line, units.width(), indent=8)]
    say("", *lines)
    if out is not None:
        say(f"kept    {out}", f"next    fedsim report {out}")
    return 0 if found.met else 1


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"--limit {name}={text}: give a number, such as {name}=3600") from None


TITLES = {"seconds": "virtual time", "uplink_bits": "uplink", "real_s": "real"}


def table(study: Study, wide: int = units.DEFAULT_WIDTH) -> list[str]:
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
