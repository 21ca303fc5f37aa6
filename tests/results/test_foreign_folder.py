"""Files of other people are never changed, and links, pipes and damaged files in a folder never mislead a command."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.faults import SWEPT, run
from tools.faults import sweep as sweep_inline

import fedsim as fs
from fedsim.cli.app import call
from fedsim.errors import FedsimError, InvalidInput
from fedsim.reproduce.run import reproduce
from fedsim.results import lock
from fedsim.results.files import new_file, new_folder
from fedsim.results.folder import _TABLES
from fedsim.sweeps.execution import status

TEXT = """
import fedsim as fs

def scenario(*, rounds: int = 6):
    return fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(4, 2, 4.0, 20, seed=1),
        algorithm=fs.algorithms.FALD(step_size=1e-3, local_steps=2), budget=fs.Budget(rounds=rounds))
"""
READING = (["report", "DIR", "--out", "page.html"], ["status", "DIR"])
WRITING = (["run", "plain.py", "--out", "DIR", "--quiet"], ["resume", "DIR", "--quiet"])
PLACES = (".lock", ".lock-owner", "run.json", "manifest.json", "checkpoints", ".complete", "claims.json", "sweep.json")
LIMIT_S = 120


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in a new folder with a scenario file; a command that waits for ever fails."""

    def too_long(*_: object) -> None:
        raise AssertionError(f"the command still waits after {LIMIT_S} s")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.py").write_text(TEXT)
    (tmp_path / "swept.py").write_text(SWEPT)
    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S, 1.0)  # again, if the first is caught
    yield tmp_path
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def contents(folder: Path) -> dict[str, object]:
    """Every name in a folder with its kind and its bytes."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        kind = stat.S_IFMT(path.lstat().st_mode)
        data = path.read_bytes() if kind == stat.S_IFREG else os.readlink(path) if kind == stat.S_IFLNK else b""
        found[str(path.relative_to(folder))] = (kind, data)
    return found


def ends(line: list[str], folder: str, capsys: pytest.CaptureFixture[str]) -> int:
    """Run a command and return its exit code; a failure has one sentence and no traceback."""
    capsys.readouterr()
    code = call([word.replace("DIR", folder) for word in line])
    printed = capsys.readouterr()
    told = line[0] == "status" and code in (1, 3, 4) and printed.out and not printed.err
    assert code == 0 or told or re.fullmatch(r"fedsim: [^\n]+\n", printed.err), line
    return code


def killed(folder: Path) -> None:
    """Leave a run as if it was killed after its second checkpoint."""

    def leave(progress: object) -> None:
        if progress.round == 5:  # type: ignore[attr-defined]
            shutil.copytree(folder, folder.with_name("copy"))

    run(folder, checkpoint_every=2, observers=[leave])
    shutil.rmtree(folder)
    folder.with_name("copy").rename(folder)


# --- Folders of other people --------------------------------------------------------------------------------------

FOREIGN = {
    "run.json": {"run.json": '{"id": 3}'},
    "run.json of no format": {"run.json": "not JSON"},
    "manifest.json": {"manifest.json": '{"name": "app", "icons": []}'},
    "both": {"manifest.json": "{}", "run.json": "{}", ".lock": "{}", "claims.json": '{"a": 1}'},
    "lock": {".lock": "# yarn lockfile v1"},
    "lock of numbers": {".lock": "[1, 2]", ".lock-owner": "12345"},
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_no_command_changes_a_folder_that_fedsim_did_not_make(
    here: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = here / "exp"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / ".complete").mkdir()
    for name, text in FOREIGN[kind].items():
        (folder / name).write_text(text)
    for name in ("checkpoints/epoch1.pt", "checkpoints/checkpoint-000000001.json", ".complete/rounds.parquet"):
        (folder / name).write_text("mine")
    (folder / ".rounds.parquet.00000000-1-1-1.tmp").write_text("mine")
    before = contents(folder)
    for line in (*READING, *WRITING):
        assert ends(line, "exp", capsys) != 0, line
        assert contents(folder) == before, line
    for attempt in (lambda: run(folder), lambda: run(folder, resume=True), lambda: fs.load(folder)):
        with pytest.raises(FedsimError):
            attempt()
        assert contents(folder) == before


def test_a_lock_file_of_another_program_is_not_taken(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "exp").mkdir()
    (here / "exp/.lock").write_text("# yarn lockfile v1")
    with pytest.raises(FedsimError, match=r"\.lock"):
        run(here / "exp")
    assert ends(["run", "plain.py", "--out", "DIR", "--quiet"], "exp", capsys) != 0
    assert contents(here / "exp") == {".lock": (stat.S_IFREG, b"# yarn lockfile v1")}


def test_a_report_on_a_web_project_tidies_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "proj/checkpoints").mkdir(parents=True)
    for name in ("manifest.json", "run.json", "checkpoints/epoch1.pt"):
        (here / "proj" / name).write_text('{"name": "app"}')
    before = contents(here / "proj")
    assert ends(["report", "DIR"], "proj", capsys) != 0
    assert contents(here / "proj") == before


def test_files_of_other_people_in_the_folder_of_a_run_remain(here: Path) -> None:
    killed(here / "a")
    (here / "a/checkpoints/epoch1.pt").write_text("mine")
    (here / "a/checkpoints/deep").mkdir()
    (here / "a/checkpoints/deep/manifest.json").write_text("mine")
    (here / "a/.notes.tmp").write_text("mine")
    temporary = here / "a/.complete.00000000-1-1-1.tmp"
    temporary.mkdir()
    (temporary / "thesis.tex").write_text("mine")
    (temporary / "rounds.parquet").write_text("of a killed run")
    run(here / "a", resume=True)
    left = {name for name, (kind, data) in contents(here / "a").items() if data == b"mine"}  # type: ignore[misc]
    assert left == {
        "checkpoints/epoch1.pt", "checkpoints/deep/manifest.json", ".notes.tmp", f"{temporary.name}/thesis.tex"
    }  # fmt: skip
    assert not (temporary / "rounds.parquet").exists()
    assert not list((here / "a/checkpoints").glob("*.npz"))


def test_a_run_json_of_another_program_in_a_complete_folder_remains(here: Path) -> None:
    run(here / "a")
    (here / "a/run.json").write_text('{"id": 3}')
    assert run(here / "a", resume=True).fingerprint == fs.load(here / "a").fingerprint
    assert (here / "a/run.json").read_text() == '{"id": 3}'


@pytest.mark.parametrize("published", [False, True])
def test_commands_that_read_change_nothing(here: Path, published: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """The folder has all that a killed run can leave: checkpoints, a result that is half in place, temporary files."""
    killed(here / "a")
    run(here / "b")
    shutil.move(here / "b", here / "a/.complete")
    if published:
        for path in list((here / "a/.complete").iterdir()):
            path.rename(here / "a" / path.name)
    (here / "a/.rounds.parquet.00000000-1-1-1.tmp").write_text("half")
    before = contents(here / "a")
    for line in (*READING, ["replay", "DIR"]):
        ends(line, "a", capsys)
        assert contents(here / "a") == before, line
    if published:
        assert fs.load(here / "a").fingerprint
    assert contents(here / "a") == before
    assert run(here / "a", resume=True).fingerprint == fs.load(here / "a").fingerprint
    assert not (here / "a/.complete").exists()


# --- Links --------------------------------------------------------------------------------------------------------


@pytest.fixture
def outside(here: Path) -> Path:
    """A folder that no command may change."""
    folder = here / "outside"
    folder.mkdir()
    names = ("precious", "manifest.json", "rounds.parquet", "samples.npz", "empty", "state-000000002.npz")
    for name in names:
        (folder / name).write_text("" if name == "empty" else "mine")
    return folder


@pytest.mark.parametrize("state", ["empty", "resumable", "complete"])
@pytest.mark.parametrize("target", ["precious", "empty", "missing", "."])
@pytest.mark.parametrize("name", [".lock", ".lock-owner", ".complete", "checkpoints", "run.json", "manifest.json"])
def test_a_link_in_a_folder_is_not_followed(
    here: Path, outside: Path, state: str, target: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = here / "a"
    if state == "empty":
        folder.mkdir()
    elif state == "resumable":
        killed(folder)
    else:
        run(folder)
    if (folder / name).is_dir():
        shutil.rmtree(folder / name)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(outside / target)
    before = contents(outside)
    for line in (*READING, *WRITING):
        ends(line, "a", capsys)
        assert contents(outside) == before, line
    assert (folder / name).is_symlink()


def test_a_link_in_place_of_a_result_file_is_not_read(here: Path) -> None:
    run(here / "a")
    for name in ("samples.npz", "manifest.json"):
        (here / "a" / name).rename(here / name)
        (here / "a" / name).symlink_to(here / name)
        with pytest.raises(FedsimError, match=f"{name} is damaged: it is no plain file"):
            fs.load(here / "a")


def test_a_hard_link_in_place_of_a_lock_is_not_written(here: Path, outside: Path) -> None:
    (here / "a").mkdir()
    os.link(outside / "empty", here / "a/.lock")
    before = contents(outside)
    with pytest.raises(FedsimError, match=r"\.lock"):
        run(here / "a")
    assert contents(outside) == before


@pytest.mark.parametrize("name", [".lock", ".merging", ".merging-owner", ".claims", "RUN"])
@pytest.mark.parametrize("target", ["precious", "empty", "missing", "."])
def test_a_link_in_the_folder_of_a_sweep_is_not_followed(here: Path, outside: Path, name: str, target: str) -> None:
    sweep_inline(here / "swept.py", here / "s")
    place = here / "s" / name
    if name == "RUN":
        place = here / "s" / status(here / "s").complete[0].name
        shutil.rmtree(place)
    place.symlink_to(outside / target)
    before = contents(outside)
    for attempt in (
        lambda: sweep_inline(here / "swept.py", here / "s", resume=True),
        lambda: status(here / "s"),
        lambda: fs.load(here / "s").frame(),
    ):
        try:
            attempt()
        except FedsimError as error:
            assert "\n" not in str(error)  # noqa: PT017
        assert contents(outside) == before
    assert place.is_symlink()


# --- Pipes and folders in place of files --------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["empty", "resumable", "complete"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
@pytest.mark.parametrize("name", [*PLACES, "report.html", "checkpoints/checkpoint-000000009.json"])
def test_a_pipe_or_folder_in_place_of_a_file_gives_one_sentence(
    here: Path, state: str, make: object, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = here / "a"
    if state == "empty":
        folder.mkdir()
    elif state == "resumable":
        killed(folder)
    else:
        run(folder)
    (folder / name).parent.mkdir(exist_ok=True)
    if (folder / name).is_dir():
        shutil.rmtree(folder / name)
    (folder / name).unlink(missing_ok=True)
    make(folder / name)  # type: ignore[operator]
    kind = stat.S_IFMT((folder / name).lstat().st_mode)
    for line in (["report", "DIR"], *READING, *WRITING):
        ends(line, "a", capsys)
    if make is os.mkfifo:
        assert stat.S_IFMT((folder / name).lstat().st_mode) == kind
    for attempt in (lambda: fs.load(folder), lambda: run(folder, resume=True)):
        try:
            attempt()
        except FedsimError as error:
            assert "\n" not in str(error)  # noqa: PT017


SWEEP_PLACES = (".lock", ".merging", ".claims", "runs.parquet", "merged.json", "sweep.json", "recommendation.json")
RUN_PLACES = ("RUN/failed.json", "RUN/run.json", "RUN/manifest.json", "RUN/samples.npz", ".claims/RUN", "RUN")


@pytest.mark.parametrize("name", [*SWEEP_PLACES, *RUN_PLACES])
def test_a_pipe_in_the_folder_of_a_sweep_gives_one_sentence(
    here: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep_inline(here / "swept.py", here / "s")
    one = status(here / "s").complete[0].name
    if name in ("RUN", ".claims/RUN", "RUN/failed.json", "RUN/run.json"):
        shutil.rmtree(here / "s" / one)
    place = here / "s" / name.replace("RUN", one)
    place.parent.mkdir(exist_ok=True)
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    for line in (["report", "DIR"], *READING):
        ends(line, "s", capsys)
    for attempt in (
        lambda: fs.load(here / "s").frame(),
        lambda: sweep_inline(here / "swept.py", here / "s", resume=True),
        lambda: sweep_inline(here / "swept.py", here / "s", retry_failed=True),
    ):
        try:
            attempt()
        except FedsimError as error:
            assert "\n" not in str(error)  # noqa: PT017
    assert stat.S_ISFIFO(place.lstat().st_mode)


# --- Damaged and foreign JSON -------------------------------------------------------------------------------------

ODD = {
    "empty": b"",
    "cut": b'{"fedsim_format": "fedsim-run-2"',
    "list": b"[1, 2]",
    "number": b"7",
    "deep": b"[" * 100_000,
    "not text": bytes(range(256)),
    "not a number": b'{"a": NaN}',
    "long number": b"9" * 10_000,
    "foreign": json.dumps({"name": "app", "files": {"a": 1}}).encode(),
    "words": json.dumps(["held", {"paper": [1]}]).encode(),
    "control characters": json.dumps({"fedsim_format": "\x1b[2J\n"}).encode(),
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("name", ["manifest.json", "claims.json", "run.json", "x/y/tables.json"])
def test_damaged_or_foreign_json_gives_one_sentence(
    here: Path, name: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "a/x/y").mkdir(parents=True)
    if name.startswith("x"):
        (here / "a/claims.json").write_text("[]")
    (here / "a" / name).write_bytes(ODD[kind])
    before = contents(here / "a")
    for line in (*READING, *WRITING):
        ends(line, "a", capsys)
        assert contents(here / "a") == before
    for resume in (False, True):
        with pytest.raises(InvalidInput) as refused:
            run(here / "a", resume=resume)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", [*ODD, "pipe", "folder", "link"])
def test_reproduce_refuses_a_foreign_claims_json_before_any_run(here: Path, kind: str) -> None:
    (here / "out").mkdir()
    place = here / "out/claims.json"
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    elif kind == "link":
        place.symlink_to(here / "plain.py")
    else:
        place.write_bytes(ODD[kind])
    before = contents(here)
    with pytest.raises(FedsimError, match=r"claims\.json") as refused:
        reproduce("p-fedavg", out=here / "out")
    assert "\n" not in str(refused.value)
    assert contents(here) == before


def test_a_new_folder_that_fails_leaves_nothing(here: Path) -> None:
    """Folders of cached data sets are made like those of results."""

    def fail() -> None:
        with new_folder(here / "cached") as folder:
            for name in (
                "x.npy",
                "sums.json",
                "manifest.json",
                "samples.npz",
                *(f"{name}.parquet" for name in _TABLES),
            ):
                new_file(folder / name).close()
            raise KeyError("a bug")

    before = contents(here)
    with pytest.raises(KeyError):
        fail()
    assert contents(here) == before


def test_a_killed_process_leaves_a_lock_that_can_be_taken(here: Path) -> None:
    """Power can fail before the owner is written."""
    for left in (b"", b"\0" * 40):
        (here / ".lock").write_bytes(left)
        lock.take(here).release()
        assert not (here / ".lock").exists()


@pytest.mark.parametrize("kind", ["text", "number", "link", "pipe"])
def test_without_locks_of_the_file_system_a_foreign_owner_file_is_not_changed(
    here: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(lock.fcntl, "flock", none)
    place, target = here / lock.OWNER, here / "plain.py"
    if kind == "link":
        place.symlink_to(target)
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.write_text({"text": "mine", "number": "12345"}[kind])
    os.utime(target, (0, 0))
    os.utime(place, (0, 0))
    before = contents(here)
    assert not lock.held(here)
    with pytest.raises(FedsimError, match=r"\.lock-owner"):
        lock.take(here)
    (here / ".lock").unlink(missing_ok=True)
    assert contents(here) == before
