"""A worker process of a sweep: reads runs to do as lines of JSON, answers with reports, ends with its input.

It is a plain program, so that a script that calls `fs.sweep` is never run a second time by its own workers.

Runs of a sweep on a Ray cluster that shares its folder: one task per run, computing inline inside.

Runs of a sweep on this machine: persistent processes; one that dies is replaced, its run tried again.
"""

from __future__ import annotations

import json
import os
import queue
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter, deque
from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from fedsim.errors import InvalidInput, RuntimeFailed
from fedsim.results.checksums import to_json
from fedsim.results.lock import tag
from fedsim.runtime.process import exit_process
from fedsim.runtime.ray import Ray
from fedsim.runtime.ray.cluster import unblock_sigterm
from fedsim.runtime.ray.tasks import spread
from fedsim.scenario_file import load_source
from fedsim.sweeps.execution import Report, fail, perform
from fedsim.sweeps.spec import Order, Plan

COMMAND = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from fedsim.sweeps.workers import main; main()"


def main() -> None:
    """The worker's whole life."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a scenario prints must not end up among the answers
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    first = json.loads(sys.stdin.buffer.readline() or "null")
    if first is None:
        return
    orders: queue.Queue[dict[str, object] | None] = queue.Queue()
    threading.Thread(target=_listen, args=(orders, stop), daemon=True).start()
    out, refused = Path(first["out"]), ""
    try:
        file = load_source(Path(first["file"]), first["source"], first["folder"], first["modules"])
    except InvalidInput as error:  # a neighbour of the file has changed since the sweep was planned
        refused = str(error)
    while (given := orders.get()) is not None:
        order = Order(**given)  # type: ignore[arg-type]
        if refused:
            report = fail(out / order.run, order, InvalidInput.__name__, refused, f"{refused}\n")
        else:
            report = perform(file, order, out, first["threads"], stop)
        answers.write(json.dumps(json.loads(to_json(report))).encode() + b"\n")
        answers.flush()
    exit_process(0)


def _listen(orders: queue.Queue[dict[str, object] | None], stop: threading.Event) -> None:
    """Beside the run: if the sweep ends, or dies, the run finishes its round, keeps a checkpoint and stops."""
    for line in sys.stdin.buffer:
        orders.put(json.loads(line))
    stop.set()
    orders.put(None)


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
    unblock_sigterm()
    try:
        file = load_source(Path(facts["file"]), facts["source"], facts["folder"], facts["modules"])
        return perform(file, Order(**order), Path(out), threads, stop)
    finally:
        over.set()
        signal.signal(signal.SIGTERM, before)


TRIES = 3  # how often a run may take its process down with it
TICK_S = 0.2
PATIENCE_S = 30.0  # for a process that has nothing left to do


class WorkerProcess:
    """A process and the run that it is busy with."""

    def __init__(self, plan: Plan, out: Path, threads: int) -> None:
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        command = [sys.executable, "-c", COMMAND, json.dumps(sys.path)]
        # A session of its own: Ctrl-C reaches the sweep alone, which then lets every run finish its round.
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, start_new_session=True
        )
        assert self.process.stdout is not None
        self.output = self.process.stdout
        self.order: Order | None = None
        self._send(
            {
                "file": plan.file,
                "folder": plan.folder,
                "source": plan.source,
                "modules": plan.modules,
                "out": str(out),
                "threads": threads,
            }
        )

    def give(self, order: Order) -> Order:
        self.order = order
        self._send({"run": order.run, "settings": order.settings})
        return order

    def answer(self) -> Report | None:
        """The report that has come, or None if the process has died instead."""
        line = self.output.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def dismiss(self) -> None:
        """No more work: a run under way finishes its round and keeps a checkpoint."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()

    def end(self) -> str:
        """Wait for the process; how it ended, in a few words."""
        self.dismiss()
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:  # it has answered, or closed its output: nothing of it is missed
            self.process.kill()
            code = self.process.wait()
        self.output.close()
        self.errors.seek(0)
        last = self.errors.read().decode(errors="replace").strip().splitlines()[-1:]
        self.errors.close()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return how + (f", {last[0]}" if last else "")

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:  # it has died; its closed output will say so
            pass


def pool(
    plan: Plan, orders: Iterable[Order], out: Path, jobs: int, stop: threading.Event
) -> Generator[tuple[Order, Report], None, None]:
    """Carry out the orders, `jobs` at a time; yields each when it is started and again with what came out."""
    waiting, deaths = deque(orders), Counter[str]()
    at_once = min(jobs, len(waiting))
    threads = max(1, (os.cpu_count() or 1) // max(at_once, 1))
    with selectors.DefaultSelector() as watch:
        try:
            while waiting or watch.get_map():
                if stop.is_set():
                    waiting.clear()
                    for worker in _busy(watch):
                        worker.dismiss()
                while waiting and len(watch.get_map()) < at_once:
                    worker = WorkerProcess(plan, out, threads)
                    watch.register(worker.output, selectors.EVENT_READ, worker)
                    yield worker.give(waiting.popleft()), {"state": "started"}
                for key, _ in watch.select(TICK_S):
                    worker, order = key.data, key.data.order
                    report = worker.answer()
                    if report is not None:
                        if report["state"] == "interrupted":  # the worker itself was told to end: so is all else
                            stop.set()
                        following = worker.give(waiting.popleft()) if waiting and not stop.is_set() else None
                        yield order, report  # whoever looks at it may take a while
                        if following is not None:
                            yield following, {"state": "started"}
                            continue
                    watch.unregister(worker.output)
                    how = worker.end()
                    if report is None:
                        deaths[order.run] += 1
                        if deaths[order.run] < TRIES and not stop.is_set():
                            waiting.appendleft(order)
                        else:
                            yield order, _given_up(out, order, deaths[order.run], how)
        finally:  # if the caller has gone away: nothing is left running; what is not whole goes on another time
            for worker in _busy(watch):
                worker.process.kill()
                worker.end()


def _busy(watch: selectors.BaseSelector) -> list[WorkerProcess]:
    return [key.data for key in watch.get_map().values()]


def _given_up(out: Path, order: Order, times: int, how: str) -> Report:
    if times < TRIES:  # it died while the sweep was being stopped
        return {"state": "interrupted"}
    message = f"its process died {times} times ({how}); look at its memory, then --retry-failed"
    return fail(out / order.run, order, RuntimeFailed.__name__, message, f"{message}\n")
