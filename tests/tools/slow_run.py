"""Commands that execute a slow scenario on Ray, for tests that kill something meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SCENARIO = """
import time
from dataclasses import dataclass
from pathlib import Path
import fedsim as fs

@dataclass(frozen=True)
class Slow(fs.algorithms.FedAvg):
    fused = None

    def client(self, job, message, memory):
        time.sleep({pause})
        if job.round > 3:
            Path({seen!r}).touch()
        return super().client(job, message, memory)

def scenario(seed: int = 0, rounds: int = 10_000) -> fs.Scenario:
    return fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(4, 3, samples=20), algorithm=Slow(1e-3, local_steps=2), seed=seed,
        devices=fs.devices.constant(0.1), budget=fs.Budget(rounds=rounds),
    )
"""
SECONDS = 240  # other work may load the machine; a hang still fails
MAIN = "from fedsim.cli import main; main()"


def write_scenarios(folder):
    """Write `slow.py` and `quick.py`; their clients touch `seen` in round 4."""
    (folder / "slow.py").write_text(SCENARIO.format(pause=0.05, seen=str(folder / "seen")))
    (folder / "quick.py").write_text(SCENARIO.format(pause=0, seen=str(folder / "seen")))


def begin(folder, *words, program=MAIN, **environment):
    """A command that has got as far as its fourth round."""
    (folder / "seen").unlink(missing_ok=True)
    own = {n: v for n, v in os.environ.items() if not n.startswith("RAY_")}
    job = subprocess.Popen(
        [sys.executable, "-c", program, *words], cwd=folder, env=own | environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    limit = time.monotonic() + SECONDS
    while not (folder / "seen").exists():
        assert job.poll() is None, job.communicate()
        assert time.monotonic() < limit, "it does not get going"
        time.sleep(0.1)
    return job


def ended(job, seconds=SECONDS):
    """The exit code and the output of a command that ends in time."""
    try:
        out, err = job.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        raise
    return job.returncode, out, err


def child(pid, name):
    """The pid of a process that another one started."""
    for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if Path(f"/proc/{one}/comm").read_text().strip() == name:
            return int(one)
    raise AssertionError(f"no {name}")
