"""`fedsim sweep` and `fedsim status`: many runs, as counts and a table, and as a list of what failed."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fedsim import settings as texts
from fedsim.analysis import units
from fedsim.cli.board import Board
from fedsim.cli.run import voices
from fedsim.cli.stopping import stopping
from fedsim.errors import InvalidInput, shown
from fedsim.protocols import Runtime
from fedsim.runtime.ray import Ray
from fedsim.scenario_file import load_file
from fedsim.sweeps import carry_out
from fedsim.sweeps.estimate import Estimate, estimate
from fedsim.sweeps.plan import Plan, plan
from fedsim.sweeps.status import look
from fedsim.sweeps.status import status as read_status
from fedsim.sweeps.study import Failure

SHOWN = 20  # failures listed in full


def sweep(
    file: str, grid: Sequence[str], given: Sequence[str], *, out: Path, runtime: Runtime, shard: str | None,
    jobs: int | None, resume: bool, retry_failed: bool, dry_run: bool, quiet: bool,
) -> int:  # fmt: skip
    """Carry a sweep out; the exit code says whether all of this shard's runs are whole."""
    axes = {name: texts.axis(text) for name, text in texts.pairs(grid, "--grid").items()}
    what = plan(load_file(file), axes or None, texts.pairs(given, "--set"))
    part = _shard(shard)
    mine = what.shard(part)
    say, terminal = voices(quiet)
    found = look(what, mine, out)
    count = len(found.todo) + (len(found.failed) if retry_failed else 0)
    say(_opening(what, len(mine), part, len(found.whole), count))
    if dry_run:
        _dry_run(say, estimate(what, mine), count, jobs, runtime)
        return 0
    began = time.perf_counter()
    with stopping() as stop, Board(what, len(mine), terminal, say) as board:
        study = carry_out(
            what, out.absolute(), jobs=jobs, shard=part, resume=resume, retry_failed=retry_failed,
            runtime=runtime if isinstance(runtime, Ray) else None, observers=(board,), stop=stop,
        )  # fmt: skip
    say(*board.table())
    (say if not quiet else _complain)(*failures(out, what, study.failed))
    here = look(what, mine, out)
    code = 1 if here.failed else 0
    took = units.seconds(time.perf_counter() - began)
    ended = f"done: {len(here.whole):,} whole, {len(here.failed):,} failed, {took}"
    say(
        ended
        + (f", {len(here.running):,} running elsewhere" if here.running else "")
        + (f" (exit {code})" if code else "")
    )
    if code:
        say("again   add --retry-failed")
    if part is not None:
        say(f"all     fedsim status {out}      {len(study.runs):,} of {len(what.orders):,} whole")
    say(f"merged  {out}/runs.parquet, curves.parquet", f"next    fedsim report {out}")
    return code


def status(out: Path) -> tuple[list[str], int]:
    """The lines about a sweep's folder, and 1 if anything in it failed."""
    there = read_status(out)
    total = len(there.plan.orders)
    counts = {"failed": there.failed, "running": there.running, "to do": there.todo}
    parts = [
        f"{len(there.whole):,} of {total:,} whole",
        *(f"{len(runs):,} {name}" for name, runs in counts.items()),
    ]
    again = [f"again   fedsim sweep ... --out {out} --retry-failed"] if there.failed else []
    return [f"{there.plan.name}: {', '.join(parts)}", *failures(out, there.plan, there.failed), *again], int(
        bool(there.failed)
    )


def failures(out: Path, what: Plan, failed: Sequence[Failure]) -> list[str]:
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


def _opening(what: Plan, mine: int, shard: object, whole: int, todo: int) -> str:
    sizes = [len(values) for values in what.grid.values()]
    product = "x".join(map(str, sizes)) + " = " if len(sizes) > 1 else ""
    part = "" if shard is None else f"this shard {mine:,}: "
    return f"{product}{units.many(len(what.orders), 'run')}; {part}{whole:,} whole (kept), {todo:,} to do"


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
        raise InvalidInput(f"--shard {shown(text)}: write 3/20 for the runs 3, 23, 43, ... of those numbered from 0")
    return int(match[1]), int(match[2])
