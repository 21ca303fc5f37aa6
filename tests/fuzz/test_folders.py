"""Attacks on folders and kills: nothing outside is written, nothing hangs, no traceback, the same bits after a resume."""

from __future__ import annotations

import io
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tools.faults import SWEPT, died, dying, full_disk, in_this_process, run
from tools.watchdog import watchdog

import fedsim as fs
from fedsim.cli.app import call
from fedsim.errors import FedsimError
from fedsim.reproduce.run import reproduce
from fedsim.results import Result

PLAIN = """
import fedsim as fs

def scenario(*, rounds: int = 6):
    return fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(4, 2, 4.0, 20, seed=1),
        algorithm=fs.algorithms.FALD(step_size=1e-3, local_steps=2), budget=fs.Budget(rounds=rounds),
        metrics=("mean_error",), replicas=2, seed=3)
"""
FIGURE = """
import fedsim as fs
from fedsim.reproduce import exact, judge

quick = full = {"local_steps": [1, 2], "rounds": 3}
paired = ("local_steps",)

def scenario(*, local_steps: int = 1, rounds: int = 3) -> fs.Scenario:
    problem = fs.problems.GaussianMean([[[1.0]], [[3.0]]], [[1.0]])
    return fs.Scenario(problem=problem, algorithm=fs.algorithms.FedAvg(step_size=0.1, local_steps=local_steps),
                       budget=fs.Budget(rounds=rounds), replicas=2)

@judge("ends")
def ends(study):
    return exact(len(study.runs) == 2, "2 runs")
"""
CLAIM = """
[[claim]]
id = "ends"
figure = "fig1"
quote = "It ends."
where = "section 1"
metric = "runs"
comparison = "equal"
tolerance = 0
reason = "a count"
kind = "exact"
seen_before = false
history = []
"""
CODES = (0, 1, 2, 3, 4)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A complete run, an unfinished one and a sweep, with the files that they came from."""
    root = tmp_path_factory.mktemp("world")
    (root / "plain.py").write_text(PLAIN)
    (root / "swept.py").write_text(SWEPT)
    (root / "papers/toy").mkdir(parents=True)
    (root / "papers/toy/fig1.py").write_text(FIGURE)
    (root / "papers/toy/claims.toml").write_text(CLAIM)
    os.chdir(root)
    assert call(["run", "plain.py", "--out", "complete", "--quiet"]) == 0
    run_to_checkpoint(root, root / "unfinished")
    with in_this_process():
        assert call(["sweep", "swept.py", "--grid", "level=0,1", "--out", "sweep", "--quiet"]) == 0
    yield root
    os.chdir("/")


def run_to_checkpoint(root: Path, folder: Path) -> None:
    from fedsim.scenario_file import load_file

    file = load_file(root / "plain.py")

    class Enough(Exception):
        pass

    def watch(progress: Any) -> None:
        if progress.round == 5:
            raise Enough

    with pytest.raises(fs.errors.InvalidInput, match="raised Enough"):
        fs.run(file.build({}), out=folder, checkpoint_every=2, source=file.origin({}), observers=[watch])


# --- Attacks ------------------------------------------------------------------------------------------------------


def kind_of(path: Path) -> int:
    return stat.S_IFMT(path.lstat().st_mode) if os.path.lexists(path) else 0


def cleared(path: Path) -> None:
    if kind_of(path) == stat.S_IFDIR:
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)


def bytes_of(draw: np.random.Generator, path: Path) -> None:
    """Cut, flip, fill with zeros, lengthen or exchange the bytes of a file."""
    data = bytearray(path.read_bytes()) if kind_of(path) == stat.S_IFREG else bytearray(b"{}")
    cleared(path)
    at = int(draw.integers(len(data) + 1))
    kind = draw.integers(6)
    if kind == 0:
        data = data[:at]
    elif kind == 1 and data:
        data[at % len(data)] ^= 1 << int(draw.integers(8))
    elif kind == 2:
        data[at : at + 16] = bytes(16)
    elif kind == 3:
        data += draw.bytes(100)
    elif kind == 4:
        data = bytearray(draw.bytes(200))
    else:
        text = json.dumps({"fedsim_format": "\x1b[2J", "a": [[]] * at}) if at % 2 else "[" * 100_000
        data = bytearray(text.encode())
    path.write_bytes(data)


def gone(draw: np.random.Generator, path: Path) -> None:
    cleared(path)


def folder(draw: np.random.Generator, path: Path) -> None:
    cleared(path)
    path.mkdir()
    if draw.integers(2):
        (path / "manifest.json").write_text("mine")


def pipe(draw: np.random.Generator, path: Path) -> None:
    cleared(path)
    os.mkfifo(path)


def link(draw: np.random.Generator, path: Path) -> None:
    cleared(path)
    path.symlink_to(Path.cwd() / "outside" / str(draw.choice(["file", "empty", "missing", "folder", "."])))


def hard_link(draw: np.random.Generator, path: Path) -> None:
    cleared(path)
    os.link(Path("outside") / str(draw.choice(["file", "empty"])), path)


ATTACKS = (bytes_of, bytes_of, bytes_of, gone, folder, pipe, link, hard_link)
PLACES = (
    ".lock", ".lock-owner", ".complete", ".claims", ".merging", ".merging-owner", "checkpoints", "run.json", "manifest.json",
    "claims.json", "sweep.json", "recommendation.json", "merged.json", "runs.parquet", "report.html", "samples.npz", "failed.json",
)  # fmt: skip
COMMANDS = {
    "complete": (["run", "plain.py", "--out", "IT", "--quiet"], ["resume", "IT", "--quiet"]),
    "unfinished": (["run", "plain.py", "--out", "IT", "--quiet"], ["resume", "IT", "--quiet"]),
    "sweep": (
        ["sweep", "swept.py", "--grid", "level=0,1", "--out", "IT", "--quiet", "--resume"],
        ["sweep", "swept.py", "--grid", "level=1,0", "--out", "IT", "--quiet", "--retry-failed"],
    ),
}  # fmt: skip
READING = (["status", "IT"], ["status", "IT", "--check", "--json"], ["report", "IT", "--out", "page.html"])


def contents(root: Path) -> dict[str, tuple[int, bytes]]:
    found = {}
    for path in sorted(root.rglob("*")):
        kind = kind_of(path)
        data = (
            path.read_bytes() if kind == stat.S_IFREG else os.readlink(path).encode() if kind == stat.S_IFLNK else b""
        )
        found[str(path)] = (kind, data)
    return found


def outside() -> None:
    shutil.rmtree("outside", ignore_errors=True)
    Path("outside/folder").mkdir(parents=True)
    for name in ("file", "folder/manifest.json", "folder/state-000000002.npz", "folder/rounds.parquet"):
        (Path("outside") / name).write_text("mine")
    Path("outside/empty").touch()


def called(line: list[str]) -> str:
    """Run a command; return what is wrong with how it ended, "" if nothing is."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), in_this_process():
        code = call(line)
    printed = out.getvalue() + err.getvalue()
    if code not in CODES:
        return f"exit {code}"
    if "Traceback" in printed or set(printed) & set("\x1b\x07\r"):
        return f"printed {printed[:300]!r}"
    one_sentence = err.getvalue().startswith("fedsim: ") and err.getvalue().count("\n") == 1
    listed = line[0] in ("status", "sweep") and code != 2
    return "" if code == 0 or one_sentence or listed else f"exit {code}, printed {err.getvalue()[:300]!r}"


def prints(found: Any) -> list[str]:
    return [found.fingerprint] if isinstance(found, Result) else sorted(r.fingerprint for _, r in found.runs)


def attacked(world: Path, case: int) -> list[str]:
    """Attack a copy of one of the folders in one to three places; return what went wrong."""
    draw = np.random.default_rng([case, 17])
    base = ("complete", "unfinished", "sweep")[case % 3]
    it = world / "it"
    shutil.rmtree(it, ignore_errors=True)
    shutil.copytree(world / base, it)
    outside()
    before, right = contents(world / "outside"), prints(fs.load(world / (base if base == "sweep" else "complete")))
    names = sorted(str(path.relative_to(it)) for path in it.rglob("*"))
    what = []
    lines = [*READING, *COMMANDS[base]]
    chosen = [lines[int(i)] for i in draw.choice(len(lines), 2, replace=False)]
    full = not draw.integers(6)
    if not full:
        for _ in range(int(draw.integers(1, 4))):
            attack = ATTACKS[int(draw.integers(len(ATTACKS)))]
            place = str(draw.choice(names)) if draw.integers(3) else str(draw.choice(PLACES))
            with suppress(OSError):  # below what the last attack has replaced
                attack(draw, it / place)
            what.append(f"{attack.__name__} {place}")
    wrong = []
    with watchdog(case):
        for line in chosen:
            there = [word.replace("IT", "it") for word in line]
            if full:
                what = ["full disk"]
                with full_disk(int(draw.integers(1, 30)), it):
                    wrong.append(called(there))
            else:
                wrong.append(called(there))
            if contents(world / "outside") != before:
                wrong.append("outside was written")
        try:
            found = fs.load(it)
            if not set(prints(found)) <= set(right):
                wrong.append("other bits")
        except FedsimError as error:
            wrong.append("two lines" if "\n" in str(error) else "")
        if full:
            wrong.append(called([word.replace("IT", "it") for word in COMMANDS[base][1]]))
            if prints(fs.load(it)) != right:
                wrong.append("other bits after a full disk")
    return [f"{case} {base} {what} {chosen}: {sentence}" for sentence in wrong if sentence]


def campaign(world: Path, cases: range) -> list[str]:
    broken: list[str] = []
    for case in cases:
        try:
            broken += attacked(world, case)
        except Exception as error:
            broken.append(f"{case}: {type(error).__name__}: {error}")
    return broken


def test_attacked_folders_are_refused_or_used_rightly(world: Path) -> None:
    assert campaign(world, range(60)) == []


@pytest.mark.soak
def test_eighteen_thousand_attacks(world: Path) -> None:
    assert campaign(world, range(100, 18_100)) == []


# --- Kills --------------------------------------------------------------------------------------------------------


def a_run(folder: Path) -> Any:
    return run(folder, resume=True, checkpoint_every=2)


def a_sweep(folder: Path) -> Any:
    return fs.sweep("swept.py", {"level": [0, 1]}, out=folder, resume=True)


def a_tuning(folder: Path) -> Any:
    fs.tune("swept.py", {"level": [0, 1]}, "mean_error <= 1e9", seeds=2, out=folder)
    return fs.load(folder)


def a_reproduction(folder: Path) -> Any:
    verdicts, failures = reproduce("toy", out=folder)
    assert ([row["verdict"] for row in verdicts], failures) == (["held"], [])
    return fs.load(folder / "toy/fig1")


def a_resume(folder: Path) -> Any:
    if not folder.exists():
        shutil.copytree("unfinished", folder)
    assert call(["resume", str(folder), "--quiet"]) == 0
    return fs.load(folder)


VERBS = (a_run, a_sweep, a_tuning, a_reproduction, a_resume)
OPERATIONS = {"a_run": 45, "a_sweep": 70, "a_tuning": 160, "a_reproduction": 90, "a_resume": 30}  # about as many


@contextmanager
def toy_papers(root: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        for module in ("figures", "claims"):
            patched.setattr(sys.modules[f"fedsim.reproduce.{module}"], "scenarios_folder", lambda: root)
        yield


def kills(world: Path, verb: Callable[[Path], Any], cases: range) -> list[str]:
    """Kill a command one to four times, each before one of its file operations; then its end has the same bits."""
    broken = []
    with in_this_process(), toy_papers(world):
        right = prints(verb(world / f"right-{verb.__name__}"))
        for case in cases:
            draw = np.random.default_rng([case, 23])
            it = world / f"killed-{verb.__name__}-{case}"
            if verb is a_resume:
                shutil.copytree("unfinished", it)
            numbers = []
            for _ in range(int(draw.integers(1, 5))):
                numbers.append(int(draw.integers(1, OPERATIONS[verb.__name__])))
                with watchdog(case), dying(numbers[-1], it):
                    verb(it)
                if not died():
                    break
            try:
                with watchdog(case):
                    if prints(verb(it)) != right:
                        broken.append(f"{verb.__name__} {case} {numbers}: other bits")
                left = [path.name for path in it.rglob("*") if path.name.startswith(".")]
                broken += [f"{verb.__name__} {case} {numbers}: left {left}"] * bool(left)
            except Exception as error:
                broken.append(f"{verb.__name__} {case} {numbers}: {type(error).__name__}: {error}")
            shutil.rmtree(it, ignore_errors=True)
    return broken


@pytest.mark.parametrize("verb", VERBS)
def test_a_killed_command_goes_on_to_the_same_bits(world: Path, verb: Callable[[Path], Any]) -> None:
    assert kills(world, verb, range(5)) == []


@pytest.mark.soak
@pytest.mark.parametrize("verb", VERBS)
def test_nineteen_hundred_kills(world: Path, verb: Callable[[Path], Any]) -> None:
    assert kills(world, verb, range(100, 480)) == []
