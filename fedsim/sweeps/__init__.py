"""Many runs of one scenario file: `sweep` carries out a grid, `load` reads what it, or one run, has left."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsim import results
from fedsim.checks import check_path, is_int
from fedsim.errors import FedsimError, Interrupted, InvalidInput
from fedsim.protocols import Runtime
from fedsim.results import Result
from fedsim.results.folder import tidy
from fedsim.runtime.inline import Inline
from fedsim.runtime.ray import Ray
from fedsim.scenario_file import load_file
from fedsim.sweeps.spec import PLAN, Order, Plan, plan
from fedsim.sweeps.study import Study

__all__ = ["Event", "load", "sweep"]


@dataclass(frozen=True)
class Event:
    """What an observer of a sweep sees: a run was found, started or ended. For the eye, never for the run."""

    order: Order
    state: str  # kept, started, whole, failed, interrupted, elsewhere
    ends: Mapping[str, Any]  # what came out, as in a row of the study's table
    reason: str = ""


def sweep(
    file: str | Path, grid: Mapping[str, Iterable[Any]] | None = None, *, out: str | Path,
    settings: Mapping[str, Any] | None = None, jobs: int | None = None, shard: tuple[int, int] | None = None,
    resume: bool = False, retry_failed: bool = False, runtime: Runtime | None = None,
    observers: Iterable[Callable[[Event], None]] = (), stop: threading.Event | None = None,
) -> Study:  # fmt: skip
    """Run a scenario file under every combination of `grid` (or the file's own), each into a folder in `out`.

    `jobs` at a time (by default one per core), in processes of this machine or, with `runtime=fs.Ray(...)`, as
    tasks of a cluster. `shard=(3, 20)` does every twentieth run only, from number 3 on. What is whole is kept,
    what was interrupted goes on from its checkpoint, what failed is left alone unless `retry_failed`. A failed
    run does not stop the others; see `study.failed`.
    """
    return carry_out(
        plan(load_file(file), grid, settings or {}), Path(out).absolute(), jobs=jobs, shard=shard,
        resume=resume, retry_failed=retry_failed, runtime=runtime, observers=tuple(observers), stop=stop,
    )  # fmt: skip


def carry_out(
    what: Plan, out: Path, *, jobs: int | None = None, shard: tuple[int, int] | None = None,
    resume: bool = False, retry_failed: bool = False, runtime: Runtime | None = None,
    observers: Sequence[Callable[[Event], None]] = (), stop: threading.Event | None = None,
    orders: tuple[Order, ...] | None = None,
) -> Study:  # fmt: skip
    """`sweep` for those who have made the plan already; `orders` are some of its runs, instead of a shard."""
    from fedsim.sweeps.execution import clean, look
    from fedsim.sweeps.study import Lines, lines, merge, outcomes

    if jobs is not None and not is_int(jobs, least=1):
        raise InvalidInput(f"jobs={jobs}: ask for an integer of at least 1")
    if runtime is not None and not isinstance(runtime, Inline | Ray):
        raise InvalidInput(f"runtime={runtime!r}: a sweep runs on processes of this machine (None) or on fs.Ray(...)")
    mine = what.shard(shard) if orders is None else orders
    what.claim(out, resume=resume or retry_failed, shared=shard is not None)
    clean(out)
    stop = stop if stop is not None else threading.Event()
    found = look(what, mine, out)
    again = {failure.run for failure in found.failed} if retry_failed else set()
    todo = {order.run for order in found.todo} | again
    tell = _teller(observers)
    ends = outcomes(found.whole, out) if observers else {}
    for order in found.whole:
        tidy(out / order.run)
        tell(Event(order, "kept", ends.get(order.run, {})))
    for failure in found.failed:
        if failure.run not in again:
            tell(Event(Order(failure.run, failure.settings), "failed", {}, f"{failure.kind}: {failure.message}"))
    ahead = [order for order in mine if order.run in todo]
    fresh: dict[str, Lines] = {}
    with closing(_reports(what, ahead, out, jobs, runtime, stop)) as reports:
        for order, report in reports:
            if report["state"] == "whole":
                with suppress(FedsimError, OSError):  # the merge says what is wrong with it
                    fresh[order.run] = lines(order, out)
            reason = f"{report['error']}: {report['message']}" if report["state"] == "failed" else ""
            tell(Event(order, report["state"], report.get("ends", {}), reason))
    merge(what, out, fresh)
    if stop.is_set() and (left := look(what, mine, out).todo):
        raise Interrupted(
            f"stopped with {len(left)} of {len(mine)} runs to do; go on with the same command and --resume"
        )
    return study(what, out, mine)


def load(path: str | Path) -> Any:
    """What a folder holds: the Result of a run, or the Study of a sweep."""
    folder = check_path("load(path)", path)
    if (folder / PLAN).exists():
        there = Plan.read(folder)
        return study(there, folder.absolute(), there.orders)
    return results.load(folder)


def study(what: Plan, out: Path, orders: tuple[Order, ...]) -> Study:
    """A sweep's folder as a study of all its whole runs; of the failures, those among `orders`."""
    from fedsim.sweeps.execution import look
    from fedsim.sweeps.study import tables, whole

    there = whole(what, out)
    runs = Runs(tuple((order.settings, out / order.run) for order in there))
    return Study(what.name, runs, look(what, orders, out).failed, out, lambda: tables(there, out))


class Runs(Sequence[tuple[dict[str, Any], Result]]):
    """Runs that are read from their folders when they are looked at."""

    def __init__(self, places: tuple[tuple[dict[str, Any], Path], ...]) -> None:
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Runs(self._places[index])
        settings, folder = self._places[index]
        return settings, results.load(folder)


def _reports(
    what: Plan, orders: list[Order], out: Path, jobs: int | None, runtime: Runtime | None, stop: threading.Event
) -> Generator[tuple[Order, dict[str, Any]], None, None]:  # fmt: skip
    if isinstance(runtime, Ray):
        from fedsim.sweeps.workers import tasks

        return tasks(what, orders, out, jobs, runtime, stop)
    from fedsim.sweeps.workers import pool

    return pool(what, orders, out, jobs or os.cpu_count() or 1, stop)


def _teller(observers: Sequence[Callable[[Event], None]]) -> Callable[[Event], None]:
    def tell(event: Event) -> None:
        for observer in observers:
            observer(event)

    return tell
