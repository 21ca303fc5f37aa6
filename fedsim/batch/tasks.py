"""Runs of a sweep on a Ray cluster that shares its folder: one task per run, computing inline inside."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedsim.batch.plan import Order, Plan
from fedsim.batch.work import Report, fail, perform
from fedsim.errors import RuntimeFailed
from fedsim.results.lock import tag
from fedsim.runtime.ray import Ray
from fedsim.runtime.ray_own import hear_sigterm
from fedsim.runtime.ray_tasks import spread
from fedsim.scenario_file import load_source

GLANCE_S = 0.5


def tasks(
    plan: Plan, orders: list[Order], out: Path, jobs: int | None, runtime: Ray, stop: threading.Event
) -> Generator[tuple[Order, Report], None, None]:  # fmt: skip
    """Like `pool`. A file in the folder tells tasks on other machines to finish their round and stop."""
    if not orders:
        return
    flag = out / f".stop.{tag()}.tmp"  # a name that says whose it is: the next sweep clears those of the dead
    threads = max(1, int(runtime.num_cpus_per_host))
    facts = {"file": plan.file, "folder": plan.folder, "source": plan.source, "modules": plan.modules}
    calls = [(facts, asdict(order), str(out), threads, str(flag)) for order in orders]

    def go_on() -> bool:
        if stop.is_set() and not flag.exists():
            flag.touch()
        return not stop.is_set()

    try:
        for number, answer in spread(runtime, work, calls, jobs, go_on):
            order = orders[number]
            if isinstance(answer, RuntimeFailed):
                yield order, fail(out / order.run, order, RuntimeFailed.__name__, str(answer), f"{answer}\n")
            else:
                yield order, answer or {"state": "started"}
    finally:
        flag.unlink(missing_ok=True)


def work(facts: dict[str, Any], order: dict[str, Any], out: str, threads: int, flag: str) -> Report:
    """The task itself."""
    stop, over = threading.Event(), threading.Event()

    def glance() -> None:
        while not over.wait(GLANCE_S):
            if os.path.exists(flag):
                stop.set()

    threading.Thread(target=glance, daemon=True).start()
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())  # tasks run on their process's main thread
    hear_sigterm()
    try:
        file = load_source(Path(facts["file"]), facts["source"], facts["folder"], facts["modules"])
        return perform(file, Order(**order), Path(out), threads, stop)
    finally:
        over.set()
        signal.signal(signal.SIGTERM, before)
