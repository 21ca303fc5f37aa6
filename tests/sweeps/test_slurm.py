"""The SLURM scripts of the manual, word for word, on a stand-in for SLURM that has one machine."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import fedsim as fs

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "fedsim/docs/howto/slurm.md"
SCENARIO = """
import fedsim as fs

def scenario(policy: str = "uniform", seed: int = 0) -> fs.Scenario:
    chosen = {"uniform": fs.participation.uniform(4), "first": fs.participation.first(2, of=4),
              "deadline": fs.participation.deadline(0.5)}
    return fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(8, 3, samples=20), algorithm=fs.algorithms.FedAvg(1e-3, local_steps=2), seed=seed,
        participation=chosen[policy], devices=fs.devices.lognormal(0.1, sigma=0.5), budget=fs.Budget(rounds=5),
    )
"""
SRUN = """#!/bin/bash
# One machine for all nodes: drop srun's options, run the command unless it is for no node at all.
while [[ "$1" == -* ]]; do
    case "$1" in
        --nodes=0) exit 0 ;;
        -w) shift 2 ;;
        *) shift ;;
    esac
done
exec "$@"
"""


@pytest.fixture
def machine(tmp_path):
    """A folder with `srun`, `scontrol` and the scenario; returns how to start a job, and ends what is left of them."""
    bin = tmp_path / "bin"
    bin.mkdir()
    (bin / "srun").write_text(SRUN)
    (bin / "scontrol").write_text("#!/bin/bash\necho 127.0.0.1\n")
    for stub in bin.iterdir():
        stub.chmod(0o755)
    (tmp_path / "metro.py").write_text(SCENARIO)
    path = f"{bin}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    jobs, scratch = [], Path(tempfile.mkdtemp())  # short: Ray puts sockets there, whose names have a limit

    def submit(script, number, home, **variables):
        (tmp_path / home).mkdir(exist_ok=True)
        slurm = {"SLURM_JOB_ID": number, "SLURM_JOB_NODELIST": "here", "SLURM_CPUS_PER_TASK": 2, **variables}
        own = {n: v for n, v in os.environ.items() if not n.startswith("RAY_")}  # other tests' Ray leaves some behind
        environment = (
            own
            | {"PATH": path, "HOME": str(tmp_path / home), "TMPDIR": str(scratch)}
            | {n: str(v) for n, v in slurm.items()}
        )
        log = (tmp_path / f"{number}.log").open("w")
        job = subprocess.Popen(
            ["bash", "-c", script], cwd=tmp_path, env=environment, stdout=log, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        jobs.append(job)
        return job

    yield submit
    for signal in ("-TERM", "-KILL"):  # as SLURM does at a job's end
        for _ in range(50):
            if subprocess.run(["pkill", signal, "-f", f"{scratch}/"], check=False).returncode:
                break
            time.sleep(0.2)
    for job in jobs:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, 9)
    shutil.rmtree(scratch, ignore_errors=True)


def script_with(words):
    (found,) = [s for s in re.findall(r"```bash\n(#!/bin/bash.*?)```", PAGE.read_text(), re.DOTALL) if words in s]
    return found


def test_array_jobs_share_a_node_and_a_folder(machine, tmp_path):
    script = script_with("--array").replace("seed=0:20", "seed=0:2")
    jobs = [machine(script, 7 + i, "home", SLURM_ARRAY_TASK_ID=i, SLURM_ARRAY_TASK_COUNT=2) for i in range(2)]
    assert [job.wait(300) for job in jobs] == [0, 0], [(tmp_path / f"{n}.log").read_text() for n in (7, 8)]
    frame = fs.load(tmp_path / "home/runs/metro").frame()
    assert len(frame) == 6
    assert set(frame["policy"]) == {"uniform", "first", "deadline"}


def test_two_ray_clusters_share_a_node_and_give_the_same_bits(machine, tmp_path):
    script = script_with("ray start --head").replace("--hosts 32", "--hosts 2")
    number = 1_000 + os.getpid() % 900
    homes = {number: "one", number + 1: "two"}
    jobs = {n: machine(script, n, home, SLURM_JOB_NUM_NODES=1) for n, home in homes.items()}
    for n, job in jobs.items():
        assert job.wait(300) == 0, (tmp_path / f"{n}.log").read_text()
    one, two = (fs.load(tmp_path / home / "runs/large") for home in homes.values())
    assert one.fingerprint == two.fingerprint
    assert one.manifest["runtime"]["type"] == "Ray"
