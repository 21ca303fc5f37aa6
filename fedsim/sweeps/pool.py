"""Runs of a sweep on this machine: persistent processes; one that dies is replaced, its run tried again."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter, deque
from collections.abc import Generator, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from fedsim.errors import RuntimeFailed
from fedsim.sweeps.plan import Order, Plan
from fedsim.sweeps.work import Report, fail
from fedsim.sweeps.worker import COMMAND

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
