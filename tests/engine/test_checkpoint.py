"""A run that was stopped and taken up again ends with the bits of one that was not."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from strategies.checkpointed import POLICIES, scenario

import fedsim as fs
from fedsim.errors import CorruptData, Interrupted, InvalidInput


def interrupted(what, folder, after, every=5):
    stop = threading.Event()
    with pytest.raises(Interrupted, match=f"stopped after round {after}.*resume"):
        fs.run(
            what, out=folder, checkpoint_every=every, stop=stop,
            observers=[lambda progress: stop.set() if progress.round == after else None],
        )  # fmt: skip


def same(a, b):
    events = a.events is None or a.events.equals(b.events)
    return a.fingerprint == b.fingerprint and a.metrics.equals(b.metrics) and a.clients.equals(b.clients) and events


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("trace", [False, True])
def test_resumed_run_has_the_bits_of_an_uninterrupted_one(tmp_path, policy, trace):
    whole = fs.run(scenario(policy, trace=trace))
    for after in (1, 13):
        interrupted(scenario(policy, trace=trace), tmp_path / str(after), after)
        resumed = fs.run(scenario(policy, trace=trace), out=tmp_path / str(after), resume=True)
        assert same(whole, resumed)
        assert same(whole, fs.load(tmp_path / str(after)))


def test_resume_of_a_whole_run_repeats_nothing(tmp_path):
    first = fs.run(scenario(), out=tmp_path / "run")
    before = sorted((p.name, p.stat().st_mtime_ns) for p in (tmp_path / "run").iterdir())
    assert same(first, fs.run(scenario(), out=tmp_path / "run", resume=True))
    assert before == sorted((p.name, p.stat().st_mtime_ns) for p in (tmp_path / "run").iterdir())


def test_only_the_result_is_left_when_a_run_is_whole(tmp_path):
    fs.run(scenario(), out=tmp_path / "run", checkpoint_every=5)
    names = {p.name for p in (tmp_path / "run").iterdir()}
    assert names == {"manifest.json", "rounds.parquet", "metrics.parquet", "clients.parquet", "samples.npz"}


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove"])
@pytest.mark.parametrize("part", ["state", "checkpoint"])
def test_damaged_checkpoint_is_noticed_and_the_previous_one_used(tmp_path, damage, part):
    interrupted(scenario(), tmp_path / "run", 17)
    newest = sorted((tmp_path / "run" / "checkpoints").glob(f"{part}-*"))[-1]
    data = newest.read_bytes()
    if damage == "truncate":
        newest.write_bytes(data[: len(data) // 2])
    elif damage == "flip":
        newest.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
    else:
        newest.unlink()
    resumed = fs.run(scenario(), out=tmp_path / "run", resume=True)
    assert same(fs.run(scenario()), resumed)
    if part == "state" or damage != "remove":
        assert "is damaged" in resumed.manifest["resumed"]


def test_no_readable_checkpoint_is_an_error_that_names_them(tmp_path):
    interrupted(scenario(), tmp_path / "run", 7)
    for file in (tmp_path / "run" / "checkpoints").glob("state-*"):
        file.write_bytes(b"rubbish")
    with pytest.raises(CorruptData, match=r"no checkpoint in .* can be read"):
        fs.run(scenario(), out=tmp_path / "run", resume=True)


def test_another_scenario_is_refused(tmp_path):
    interrupted(scenario(), tmp_path / "run", 7)
    with pytest.raises(InvalidInput, match="another scenario"):
        fs.run(scenario(rounds=25), out=tmp_path / "run", resume=True)


def test_a_folder_that_exists_is_refused_and_a_foreign_one_too(tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "letter.txt").write_text("not a run")
    with pytest.raises(InvalidInput, match="already exists"):
        fs.run(scenario(), out=tmp_path / "taken")
    with pytest.raises(InvalidInput, match="no run's folder"):
        fs.run(scenario(), out=tmp_path / "taken", resume=True)
    with pytest.raises(InvalidInput, match="add out="):
        fs.run(scenario(), checkpoint_every=5)
    with pytest.raises(InvalidInput, match="checkpoint_every"):
        fs.run(scenario(), out=tmp_path / "x", checkpoint_every="often")


def test_vanished_folder_is_a_clear_error(tmp_path):
    folder = tmp_path / "run"

    def vanish(progress):
        if progress.round == 6:
            shutil.rmtree(folder)

    with pytest.raises(InvalidInput, match="vanished"):
        fs.run(scenario(), out=folder, checkpoint_every=5, observers=[vanish])


CHILD = """
    import sys, time
    sys.path.insert(0, {tests!r})
    import fedsim as fs
    from strategies.checkpointed import scenario
    fs.run(scenario({policy!r}, rounds=60), out={out!r}, resume=True, checkpoint_every=4,
           observers=[lambda p: (print(p.round, flush=True), time.sleep(0.02))])
"""


def kill_and_resume(tmp_path, policy, rounds):
    """Kill the driver with SIGKILL once it has reported each of `rounds`; run to the end afterwards."""
    out = tmp_path / "run"
    code = textwrap.dedent(CHILD.format(tests=str(Path(__file__).parents[1]), policy=policy, out=str(out)))
    for last in rounds:
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for line in child.stdout:
            if int(line) >= last:
                child.send_signal(signal.SIGKILL)
                break
        child.wait()
        child.stdout.close()
    return fs.run(scenario(policy, rounds=60), out=out, resume=True)


def test_a_killed_driver_costs_time_and_no_result(tmp_path):
    assert same(fs.run(scenario("buffered", rounds=60)), kill_and_resume(tmp_path, "buffered", [9]))


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_soak_of_killed_drivers(tmp_path, policy):
    at = np.sort(np.random.default_rng(len(policy)).integers(2, 58, 4)).tolist()
    assert same(fs.run(scenario(policy, rounds=60)), kill_and_resume(tmp_path, policy, at))


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="needs to mount a small tmpfs")
def test_full_disk_leaves_earlier_checkpoints_intact(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(small)], capture_output=True).returncode:
        pytest.skip("cannot mount a tmpfs here")
    try:
        filler = small / "filler"

        def fill(progress):
            if progress.round == 6:
                with filler.open("wb", buffering=0) as file, suppress(OSError):
                    while True:
                        file.write(b"x" * 4096)

        with pytest.raises(fs.errors.RuntimeFailed, match="no room"):
            fs.run(scenario(), out=small / "run", checkpoint_every=5, observers=[fill])
        filler.unlink()
        index = json.loads(
            (small / "run" / "checkpoints" / "checkpoint-000000005.json").read_bytes().rsplit(b"\n", 1)[0]
        )
        assert index["number"] == 5
        assert same(fs.run(scenario()), fs.run(scenario(), out=small / "run", resume=True))
    finally:
        subprocess.run(["umount", str(small)], check=False)


def test_checkpoints_by_real_seconds(tmp_path):
    stop = threading.Event()
    seen = []

    def look(progress):
        time.sleep(0.01)
        seen.append(len(list((tmp_path / "run").glob("checkpoints/checkpoint-*.json"))))

    fs.run(scenario(), out=tmp_path / "run", checkpoint_every="0.05s", stop=stop, observers=[look])
    assert max(seen) >= 1
