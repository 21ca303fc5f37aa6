"""Hostile command lines, terminals and folders: one sentence on stderr and an exit code, never a traceback."""

from __future__ import annotations

import os
import subprocess
import time

import numpy as np
import pytest
from strategies.files import ENTRY, TINY

import fedsim as fs
from fedsim.cli.app import call
from fedsim.errors import InvalidInput


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.py").write_text(TINY)
    return tmp_path


def outcome(capfd, *argv):
    """Return the exit code and stderr, which must be one sentence."""
    code = call(list(argv))
    error = capfd.readouterr().err
    if code:
        assert error.startswith("fedsim: "), error
        assert error.count("\n") == 1, error
        assert "Traceback" not in error
        assert len(error) < 1000
    return code, error


DIGITS = "9" * 5000
BAD = {
    "two points": ("run", "tiny.py", "--out", "x", "--checkpoint-every", "1.2.3s"),
    "a superscript": ("run", "tiny.py", "--out", "x", "--checkpoint-every", "²"),
    "superscript seconds": ("run", "tiny.py", "--out", "x", "--checkpoint-every", "²s"),
    "many digits": ("run", "tiny.py", "--out", "x", "--checkpoint-every", DIGITS),
    "many digits of seconds": ("run", "tiny.py", "--out", "x", "--checkpoint-every", DIGITS + "s"),
    "nothing": ("run", "tiny.py", "--out", "x", "--checkpoint-every", ""),
    "a seed of many digits": ("run", "tiny.py", "--seed", DIGITS),
    "rounds of many digits": ("run", "tiny.py", "--set", f"rounds={DIGITS}"),
    "rounds beyond floats": ("run", "tiny.py", "--set", "rounds=1e400"),
    "a superscript number": ("run", "tiny.py", "--set", "rounds=²"),
    "a step beyond floats": ("run", "tiny.py", "--set", "step=1e400"),
    "brackets without end": ("run", "tiny.py", "--set", "initial=" + "[" * 5000),
    "a surrogate": ("run", "tiny.py", "--set", "rounds=\udcff"),
    "a name of many letters": ("run", "tiny.py", "--set", "x" * 5000 + "=1"),
    "a list of odd things": ("run", "tiny.py", "--set", f"seeds=1,{DIGITS},x"),
    "too many replicas": ("run", "tiny.py", "--set", "replicas=100000000000"),
    "a path too long": ("run", "tiny.py", "--out", "x/" * 3000),
    "a name too long": ("run", "tiny.py", "--out", "x" * 300),
    "a path with a NUL": ("run", "tiny.py", "--out", "a\0b"),
    "a file too long": ("run", "x" * 5000),
    "a file with a NUL": ("run", "a\0b.py"),
    "a folder too long": ("status", "x" * 5000),
    "a report too long": ("report", "x" * 5000),
    "a resume too long": ("resume", "x" * 5000),
    "a shard of superscripts": ("sweep", "tiny.py", "--out", "s", "--shard", "²/³"),
    "a shard of many digits": ("sweep", "tiny.py", "--out", "s", "--shard", f"{DIGITS}/{DIGITS}"),
    "a grid without end": ("sweep", "tiny.py", "--out", "s", "--grid", "seed=0:1000000000000"),
    "a grid of many combinations": ("sweep", "tiny.py", "--out", "s", "--grid", "seed=0:1000", "--grid", "rounds=1:1001", "--grid", "replicas=1:1001"),
    "a grid of many digits": ("sweep", "tiny.py", "--out", "s", "--grid", f"seed=0:{DIGITS}"),
    "an address that is a word": ("run", "tiny.py", "--runtime", "ray", "--address", "foo"),
    "an empty address": ("run", "tiny.py", "--runtime", "ray", "--address", ""),
    "an address with a wild port": ("run", "tiny.py", "--runtime", "ray", "--address", "127.0.0.1:99999"),
    "an address with port 0": ("run", "tiny.py", "--runtime", "ray", "--address", "127.0.0.1:0"),
    "an address of superscripts": ("run", "tiny.py", "--runtime", "ray", "--address", "localhost:²"),
    "an address of blanks": ("run", "tiny.py", "--runtime", "ray", "--address", "  :  "),
    "an address of colons": ("run", "tiny.py", "--runtime", "ray", "--address", ":::::"),
    "an address of the web": ("run", "tiny.py", "--runtime", "ray", "--address", "http://localhost:80/x"),
    "an address of many letters": ("run", "tiny.py", "--runtime", "ray", "--address", "x" * 5000),
    "an address with a newline": ("run", "tiny.py", "--runtime", "ray", "--address", "a\nb:80"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_a_hostile_command_line_is_refused_in_one_sentence(tiny, capfd, kind):
    code, _ = outcome(capfd, *BAD[kind])
    assert code == 2
    assert not (tiny / "x").exists()
    assert not (tiny / "s").exists()


def test_an_address_without_a_cluster_is_a_failure_in_one_sentence(tiny, capfd):
    code, error = outcome(capfd, "run", "tiny.py", "--quiet", "--runtime", "ray", "--address", "127.0.0.1:1")
    assert code == 1
    assert "no cluster answers there" in error


WORDS = ("", "0", "-1", "1e400", "nan", "²", DIGITS, "x" * 300, "\udcff", "\0", "[", "{", "None", "1,2,,", "0:3", "a=b", "--", "../..", "/dev/null", "/proc/self/mem")  # fmt: skip
OPTIONS = ("--set", "--out", "--seed", "--threads", "--runtime", "--hosts", "--clients-per-host", "--checkpoint-every", "--grid", "--jobs", "--shard", "--address")  # fmt: skip


def fuzzed(case):
    chance = np.random.default_rng([case, 3])
    command = ["run", "sweep", "status", "resume", "report", "list", "nonsense"][chance.integers(7)]
    argv = [command] + (
        [["tiny.py", WORDS[chance.integers(len(WORDS))]][chance.integers(2)]] if chance.integers(4) else []
    )
    for _ in range(chance.integers(1, 4)):
        option, word = OPTIONS[chance.integers(len(OPTIONS))], WORDS[chance.integers(len(WORDS))]
        if option in ("--set", "--grid") and chance.integers(2):
            word = (
                ["rounds", "step", "seeds", "budget.rounds", "initial", "network", "dtype"][chance.integers(7)]
                + "="
                + word
            )
        argv += [option, word]
    return [*argv, "--dry-run"] if command == "sweep" else argv


def test_fuzzed_command_lines_never_raise(tiny, capfd):
    for case in range(250):
        argv = fuzzed(case)
        try:
            code, _ = outcome(capfd, *argv)
        except Exception as error:
            raise AssertionError(f"case {case}, {argv}, ended with {type(error).__name__}: {error}") from error
        assert code in (0, 1, 2), argv


# --- Terminals and folders, from outside ------------------------------------------------------------------


def shell(line, folder, **options):
    line = line.replace("fedsim", ENTRY)
    return subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=300, **options)


@pytest.mark.slow
def test_closed_and_full_outputs_do_not_affect_a_run(tiny):
    closed = shell("fedsim run tiny.py --out closed >&-", tiny)
    assert (closed.returncode, closed.stderr) == (0, "")
    full = shell("fedsim run tiny.py --out full >/dev/full", tiny)
    assert full.returncode == 1
    assert full.stderr.count("\n") == 1
    assert "No space left on device" in full.stderr
    left = shell("fedsim run tiny.py --out left | head -1; exit ${PIPESTATUS[0]}", tiny)
    assert (left.returncode, left.stderr) == (0, "")
    for name in ("closed", "full", "left"):
        assert fs.load(tiny / name).samples is not None


def test_a_missing_current_folder_is_one_sentence(tiny):
    done = shell("mkdir gone && cd gone && rmdir ../gone && fedsim run quickstart --quiet", tiny)
    assert done.returncode == 2
    assert done.stderr == "fedsim: the current folder no longer exists; change to another one\n"


@pytest.mark.parametrize("name", ["wütend ☃", os.fsdecode(b"not-utf-\xff")])
def test_paths_may_have_any_characters(tiny, name):
    done = shell('fedsim run tiny.py --out "$OUT"', tiny, env=os.environ | {"OUT": name, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert fs.load(tiny / name).samples is not None


def test_an_interrupt_during_the_imports_is_one_sentence(tiny):
    (tiny / "sitecustomize.py").write_text(
        "import sys\nclass Slow:\n    def find_spec(self, name, *_):\n        if name == 'typer':\n"
        "            import os, signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored in the background
        "            os.kill(os.getpid(), signal.SIGINT)\nsys.meta_path.insert(0, Slow())\n"
    )
    done = shell("fedsim list", tiny, env=os.environ | {"PYTHONPATH": f"{tiny}:{os.environ.get('PYTHONPATH', '')}"})
    assert done.returncode == 130
    assert done.stderr == "fedsim: interrupted\n"


# --- Memory -----------------------------------------------------------------------------------------------


def scenario(**parts):
    problem = fs.problems.GaussianMean.synthetic(clients=2, dim=2, samples=3)
    given = {"problem": problem, "algorithm": fs.algorithms.FALD(step_size=1e-3), "budget": fs.Budget(rounds=2)}
    return fs.Scenario(**given | parts)


def test_too_many_replicas_are_refused_with_the_number_that_fits(monkeypatch):
    monkeypatch.setattr("fedsim.engine.memory_needed.free_bytes", lambda: 1e9)
    with pytest.raises(InvalidInput, match=r"would take .* GB, and 1 GB are free: run at most [\d,]+ at a time"):
        fs.run(scenario(replicas=10**7, record=fs.Record(every=1, warmup=2)))


def test_client_memory_that_does_not_fit_is_refused(monkeypatch):
    class Wide(fs.problems.PerformativeMean):
        dim = 1_000_000

    problem = Wide([0.0] * 200, [0.1] * 200)
    monkeypatch.setattr("fedsim.engine.memory_needed.free_bytes", lambda: 4e9)
    began = time.monotonic()
    with pytest.raises(InvalidInput, match=r"200 jobs with d=1,000,000 would take .* GB, and 4 GB are free"):
        fs.run(scenario(problem=problem, algorithm=fs.algorithms.Scaffold(step_size=1e-3)))
    assert time.monotonic() - began < 30


def test_a_table_of_rounds_that_does_not_fit_is_refused(monkeypatch):
    monkeypatch.setattr("fedsim.engine.memory_needed.free_bytes", lambda: 1e9)
    with pytest.raises(InvalidInput, match=r"fs\.Record\(rounds_every="):
        fs.run(scenario(budget=fs.Budget(rounds=10**9), record=fs.Record(every=10**9)))


@pytest.mark.parametrize("make", [fs.problems.GaussianMean.synthetic, fs.problems.LogisticRegression.synthetic])
def test_synthetic_data_beyond_the_memory_are_refused(make):
    with pytest.raises(InvalidInput, match=r"would take .* are free: ask for fewer"):
        make(clients=10**9, dim=10**3, samples=10**3)


def test_more_clients_than_the_memory_holds_are_refused(monkeypatch):
    monkeypatch.setattr("fedsim.checks.free_bytes", lambda: 1e9)
    with pytest.raises(InvalidInput, match=r"Payload\(clients=4,294,967,296\) would take .* GB, and 1 GB are free"):
        fs.problems.Payload(2**32, 3)


def test_a_large_grid_is_refused_by_its_size(tiny):
    with pytest.raises(InvalidInput, match="1,000 x 1,000 x 1,000 = 1,000,000,000 runs"):
        fs.sweep("tiny.py", {"seed": range(1000), "rounds": range(1, 1001), "step": range(1, 1001)}, out="s")
    with pytest.raises(InvalidInput, match="more than 1,000,000 values"):
        fs.sweep("tiny.py", {"seed": range(10**15)}, out="s")
