"""Runs of a sweep on this machine: a few persistent processes; one that dies is replaced, its run tried again."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from fedsim.batch.plan import Order, Plan
from fedsim.batch.work import Report, fail
from fedsim.batch.worker import COMMAND
from fedsim.errors import RuntimeFailed

TRIES = 3  # how often a run may take its process down with it
TICK_S = 0.2


class Worker:
    """A process and the run that it is busy with."""

    def __init__(self, plan: Plan, out: Path, threads: int) -> None:
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        command = [sys.executable, "-c", COMMAND, json.dumps(sys.path)]
        # A session of its own: Ctrl-C reaches the sweep alone, which then lets every run finish its round.
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, start_new_session=True
        )
        self.order: Order | None = None
        self._send(
            {
                "file": plan.file,
                "folder": plan.folder,
                "source": plan.source,
                "out": str(out),
                "threads": threads,
            }
        )

    def give(self, order: Order) -> None:
        self.order = order
        self._send({"run": order.run, "settings": order.settings})

    def answer(self) -> Report | None:
        """The report that has come, or None if the process has died instead."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def dismiss(self) -> None:
        """No more work: a run under way finishes its round and keeps a checkpoint."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()

    def end(self) -> str:
        """Wait for the process; how it ended, in a few words."""
        self.dismiss()
        code = self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
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
) -> Generator[tuple[Order, Report], None, None]:  # fmt: skip
    """Carry out the orders, `jobs` at a time; yields ("started" and later what came out of it) for each."""
    waiting = deque(orders)
    jobs = min(jobs, len(waiting))
    threads = max(1, (os.cpu_count() or 1) // max(jobs, 1))
    deaths: dict[str, int] = {}
    busy: list[Worker] = []
    with selectors.DefaultSelector() as watch:
        try:
            while waiting or busy:
                if stop.is_set():
                    waiting.clear()
                    for worker in busy:
                        worker.dismiss()
                while waiting and len(busy) < jobs:
                    worker = Worker(plan, out, threads)
                    busy.append(worker)
                    watch.register(worker.process.stdout, selectors.EVENT_READ, worker)
                    worker.give(waiting.popleft())
                    yield worker.order, {"state": "started"}  # type: ignore[misc]
                for key, _ in watch.select(TICK_S):
                    worker, order = key.data, key.data.order
                    report = worker.answer()
                    if report is None:
                        watch.unregister(key.fileobj)
                        busy.remove(worker)
                        how = worker.end()
                        deaths[order.run] = deaths.get(order.run, 0) + 1
                        if stop.is_set():
                            yield order, {"state": "interrupted"}
                        elif deaths[order.run] < TRIES:
                            waiting.appendleft(order)
                        else:
                            message = f"its process died {TRIES} times ({how}); look at its memory, then --retry-failed"
                            yield (
                                order,
                                fail(out / order.run, order, RuntimeFailed.__name__, message, message + "\n"),
                            )
                        continue
                    if (
                        report["state"] == "interrupted"
                    ):  # someone stopped the worker itself: the machine is closing
                        stop.set()
                    yield order, report
                    if waiting and not stop.is_set():
                        worker.give(waiting.popleft())
                        yield worker.order, {"state": "started"}
                    else:
                        watch.unregister(key.fileobj)
                        busy.remove(worker)
                        worker.end()
        finally:  # the caller has gone away: nothing is left running, and what is not whole goes on another time
            for worker in busy:
                worker.process.kill()
                worker.end()
