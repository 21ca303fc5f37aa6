"""A campaign of kills on Ray: after every one the run ends in time, in one sentence, and resumes to the same bits.

FEDSIM_KILLS=4 runs the first four trials of each kind alone.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tools.ray_nodes import STOPPED_S, Nodes, inline, resumed
from tools.slow_run import MAIN, SECONDS, begin, child, ended, write_scenarios

import fedsim as fs
from fedsim.runtime.ray import folder as ray_folder
from fedsim.scenario_file import load_file

pytest.importorskip("ray")
pytestmark = [pytest.mark.soak, pytest.mark.skipif(not Path("/proc").exists(), reason="looks into /proc")]
OWN, TWO_NODES = (min(count, int(os.environ.get("FEDSIM_KILLS", count))) for count in (80, 20))
ROUNDS = 40
LIMIT_S = STOPPED_S + 60  # the rounds after a kill take time, too


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The fingerprint of an inline run."""
    folder = tmp_path_factory.mktemp("whole")
    write_scenarios(folder)
    return fs.run(load_file(folder / "slow.py").build({"rounds": ROUNDS})).fingerprint


def hosts_below(pid):
    """The client hosts among the processes that descend from one."""
    found, left = [], [pid]
    while left:
        one = left.pop()
        with suppress(OSError):
            children = [int(c) for c in Path(f"/proc/{one}/task/{one}/children").read_text().split()]
            left += children
            found += [c for c in children if Path(f"/proc/{c}/cmdline").read_text().startswith("ray::Host")]
    return found


def finish(folder, whole, killed, code, err):
    """Check how a command ended, and complete its run."""
    assert "Traceback" not in err, (killed, err)
    assert code in (0, 1, 130, -signal.SIGKILL), (killed, code, err)
    assert len(err.splitlines()) <= 1, (killed, err)
    if code:
        again = ["run", "slow.py", "--out", "out", "--or-resume", "--quiet", "--set", f"rounds={ROUNDS}"]
        subprocess.run([sys.executable, "-c", MAIN, *again], cwd=folder, check=True, timeout=SECONDS)
    assert fs.load(folder / "out").fingerprint == whole, killed
    shutil.rmtree(folder / "out")


def kill(job, what):
    """End a process of a command, or send it a signal."""
    if what == "host":
        for pid in hosts_below(job.pid)[:1]:
            os.kill(pid, signal.SIGKILL)
    elif what in ("raylet", "gcs_server"):
        os.kill(child(job.pid, what), signal.SIGKILL)
    elif what == "SIGTERM to all":
        os.killpg(job.pid, signal.SIGTERM)
    else:
        os.kill(job.pid, {"driver": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT}[what])


@pytest.mark.parametrize("trial", range(OWN))
def test_a_kill_on_an_own_ray(trial, tmp_path, whole):
    rng = np.random.default_rng(trial)
    what = ("host", "driver", "raylet", "SIGTERM", "gcs_server", "SIGTERM to all", "SIGINT", "host")[trial % 8]
    scratch = Path(tempfile.mkdtemp(prefix="c-"))
    write_scenarios(tmp_path)
    (tmp_path / "home").mkdir()
    words = ("run", "slow.py", "--runtime", "ray", "--hosts", "2", "--out", "out", "--checkpoint-every", "3")
    try:
        job = begin(tmp_path, *words, "--set", f"rounds={ROUNDS}", RAY_TMPDIR=str(scratch), HOME=str(tmp_path / "home"))
        time.sleep(rng.uniform(0, 3))
        with suppress(AssertionError, ProcessLookupError):  # it is complete already
            kill(job, what)
        code, _, err = ended(job, LIMIT_S)
        finish(tmp_path, whole, what, code, err)
    finally:
        ray_folder.kill_users(scratch)
        shutil.rmtree(scratch, ignore_errors=True)


@pytest.mark.parametrize("trial", range(TWO_NODES))
def test_a_kill_on_two_nodes(trial, tmp_path, whole):
    rng = np.random.default_rng(1000 + trial)
    what = ("raylet", "host", "driver", "SIGTERM")[trial % 4]
    nodes = Nodes(tmp_path, *((4, 4) if trial % 8 < 4 else (1, 1)))
    try:
        job = nodes.begin("--hosts", "2", "--checkpoint-every", "3")
        time.sleep(rng.uniform(0, 3))
        if what == "raylet":
            nodes.kill_raylet()
        elif what == "host":
            for pid in [*hosts_below(nodes.other.pid), *hosts_below(nodes.head.pid)][:1]:
                os.kill(pid, signal.SIGKILL)
        else:
            kill(job, what)
        code, _, err = ended(job, LIMIT_S)
        finish(tmp_path, whole, what, code, err)
    finally:
        nodes.stop()


@pytest.mark.parametrize("part", ["gcs_server", "raylet"])
def test_a_run_on_a_cluster_whose_head_dies_keeps_a_checkpoint(part, tmp_path):
    """Ray itself would end the process after a minute, without a checkpoint."""
    rounds, nodes = 200, Nodes(tmp_path, 1, 1)
    try:
        job = nodes.begin("--hosts", "2", rounds=rounds)
        os.kill(child(nodes.head.pid, part), signal.SIGKILL)
        code, _, err = ended(job, STOPPED_S)
        assert (code, len(err.splitlines())) == (1, 1), err
        assert "no longer answers" in err
        assert "go on with: fedsim resume" in err
        assert resumed(nodes) == inline(nodes, rounds)
    finally:
        nodes.stop()


GREEDY = """
import time
from pathlib import Path
import numpy as np
from slow import Slow, scenario as slow
from dataclasses import dataclass, replace

@dataclass(frozen=True)
class Greedy(Slow):
    def client(self, job, message, memory):
        flag = Path({flag!r})
        if job.round == 5 and not flag.exists():
            flag.touch()
            taken = [np.ones(12_500_000) for _ in range({size} // 100_000_000)]  # 100 MB each
            taken[0][0] = 2
            time.sleep(20)
        return super().client(job, message, memory)

def scenario(rounds: int = 40):
    return replace(slow(rounds=rounds), algorithm=Greedy(1e-3, local_steps=2))
"""


def test_a_host_that_ray_ends_for_lack_of_memory_is_replaced(tmp_path, whole):
    """A real out-of-memory kill: the threshold is 4 GB above what the machine uses, and a client takes 7 GB."""
    facts = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    total, free = (int(facts[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    if free < 12e9:
        pytest.skip("needs 12 GB of free memory")
    limit = {"RAY_memory_usage_threshold": f"{1 - (free - 4e9) / total:.4f}", "RAY_memory_monitor_refresh_ms": "100"}
    nodes = Nodes(tmp_path, 1, 1, **limit)
    (tmp_path / "greedy.py").write_text(GREEDY.format(flag=str(tmp_path / "flag"), size=7_000_000_000))
    try:
        job = nodes.begin("--hosts", "2", file="greedy.py")
        code, _, err = ended(job)
        assert (code, err) == (0, ""), err
        assert (tmp_path / "flag").exists()
        assert fs.load(tmp_path / "out").fingerprint == whole
    finally:
        nodes.stop()
