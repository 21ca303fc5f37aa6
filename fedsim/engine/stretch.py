"""Several rounds at a go, where everybody answers at once, always, and nobody looks in between.

Such rounds have a timeline that is known beforehand, so an algorithm that can (`fused_rounds`) moves all replicas on
by many of them in compiled code; one whose rounds differ now and then says how many are alike (`rounds_alike`). The
bits are those of the rounds taken one by one; a stretch that diverges is taken again one by one, so that the error
says who and when.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.engine import timeline
from fedsim.engine.account import nothing_wasted
from fedsim.engine.run import SPENT, Run

Array = npt.NDArray[Any]
NUMBERS = 1_000_000  # updated in one stretch: what it draws stays in the caches, and signals soon get their turn


def suits(run: Run) -> bool:
    """Whether this run's rounds may be taken several at a go."""
    return (
        getattr(run.session, "can_iterate", False)
        and not run.skip
        and getattr(run.policy, "always", False)
        and run.devices is None
        and run.judge.ledger is None
        and run.reply_shape(0).bits is not None
        and run.reply_shape(0).bits == run.reply_shape(1).bits
        and all(getattr(o, "sparse", False) for o in run.observers)
    )


def length(run: Run, active: Array, number: int) -> int:
    """How many rounds from here on need no look in between."""
    if len(active) < len(run.replicas):
        return 1
    record, rounds = run.scenario.record, run.budget.rounds
    alike = getattr(run.algorithm, "rounds_alike", None)

    def until(every: int | None) -> int:
        return NUMBERS if every is None else every - number % every

    return min(
        max(1, NUMBERS // int(len(active) * run.population * run.problem.dim)),
        NUMBERS if rounds is None else int(rounds) - number,
        until(run.scenario.evaluate_every if run.judge.metrics else None),
        until(record.rounds_every if record.rounds_every > 1 else None),
        until(run.keeper.rounds),
        NUMBERS if alike is None else alike(number),
    )


async def stretch(run: Run, active: Array, number: int, opened: Array, count: int) -> tuple[int, Array, Array] | None:
    """Rounds number ... number + count - 1, or fewer if the budget ends; (rounds taken, who goes on, when).

    None if they had better be taken one by one.
    """
    shape, down = run.reply_shape(0), run.down_bits(run.broadcast(active))
    assert shape.bits is not None
    times = timeline.steady(run.ways, opened, down, shape.bits, count)
    columns = _columns(run, times, down, shape.bits)
    count = _affordable(run, columns)
    if count < 2 or not np.isfinite(times[count]).all():
        return None
    history, memory = await run.session.iterate(run.replicas, number, count, run.state, run.memory)
    if not all(np.isfinite(h[-1]).all() for h in history.values()):
        return None
    before = {n: c[: count - 1] for n, c in columns.items()}
    for k in range(count - 1):
        if run.budget.rounds is None:
            run.patience.after(active, number + k + 1, {n: c[k] for n, c in before.items()})
        run.recorder.sample(number + k + 1, active, history["theta"][k])
    run.recorder.rounds(number + count - 1, active, before)
    for n in SPENT:
        run.spent[n] += before[n].sum(axis=0)
    for name, h in history.items():
        run.state[name][:] = h[-1]
    for name, m in memory.items():
        run.memory[name][:] = m
    visits = count * len(active)
    for name, each in (("selected", 1), ("arrived", 1), ("uplink_bits", shape.bits)):
        run.totals[name] += visits * each
    run.totals["last_round"][:] = number + count
    going = run.close(active, number + count, {n: c[count - 1] for n, c in columns.items()})
    return count, going, times[count][np.isin(active, going)]


def _columns(run: Run, times: Array, down: int, up: int) -> dict[str, Array]:
    def constant(value: int) -> Array:
        return np.full(times[1:].shape, value, np.int64)

    everybody, nobody = constant(run.population), constant(0)
    return {
        "opened_s": times[:-1], "closed_s": times[1:], "selected": everybody, "arrived": everybody,
        "dropped": nobody, "late": nobody, "uplink_bits": everybody * up, "downlink_bits": everybody * down,
        **nothing_wasted(times[1:].shape),
    }  # fmt: skip


def _affordable(run: Run, columns: dict[str, Array]) -> int:
    """How many of these rounds no replica's budget forbids."""
    spent = {n: run.spent[n] + np.cumsum(columns[n], axis=0) for n in SPENT}
    spent["total_bits"] = spent["uplink_bits"] + spent["downlink_bits"]
    spent["seconds"] = columns["closed_s"]
    over = np.zeros(len(columns["closed_s"]), bool)
    for _, where in run.budget.crossed(spent):
        over |= where.any(axis=1)
    return int(np.argmax(over)) if over.any() else len(over)
