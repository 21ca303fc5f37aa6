"""One run of one script: seconds a round, start-up, peak memory of its processes, and whether it did the work."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from analysis.bench.peers.environments import Peer
from analysis.bench.peers.workloads import WORKLOADS

HERE = Path(__file__).parent
WARMUP = 2  # rounds left out of the median
PAGE = os.sysconf("SC_PAGE_SIZE")
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def run(python: str, peer: Peer, workload: str, data: Path, timeout_s: float) -> dict[str, Any]:
    """What came of it, or {"failed": why}."""
    with tempfile.TemporaryDirectory() as folder:
        out, log = Path(folder) / "out.json", Path(folder) / "log"
        paths = [str(HERE), str(HERE.parents[2])] if not peer.own else [str(HERE)]
        environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(paths)}
        script = str(HERE / "scripts" / f"{peer.script}.py")
        command = [python, script, "--workload", workload, "--data", str(data), "--out", str(out), *peer.options]
        began = time.time()
        with open(log, "wb") as file:
            child = subprocess.Popen(command, stdout=file, stderr=file, env=environment, start_new_session=True)
        memory = Memory(child.pid)
        try:
            child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            for process in _family(child.pid)[::-1]:  # its own alone; Ray's are in sessions of their own
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, 9)
            child.wait()
            return {"failed": f"not done after {timeout_s:g} s"}
        finally:
            memory.stop()
        if child.returncode or not out.exists():
            return {"failed": log.read_text(errors="replace").strip()[-300:]}
        report = json.loads(out.read_text())
    ends = report["ends"]
    seconds = statistics.median(lengths(ends, report["rounds"])[WARMUP - 1 :])
    return {
        "s_per_round": seconds,
        "updates_per_s": WORKLOADS[workload].cohort / seconds,
        "startup_s": ends[0] - began,
        "peak_mib": memory.peak / 2**20,
        "loss": report["loss"],
        "updates": report["updates"],
    }


def lengths(ends: list[float], rounds: list[int]) -> list[float]:
    """Seconds of each round after those done at the first end; rounds that ended together took equally long."""
    pairs = zip(itertools.pairwise(ends), itertools.pairwise(rounds), strict=True)
    return [(b - a) / (n - m) for (a, b), (m, n) in pairs for _ in range(n - m)]


class Memory(threading.Thread):
    """The largest sum of resident memory over a process and its children, looked at every tenth of a second."""

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self.root, self.peak, self._over = root, 0, threading.Event()
        self.start()

    def run(self) -> None:
        while not self._over.wait(0.1):
            self.peak = max(self.peak, sum(map(_resident, _family(self.root))))

    def stop(self) -> None:
        self._over.set()
        self.join()


def _family(root: int) -> list[int]:
    found = [root]
    for process in found:
        try:
            tasks = os.listdir(f"/proc/{process}/task")
            children = [Path(f"/proc/{process}/task/{task}/children").read_text() for task in tasks]
        except OSError:  # it has ended
            continue
        found.extend(int(number) for line in children for number in line.split())
    return found


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0
