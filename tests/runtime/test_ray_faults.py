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
from tools import slow_run
from tools.slow_run import SECONDS, child, ended, write_scenarios

import fedsim as fs
from fedsim.runtime.ray import folder as ray_folder
from fedsim.scenario_file import load_file

pytest.importorskip("ray")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="looks into /proc"),
]


@pytest.fixture
def place(tmp_path):
    """A folder with a slow scenario, a home of its own, and a short name for Ray's files; nothing may stay there."""
    scratch = Path(tempfile.mkdtemp())
    write_scenarios(tmp_path)
    (tmp_path / "home").mkdir()
    yield tmp_path, scratch
    ray_folder.kill_users(scratch)
    scratch.rmdir()  # fails where Ray's folder is left


def begin(place, *words):
    folder, scratch = place
    return slow_run.begin(folder, *words, RAY_TMPDIR=str(scratch), HOME=str(folder / "home"))


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
    os.kill(child(job.pid, part), signal.SIGKILL)
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


ONCE = """
import stat
from fedsim.cli import main
from fedsim.runtime.ray import cluster

class Counted(cluster.OwnRay):
    def __init__(self, cpus):
        super().__init__(cpus)
        folder = self._folder
        print("started Ray", oct(stat.S_IMODE(folder.path.stat().st_mode)), folder.inner.parent == folder.path)

cluster.OwnRay = Counted
main()
"""


def test_a_grid_starts_ray_once_in_a_folder_of_its_user_and_prints_no_warning_of_ray(place):
    folder, scratch = place
    own = {n: v for n, v in os.environ.items() if not n.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", ONCE, "run", "quickstart", "--runtime", "ray", "--hosts", "2", "--out", "out"],
        cwd=folder, env=own | {"RAY_TMPDIR": str(scratch), "HOME": str(folder / "home")},
        capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert [line for line in done.stdout.splitlines() if "Ray" in line] == ["started Ray 0o700 True"]
    assert len(list((folder / "out").glob("*/manifest.json"))) == 3
