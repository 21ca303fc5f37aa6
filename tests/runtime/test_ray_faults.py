"""Faults of a private Ray, from the command line: SIGTERM, or a vital process killed."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import fedsim as fs
from fedsim.runtime.ray import folder as ray_folder
from fedsim.scenario_file import load_file

pytest.importorskip("ray")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="looks into /proc"),
]
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


@pytest.fixture
def place(tmp_path):
    """A folder with a slow scenario, a home of its own, and a short name for Ray's files; nothing may stay there."""
    scratch = Path(tempfile.mkdtemp())
    (tmp_path / "slow.py").write_text(SCENARIO.format(pause=0.05, seen=str(tmp_path / "seen")))
    (tmp_path / "quick.py").write_text(SCENARIO.format(pause=0, seen=str(tmp_path / "seen")))
    (tmp_path / "home").mkdir()
    yield tmp_path, scratch
    ray_folder.kill_users(scratch)
    scratch.rmdir()  # fails where Ray's folder is left


def begin(place, *words):
    """A command that has got as far as its fourth round."""
    folder, scratch = place
    own = {n: v for n, v in os.environ.items() if not n.startswith("RAY_")}
    job = subprocess.Popen(
        [sys.executable, "-c", "from fedsim.cli import main; main()", *words],
        cwd=folder, env=own | {"RAY_TMPDIR": str(scratch), "HOME": str(folder / "home")}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    limit = time.monotonic() + SECONDS
    while not (folder / "seen").exists():
        assert job.poll() is None, job.communicate()
        assert time.monotonic() < limit, "it does not get going"
        time.sleep(0.1)
    return job


def ended(job):
    try:
        out, err = job.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        raise
    return job.returncode, out, err


def vital(job, name):
    """The pid of a process that the command started."""
    for pid in Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split():
        if Path(f"/proc/{pid}/comm").read_text().strip() == name:
            return int(pid)
    raise AssertionError(f"no {name}")


@pytest.mark.parametrize("to_all", [False, True])
def test_sigterm_keeps_a_checkpoint_of_a_run(place, to_all):
    """A scheduler sends it to every process of the job, `kill` to one."""
    folder, _ = place
    job = begin(place, "run", "slow.py", "--runtime", "ray", "--hosts", "2", "--out", "out", "--set", "rounds=60")
    (os.killpg if to_all else os.kill)(job.pid, signal.SIGTERM)
    code, _, err = ended(job)
    assert (code, len(err.splitlines())) == (130, 1), err
    assert "go on with: fedsim resume" in err
    again = [sys.executable, "-c", "from fedsim.cli import main; main()", "resume", "out", "--quiet"]
    subprocess.run(again, cwd=folder, check=True, timeout=SECONDS)
    manifest = json.loads((folder / "out/manifest.json").read_text())
    assert manifest["runtime"]["type"] == "Inline"  # it continued from the checkpoint
    whole = fs.run(load_file(folder / "slow.py").build({"rounds": 60}))
    assert fs.load(folder / "out").fingerprint == whole.fingerprint


@pytest.mark.parametrize("to_all", [False, True])
def test_sigterm_keeps_the_checkpoints_of_a_sweep(place, to_all):
    folder, _ = place
    words = ["sweep", "slow.py", "--runtime", "ray", "--grid", "seed=0:2", "--jobs", "2", "--out", "out"]
    job = begin(place, *words)
    (os.killpg if to_all else os.kill)(job.pid, signal.SIGTERM)
    code, _, err = ended(job)
    assert code == 130, err
    assert "--resume" in err.splitlines()[-1]
    assert "SIGTERM" not in err  # Ray's dump of stacks
    assert list(folder.glob("out/*/checkpoints/*"))


@pytest.mark.parametrize("part", ["raylet", "gcs_server"])
@pytest.mark.parametrize("command", ["run", "sweep"])
def test_the_death_of_ray_is_one_sentence_and_leaves_nothing(place, command, part):
    _, scratch = place
    more = {"run": ["--checkpoint-every", "1", "--hosts", "2"], "sweep": ["--grid", "seed=0:2"]}
    job = begin(place, command, "slow.py", "--runtime", "ray", "--out", "out", *more[command])
    (ours,) = scratch.iterdir()
    os.kill(vital(job, part), signal.SIGKILL)
    limit = time.monotonic() + 10
    while ray_folder.users(ours) and time.monotonic() < limit:
        time.sleep(0.1)
    assert not ray_folder.users(ours), "hosts are left after ten seconds"
    code, _, err = ended(job)
    assert (code, len(err.splitlines())) == (1, 1), err
    assert f"Ray's {part} died (signal SIGKILL)" in err
    assert {"run": "fedsim resume", "sweep": "--resume"}[command] in err
    assert not ours.exists()


def test_a_killed_driver_leaves_no_processes_and_its_folder_goes_with_the_next_start(place, monkeypatch):
    _, scratch = place
    job = begin(place, "run", "slow.py", "--runtime", "ray", "--hosts", "2", "--out", "out")
    (ours,) = scratch.iterdir()
    job.kill()
    ended(job)
    os.utime(ours, (0, 0))  # as if it were an hour later
    monkeypatch.setenv("RAY_TMPDIR", str(scratch))
    ray_folder.RayFolder().remove()
    assert not ray_folder.users(ours)
    assert not ours.exists()


def test_ray_gives_the_bits_of_inline_and_leaves_no_token_at_home(place):
    folder, _ = place
    job = begin(place, "run", "quick.py", "--runtime", "ray", "--hosts", "2", "--out", "out", "--set", "rounds=30")
    code, _, err = ended(job)
    assert (code, err) == (0, "")
    whole = fs.run(load_file(folder / "quick.py").build({"rounds": 30}))
    assert fs.load(folder / "out").fingerprint == whole.fingerprint
    assert not (folder / "home/.ray").exists()
