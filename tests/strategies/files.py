"""Scenario files as text, and the command that reads them."""

from __future__ import annotations

import sys

MOODY = """
from dataclasses import dataclass
import os, signal, time
import numpy as np
import fedsim as fs

@dataclass(frozen=True)
class Moody(fs.algorithms.FALD):
    batched = False
    bad: str = ""
    kill: str = ""
    slow: str = ""

    def fused(self, problem, backend):
        return None

    def client(self, job, message, memory):
        if self.bad and os.path.exists(self.bad):
            print("this goes to the log")
            raise LookupError("the dog ate it")
        if self.kill and os.path.exists(self.kill):
            os.unlink(self.kill)
            os.kill(os.getpid(), signal.SIGKILL)
        if self.slow and os.path.exists(self.slow):
            time.sleep(0.05)
        return {"theta": 0.5 * message["theta"] + job.normal(0)}, memory

def scenario(*, level: int = 0, bad: str = "", kill: str = "", slow: str = "", rounds: int = 3):
    if level < 0:
        raise ValueError("below the floor")
    trouble = bad if level == 1 else ""
    return fs.Scenario(
        problem=fs.problems.GaussianMean([np.zeros((4, 2)), np.full((4, 2), 1.0 + level)], np.eye(2)),
        algorithm=Moody(step_size=1e-3, bad=trouble, kill=kill if level == 2 else "", slow=slow),
        budget=fs.Budget(rounds=rounds), metrics=("mean_error",))
"""
TINY = """
import fedsim as fs

def scenario(*, rounds: int = 2, step: float = 1e-3, name: str = "x", seeds: tuple[int, ...] = (1, 2)):
    problem = fs.problems.GaussianMean.synthetic(clients=2, dim=2, samples=3)
    return fs.Scenario(problem=problem, algorithm=fs.algorithms.FALD(step_size=step), budget=fs.Budget(rounds=rounds))
"""
ENTRY = f'{sys.executable} -c "from fedsim.cli import main; main()"'
