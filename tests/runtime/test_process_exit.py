"""Scenario code that would end the program, or keep it from ending, is an error that says so."""

import subprocess
import sys

import pytest

import fedsim as fs
from fedsim.cli.app import call
from fedsim.errors import ClientFailed, InvalidInput
from fedsim.scenario_file import load_file

BODY = """
import sys, threading, time
from dataclasses import dataclass
import fedsim as fs

{top}

@dataclass(frozen=True)
class Own(fs.algorithms.FedAvg):
    fused = None
    batched = False

    def client(self, job, message, memory):
        {client}
        return super().client(job, message, memory)

    def server(self, state, replies, rng):
        {server}
        return super().server(state, replies, rng)

def scenario(seed: int = 0) -> fs.Scenario:
    {build}
    return fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(2, 2, samples=5), algorithm=Own(1e-3), budget=fs.Budget(rounds=3),
        seed=seed, devices=fs.devices.constant(1.0),
    )
"""


def written(folder, **parts):
    path = folder / "leaving.py"
    path.write_text(BODY.format(**{"top": "", "client": "pass", "server": "pass", "build": "pass"} | parts))
    return path


@pytest.mark.parametrize("where, line", [("top", 6), ("server", 18), ("build", 22)])
def test_a_file_that_exits_is_an_error_with_its_line(tmp_path, capsys, where, line):
    path = written(tmp_path, **{where: "sys.exit()"})
    assert call(["run", str(path)]) in (1, 2)
    err = capsys.readouterr().err
    assert f"{path}:{line}: sys.exit() ends the program; raise an error instead" in err
    assert len(err.splitlines()) == 1


def test_a_client_that_exits_is_an_error_of_the_client(tmp_path):
    what = load_file(written(tmp_path, client="sys.exit(7) if job.round == 3 else None")).build({})
    with pytest.raises(ClientFailed, match=r"Own.client raised SystemExit: 7 \(client \d, round 3"):
        fs.run(what)


def test_an_exit_anywhere_fails_its_run_of_a_sweep(tmp_path):
    path = written(tmp_path, build="sys.exit() if seed == 1 else None")
    study = fs.sweep(path, {"seed": [0, 1]}, out=tmp_path / "out", jobs=1)
    (failure,) = study.failed
    assert "sys.exit() ends the program" in failure.message
    assert len(study.runs) == 1


def test_the_users_own_interrupt_stays_one(tmp_path):
    what = load_file(written(tmp_path, client="raise KeyboardInterrupt")).build({})
    with pytest.raises(KeyboardInterrupt):
        fs.run(what, runtime=fs.Inline(threads=1))


def test_a_file_that_exits_is_refused_by_the_python_interface(tmp_path):
    with pytest.raises(InvalidInput, match=r"sys.exit\(3\) ends the program"):
        load_file(written(tmp_path, top="sys.exit(3)"))


@pytest.mark.slow
def test_a_thread_that_does_not_end_is_cut_off_and_named(tmp_path):
    """The sweep's own process has it, as it reads the file, and so has its worker."""
    path = written(tmp_path, top="threading.Thread(target=time.sleep, args=(3600,), name='endless').start()")
    words = ["sweep", str(path), "--grid", "seed=0,1", "--jobs", "1", "--out", str(tmp_path / "out"), "--quiet"]
    command = [sys.executable, "-c", "from fedsim.cli import main; main()", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "thread" in done.stderr
    assert "(endless); make it a daemon (daemon=True) or join it" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert len(fs.load(tmp_path / "out").runs) == 2  # what was asked for is there
    assert not subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True).stdout.split()
