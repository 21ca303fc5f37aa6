"""Workers of a sweep: processes of this machine that take one run after another, or tasks of a Ray cluster.

A worker process runs `main` below and not the caller's script, so that a script that calls `fs.sweep` is never executed
again by its workers. Runs reach it as lines of JSON on stdin, reports leave it on stdout. A process that dies is
replaced, and its run is tried again.
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
from fedsim.results import files
from fedsim.results.checksums import to_json
from fedsim.results.process import tag
from fedsim.runtime.process import exit_process
from fedsim.runtime.ray import Ray
from fedsim.runtime.ray.private import unblock_sigterm
from fedsim.runtime.ray.tasks import spread
from fedsim.scenario_file import load_source
from fedsim.sweeps.execution import Report, execute, record_failure
from fedsim.sweeps.spec import RunSpec, SweepSpec

COMMAND = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from fedsim.sweeps.workers import main; main()"
ATTEMPTS = 3  # processes that one run may end before it counts as failed
POLL_S = 0.2
STOP_POLL_S = 0.5
EXIT_S = 30.0  # for an idle process


def main() -> None:
    """Execute the runs that arrive on stdin until it closes."""
    reports = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # output of the scenario's code must not mix with the reports
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    first = json.loads(sys.stdin.buffer.readline() or "null")
    if first is None:
        return
    runs: queue.Queue[dict[str, object] | None] = queue.Queue()
    threading.Thread(target=_read_stdin, args=(runs, stop), daemon=True).start()
    out, refused = Path(first["out"]), ""
    try:
        file = load_source(Path(first["file"]), first["source"], first["folder"], first["modules"])
    except InvalidInput as error:  # a module beside the file has changed since the sweep started
        refused = str(error)
    while (given := runs.get()) is not None:
        run = RunSpec(**given)  # type: ignore[arg-type]
        if refused:
            report = record_failure(out / run.name, run, InvalidInput.__name__, refused, f"{refused}\n")
        else:
            report = execute(file, run, out, first["threads"], stop)
        reports.write(json.dumps(json.loads(to_json(report))).encode() + b"\n")
        reports.flush()
    exit_process(0)


def _read_stdin(runs: queue.Queue[dict[str, object] | None], stop: threading.Event) -> None:
    """Queue the runs; when the sweep ends or dies, let the current run save a checkpoint and stop."""
    for line in sys.stdin.buffer:
        runs.put(json.loads(line))
    stop.set()
    runs.put(None)


def ray_tasks(
    spec: SweepSpec, runs: list[RunSpec], out: Path, jobs: int | None, runtime: Ray, stop: threading.Event
) -> Generator[tuple[RunSpec, Report], None, None]:  # fmt: skip
    """Execute the runs like `processes`, as tasks of a cluster that shares the folder; a file in it stops them."""
    if not runs:
        return
    flag = out / f".stop.{tag()}.tmp"  # the tag names this process, so that the next sweep removes stale flags
    threads = max(1, int(runtime.num_cpus_per_host))
    facts = {"file": spec.file, "folder": spec.folder, "source": spec.source, "modules": spec.modules}
    calls = [(facts, asdict(run), str(out), threads, str(flag)) for run in runs]

    def proceed() -> bool:
        if stop.is_set() and not flag.exists():
            files.new_file(flag).close()
        return not stop.is_set()

    try:
        for number, answer in spread(runtime, ray_task, calls, jobs, proceed):
            run = runs[number]
            if isinstance(answer, RuntimeFailed):
                text = str(answer)
                yield run, record_failure(out / run.name, run, RuntimeFailed.__name__, text, f"{text}\n")
            else:
                yield run, answer or {"state": "started"}
    finally:
        files.remove(flag)


def ray_task(facts: dict[str, Any], run: dict[str, Any], out: str, threads: int, flag: str) -> Report:
    """Execute one run on the cluster."""
    stop, over = threading.Event(), threading.Event()

    def watch_flag() -> None:
        while not over.wait(STOP_POLL_S):
            if os.path.exists(flag):
                stop.set()

    threading.Thread(target=watch_flag, daemon=True).start()
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())  # a task runs on its process's main thread
    unblock_sigterm()
    try:
        file = load_source(Path(facts["file"]), facts["source"], facts["folder"], facts["modules"])
        return execute(file, RunSpec(**run), Path(out), threads, stop)
    finally:
        over.set()
        signal.signal(signal.SIGTERM, before)


class WorkerProcess:
    """A process and its current run."""

    def __init__(self, spec: SweepSpec, out: Path, threads: int) -> None:
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        command = [sys.executable, "-c", COMMAND, json.dumps(sys.path)]
        # In a session of its own, so that Ctrl-C reaches the sweep alone, which lets every run finish its round.
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, start_new_session=True
        )
        assert self.process.stdout is not None
        self.output = self.process.stdout
        self.run: RunSpec | None = None
        facts = {"file": spec.file, "folder": spec.folder, "source": spec.source, "modules": spec.modules}
        self._send(facts | {"out": str(out), "threads": threads})

    def start(self, run: RunSpec) -> RunSpec:
        """Send a run to the process."""
        self.run = run
        self._send(asdict(run))
        return run

    def read_report(self) -> Report | None:
        """Return the report of the run, None if the process has died."""
        line = self.output.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def close(self) -> None:
        """Send no more runs; the current run finishes its round and saves a checkpoint."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()

    def end(self) -> str:
        """Wait for the process and return how it ended."""
        self.close()
        try:
            code = self.process.wait(EXIT_S)
        except subprocess.TimeoutExpired:  # it has reported, or closed its output
            self.process.kill()
            code = self.process.wait()
        self.output.close()
        self.errors.seek(0)
        last = self.errors.read().decode(errors="replace").strip().splitlines()[-1:]
        self.errors.close()
        cause = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return cause + (f", {last[0]}" if last else "")

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:  # it has died, and `read_report` returns None
            pass


def threads_each(jobs: int, runs: int) -> int:
    """Return the threads of each of some parallel runs."""
    return max(1, (os.cpu_count() or 1) // max(min(jobs, runs), 1))


def processes(
    spec: SweepSpec, runs: Iterable[RunSpec], out: Path, jobs: int, stop: threading.Event
) -> Generator[tuple[RunSpec, Report], None, None]:
    """Execute the runs, `jobs` at a time; yield each when it starts, and again with its report."""
    waiting, deaths = deque(runs), Counter[str]()
    at_once = min(jobs, len(waiting))
    threads = threads_each(jobs, len(waiting))
    with selectors.DefaultSelector() as selector:
        try:
            while waiting or selector.get_map():
                if stop.is_set():
                    waiting.clear()
                    for worker in _workers(selector):
                        worker.close()
                while waiting and len(selector.get_map()) < at_once:
                    worker = WorkerProcess(spec, out, threads)
                    selector.register(worker.output, selectors.EVENT_READ, worker)
                    yield worker.start(waiting.popleft()), {"state": "started"}
                for key, _ in selector.select(POLL_S):
                    worker, run = key.data, key.data.run
                    report = worker.read_report()
                    if report is not None:
                        if report["state"] == "interrupted":  # a signal stopped the worker, so the sweep stops
                            stop.set()
                        following = worker.start(waiting.popleft()) if waiting and not stop.is_set() else None
                        yield run, report  # the consumer may take some time
                        if following is not None:
                            yield following, {"state": "started"}
                            continue
                    selector.unregister(worker.output)
                    cause = worker.end()
                    if report is None:
                        deaths[run.name] += 1
                        if deaths[run.name] < ATTEMPTS and not stop.is_set():
                            waiting.appendleft(run)
                        else:
                            yield run, _given_up(out, run, deaths[run.name], cause)
        finally:  # if the consumer stops early, no process remains; its run can resume later
            for worker in _workers(selector):
                worker.process.kill()
                worker.end()


def _workers(selector: selectors.BaseSelector) -> list[WorkerProcess]:
    return [key.data for key in selector.get_map().values()]


def _given_up(out: Path, run: RunSpec, times: int, cause: str) -> Report:
    if times < ATTEMPTS:  # it died while the sweep was stopping
        return {"state": "interrupted"}
    message = f"its process died {times} times ({cause}); look at its memory, then --retry-failed"
    return record_failure(out / run.name, run, RuntimeFailed.__name__, message, f"{message}\n")
