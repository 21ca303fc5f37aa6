"""How far a sweep is, read from its folder alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedsim.batch.plan import Order, Plan
from fedsim.batch.work import FAILED, running
from fedsim.errors import FedsimError
from fedsim.results.sealed import read_json
from fedsim.study import Failure


@dataclass(frozen=True)
class Status:
    """Every run of the plan is in one of these."""

    plan: Plan
    whole: tuple[Order, ...]
    failed: tuple[Failure, ...]
    running: tuple[Order, ...]
    todo: tuple[Order, ...]  # interrupted ones among them: they go on from their checkpoint


def status(out: str | Path) -> Status:
    """Look at every run's folder."""
    out = Path(out)
    plan = Plan.read(out)
    return look(plan, plan.orders, out)


def look(plan: Plan, orders: tuple[Order, ...], out: Path) -> Status:
    """The same for some of the runs."""
    held = running(out)
    whole, failed, busy, todo = [], [], [], []
    for order in orders:
        folder = out / order.run
        if (folder / "manifest.json").exists():
            whole.append(order)
        elif order.run in held:
            busy.append(order)
        elif (folder / FAILED).exists():
            failed.append(failure(order, folder))
        else:
            todo.append(order)
    return Status(plan, tuple(whole), tuple(failed), tuple(busy), tuple(todo))


def failure(order: Order, folder: Path) -> Failure:
    """Why a run failed."""
    try:
        reason = read_json(folder / FAILED)
        return Failure(order.run, order.settings, str(reason["error"]), str(reason["message"]))
    except (OSError, LookupError, FedsimError):
        return Failure(order.run, order.settings, "CorruptData", f"{folder / FAILED} is damaged; use --retry-failed")
