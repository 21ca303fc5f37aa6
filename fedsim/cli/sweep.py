"""`fedsim sweep` and `fedsim tune`, and the table of a grid of runs."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedsim import text
from fedsim.analysis.summary import clock, final_metrics, reasons, warnings
from fedsim.cli.status import failures
from fedsim.cli.terminal import LiveTable, estimate_line, heartbeat, outputs, print_error, stop_signals
from fedsim.errors import InvalidInput
from fedsim.protocols import Runtime
from fedsim.runtime.ray import Ray
from fedsim.scenario_file import ScenarioFile, load_file
from fedsim.settings import axis, pairs
from fedsim.sweeps import Event, run_sweep
from fedsim.sweeps.execution import estimate, read_status
from fedsim.sweeps.spec import SweepSpec, make_spec
from fedsim.sweeps.study import Study, outcome
from fedsim.sweeps.tuner import tune as search
from fedsim.sweeps.workers import threads_each


def sweep(
    file: str, grid: Sequence[str], given: Sequence[str], *, out: Path, runtime: Runtime, shard: str | None,
    jobs: int | None, resume: bool, retry_failed: bool, dry_run: bool, quiet: bool,
) -> int:  # fmt: skip
    """Run a sweep; return 1 if a run of this shard failed."""
    axes = {name: axis(values) for name, values in pairs(grid, "--grid").items()}
    loaded = load_file(file)
    spec = make_spec(loaded, axes or None, pairs(given, "--set"), out)
    part = _shard(shard)
    mine = spec.shard(part)
    write, terminal = outputs(quiet)
    spec.check(out, resume=resume or retry_failed, shared=part is not None)
    found = read_status(spec, mine, out)
    todo = len(found.to_do) + (len(found.failed) if retry_failed else 0)
    at_once = jobs or (runtime.hosts if isinstance(runtime, Ray) else None) or os.cpu_count() or 1
    write(_opening(spec, len(mine), part, len(found.complete), todo), *_replaced(loaded, axes))
    if dry_run:
        if todo:
            one = estimate(spec, mine, threads_each(at_once, todo))
            write(estimate_line(one.real_s, one.bytes, todo, at_once), "(timed one run; its results were removed)")
        return 0
    began = time.perf_counter()
    with stop_signals() as stop, LiveTable(spec, out, len(mine), todo, at_once, terminal, write) as table:
        study = run_sweep(
            spec, out.absolute(), jobs=jobs, shard=part, resume=resume, retry_failed=retry_failed,
            runtime=runtime if isinstance(runtime, Ray) else None, observers=(table,), stop=stop,
        )  # fmt: skip
    write(*table.table())
    (print_error if quiet else write)(*failures(out, spec, study.failed))
    ended = read_status(spec, mine, out)
    code = 1 if ended.failed else 0
    took = text.seconds(time.perf_counter() - began)
    elsewhere = f", {len(ended.running):,} running elsewhere" if ended.running else ""
    write(
        f"done: {len(ended.complete):,} complete, {len(ended.failed):,} failed, {took}{elsewhere}"
        + (f" (exit {code})" if code else ""),
        *(["retry   --retry-failed"] if code else []),
    )
    if part is not None:
        write(f"all     fedsim status {out}      {len(study.runs):,} of {len(spec.runs):,} complete")
    write(f"merged  {out}/runs.parquet, curves.parquet", f"next    fedsim report {out}")
    return code


def _opening(spec: SweepSpec, mine: int, shard: object, complete: int, todo: int) -> str:
    sizes = [len(values) for values in spec.grid.values()]
    product = "x".join(map(str, sizes)) + " = " if len(sizes) > 1 else ""
    part = "" if shard is None else f"this shard {mine:,}: "
    return f"{product}{text.plural(len(spec.runs), 'run')}; {part}{complete:,} complete, {todo:,} to do"


def _replaced(file: ScenarioFile, axes: dict[str, list[str]]) -> list[str]:
    """Return a line about axes of the file's own grid that --grid replaces."""
    own = {name: values for name, values in file.grid.items() if name not in axes}
    if not axes or not own:
        return []
    options = " ".join(f"--grid {name}={','.join(map(str, values))}" for name, values in own.items())
    return [f"grid    --grid replaces the grid of {file.path.name} ({', '.join(own)}); to keep it, add {options}"]


def _shard(value: str | None) -> tuple[int, int] | None:
    if value is None:
        return None
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", value)
    if match is None:
        raise InvalidInput(
            f"--shard {text.short_str(value)}: write 3/20 for the runs 3, 23, 43, ... of those numbered from 0"
        )
    return int(match[1]), int(match[2])


def tune(
    file: str, grid: Sequence[str], goal: str, minimize: str, limits: Sequence[str], *, seeds: int, out: Path | None,
    given: Sequence[str], jobs: int | None, quiet: bool, runtime: Runtime,
) -> int:  # fmt: skip
    """Print the recommended setting; return 1 if no setting reaches the goal within the limits."""
    axes = {name: axis(values) for name, values in pairs(grid, "--grid").items()}
    bounds = {name: _number(name, value) for name, value in pairs(limits, "--limit").items()}
    write, _ = outputs(quiet)

    ended: Counter[str] = Counter()

    def observe(event: Event) -> None:
        ended[event.state] += 1
        if event.state == "failed":
            write(f"failed  {event.run.name} {event.reason}")

    def line() -> str:
        return f"{text.plural(ended['complete'], 'run')} complete, {ended['failed']:,} failed"

    with stop_signals() as stop, heartbeat(write, line):
        found = search(
            file, axes, goal, minimize, bounds, out=out, settings=pairs(given, "--set"), seeds=seeds, jobs=jobs,
            runtime=runtime if isinstance(runtime, Ray) else None, observers=(observe,), stop=stop,
            log=lambda line: write(f"stage   {line}"),
        )  # fmt: skip
    write("", *(piece for line in found.lines() for piece in text.wrapped(line, text.width(), indent=8)))
    if out is not None:
        write(f"runs    {out}", f"next    fedsim report {out}")
    return 0 if found.met else 1


def _number(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InvalidInput(f"--limit {name}={value}: give a number, such as {name}=3600") from None


TITLES = {"seconds": "virtual time", "uplink_bits": "uplink", "real_s": "real"}


def table(study: Study, width: int = text.DEFAULT_WIDTH) -> list[str]:
    """Return one line per run of a grid: settings that differ, costs and final metrics; then what all runs share."""
    shown: dict[str, Callable[[Any], str]] = {
        "rounds": text.number,
        "seconds": text.seconds,
        "uplink_bits": text.bits,
        **dict.fromkeys(final_metrics(study.runs[0][1]), text.number),
        "real_s": text.seconds,
        "fingerprint": lambda digest: str(digest[:8]),
    }
    settings = [given for given, _ in study.runs]
    axes = [name for name in settings[0] if len({str(given[name]) for given in settings}) > 1]
    stops = [reasons(result) for _, result in study.runs]
    same = len(set(stops)) == 1
    rows = [[*axes, *(TITLES.get(name, name) for name in shown), *([] if same else ["stopped by"])]]
    for (given, result), stop in zip(study.runs, stops, strict=True):
        ends = outcome(result)
        cells = [form(ends[name]) for name, form in shown.items()]
        rows.append([*(str(given[name]) for name in axes), *cells, *([] if same else [stop])])
    foot = [*([f"all stopped by {stops[0]}"] if same else []), clock(study.runs[0][1])]
    for given, result in study.runs:
        words = " ".join(f"{name}={given[name]}" for name in axes)
        foot += [f"warning: {words}{': ' if words else ''}{sentence}" for sentence in warnings(result)]
    return [
        *text.columns(rows, width, keys=len(axes)),
        *(piece for line in foot for piece in text.wrapped(line, width, indent=2)),
    ]
