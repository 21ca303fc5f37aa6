"""Killed anywhere, damaged anywhere, two at once: a result is never lost, overwritten or silently wrong."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tools.faults import SWEPT, died, dying, pair, run, scenario, sweep

import fedsim as fs
from fedsim.errors import FedsimError, Interrupted
from fedsim.results import Result
from fedsim.results.checksums import file_checksum, read_json, to_json
from fedsim.sweeps.execution import status
from fedsim.sweeps.study import FORMAT, RUNS
from fedsim.sweeps.study import MERGED as MERGED_SUMS

RESULT = {"manifest.json", "rounds.parquet", "metrics.parquet", "clients.parquet", "samples.npz"}
MERGED = {"sweep.json", "runs.parquet", "curves.parquet", "merged.json"}


@pytest.fixture(scope="module")
def right() -> str:
    return str(fs.run(scenario(), runtime=fs.Inline(threads=1)).fingerprint)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "swept.py"
    path.write_text(SWEPT)
    return path


def refusal(body: Callable[[], Any]) -> str:
    """The sentence that fedsim refuses with; empty if it does not. Anything else is raised."""
    try:
        body()
    except FedsimError as error:
        assert "\n" not in str(error)  # noqa: PT017
        return str(error)
    return ""


# --- Kills --------------------------------------------------------------------------------------------


def begin(folder: Path) -> None:
    run(folder, checkpoint_every=2)


def plain(folder: Path) -> None:
    run(folder)


def go_on(folder: Path) -> None:
    run(folder, resume=True, checkpoint_every=2)


def interrupted(folder: Path) -> None:
    stop = threading.Event()
    with pytest.raises(Interrupted):
        run(folder, checkpoint_every=2, stop=stop, observers=[lambda p: stop.set() if p.round == 3 else None])


def check_killed_run(tmp_path: Path, first: Callable[[Path], None], number: int, right: str, before: Any) -> bool:
    """Kill `first` before one operation, then look at every way to go on; False if it had ended before that."""
    folder = tmp_path / f"{first.__name__}-{number}"
    if before is not None:
        before(folder)
    with dying(number, folder):
        first(folder)
    if not died():
        return False
    twin = tmp_path / f"twin-{first.__name__}-{number}"
    if folder.exists():
        shutil.copytree(folder, twin)
    assert run(folder, resume=True).fingerprint == right, number
    assert set(os.listdir(folder)) == RESULT, number
    sentence = refusal(lambda: run(twin, checkpoint_every=2))  # the same command once more
    if "holds an unfinished run; go on with: fedsim resume" in sentence:
        run(twin, resume=True)
    else:
        assert re.fullmatch("|.*already exists; .* resume it", sentence), sentence
    assert fs.load(twin).fingerprint == right, number
    assert set(os.listdir(twin)) == RESULT, number
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]
    return True


WAYS = [(begin, None), (plain, None), (go_on, interrupted)]


@pytest.mark.parametrize(("first", "before"), WAYS, ids=lambda way: getattr(way, "__name__", ""))
def test_a_run_that_is_killed_resumes_and_leaves_nothing_stale(
    tmp_path: Path, right: str, first: Callable[[Path], None], before: Any
) -> None:
    for number in (1, 2, 3, 4, 6, 11, 16, 21, 25, 29, 33, 37, 41):
        check_killed_run(tmp_path, first, number, right, before)


@pytest.mark.soak
@pytest.mark.parametrize(("first", "before"), WAYS, ids=lambda way: getattr(way, "__name__", ""))
def test_a_run_that_is_killed_before_any_file_operation_resumes(
    tmp_path: Path, right: str, first: Callable[[Path], None], before: Any
) -> None:
    number = 1
    while check_killed_run(tmp_path, first, number, right, before):
        number += 1
    assert number > 15  # there were as many operations as that


@pytest.mark.soak
def test_runs_that_are_killed_again_and_again_still_end_with_the_same_bits(tmp_path: Path, right: str) -> None:
    draw = random.Random(5)
    for case in range(60):
        folder = tmp_path / str(case)
        for _ in range(draw.randint(2, 6)):
            with dying(draw.randint(1, 50), folder):
                go_on(folder)
        assert run(folder, resume=True).fingerprint == right
        assert set(os.listdir(folder)) == RESULT


def check_killed_sweep(tmp_path: Path, file: Path, number: int, right: list[str]) -> bool:
    folder = tmp_path / f"runs-{number}"
    with dying(number, folder):
        sweep(file, folder)
    if not died():
        return False
    study = sweep(file, folder, resume=True)
    assert sorted(result.fingerprint for _, result in study.runs) == right, number
    assert len(study.frame()) == 2
    names = {path.name for path in folder.iterdir()}
    assert names == MERGED | {order.name for order in status(folder).complete}, number
    assert all({p.name for p in (folder / order.name).iterdir()} == RESULT for order in status(folder).complete), number
    return True


def test_a_sweep_that_is_killed_resumes_and_leaves_nothing_stale(tmp_path: Path, file: Path) -> None:
    right = sorted(result.fingerprint for _, result in sweep(file, tmp_path / "right").runs)
    for number in (1, 2, 4, 7, 9, 20, 30, 45, 60, 66):
        check_killed_sweep(tmp_path, file, number, right)


@pytest.mark.soak
def test_a_sweep_that_is_killed_before_any_file_operation_resumes(tmp_path: Path, file: Path) -> None:
    right = sorted(result.fingerprint for _, result in sweep(file, tmp_path / "right").runs)
    number = 1
    while check_killed_sweep(tmp_path, file, number, right):
        number += 1
    assert number > 40


def test_a_saved_result_that_was_killed_half_way_is_cleared_by_the_next(tmp_path: Path) -> None:
    result = fs.run(scenario(), runtime=fs.Inline(threads=1))
    for number in (3, 5, 8):
        with dying(number, tmp_path):
            result.save(tmp_path / "a")
        assert died()
        assert [name[:3] for name in os.listdir(tmp_path)] == [".a."]
        result.save(tmp_path / "a")
        assert os.listdir(tmp_path) == ["a"]
        shutil.rmtree(tmp_path / "a")


# --- Damage -------------------------------------------------------------------------------------------


def damaged(data: bytes, draw: random.Random) -> bytes | None:
    """The bytes of a file after a mishap; None: the file is gone."""
    kind, at = draw.randrange(6), draw.randrange(max(len(data), 1))
    if kind == 0:
        return None
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + bytes(draw.randrange(1, 64)) + data[at + 16 :]
    flipped = bytearray(data)
    if flipped:
        flipped[at] ^= 1 << draw.randrange(8)
    return bytes(flipped)


def hurt(path: Path, draw: random.Random) -> bytes:
    before = path.read_bytes()
    after = damaged(before, draw)
    path.unlink() if after is None else path.write_bytes(after)
    return before


def same(read: Result, first: Result) -> None:
    assert read.fingerprint == first.fingerprint
    assert read.metrics.equals(first.metrics)
    assert read.clients.equals(first.clients)
    assert read.manifest == json.loads(to_json(first.manifest))


def check_damaged_results(tmp_path: Path, times: int) -> int:
    folder = tmp_path / "complete"
    first = run(folder)
    noticed = 0
    draw = random.Random(7)
    for path in sorted(folder.iterdir()):
        for _ in range(times):
            before = hurt(path, draw)
            sentence = refusal(lambda: same(fs.load(folder), first))
            assert not sentence or str(folder) in sentence
            noticed += bool(sentence)
            path.write_bytes(before)
    assert fs.load(folder).fingerprint == first.fingerprint
    return noticed


def check_damaged_checkpoints(tmp_path: Path, times: int, right: str) -> None:
    folder = tmp_path / "resumable"
    interrupted(folder)
    draw = random.Random(11)
    spare = tmp_path / "spare"
    shutil.copytree(folder, spare)
    for path in sorted(p.relative_to(spare) for p in spare.rglob("*") if p.is_file()):
        for _ in range(times):
            shutil.rmtree(folder)
            shutil.copytree(spare, folder)
            hurt(folder / path, draw)
            if sentence := refusal(lambda: run(folder, resume=True)):
                assert path.name == "run.json", path  # missing beside checkpoints: it was removed
                assert "is no run's folder" in sentence
            else:
                assert fs.load(folder).fingerprint == right, path


def check_damaged_sweep(tmp_path: Path, file: Path, times: int) -> None:
    folder = tmp_path / "runs"
    frame = sweep(file, folder).frame()
    draw = random.Random(13)
    for name in sorted(MERGED):
        for _ in range(times):
            before = hurt(folder / name, draw)
            tables: list[Any] = []
            sentence = refusal(lambda to=tables: to.append(fs.load(folder).frame()))
            if sentence:
                assert name == "sweep.json"
                assert str(folder) in sentence or "no sweep" in sentence
            else:
                assert tables[0].equals(frame)
            if name != "sweep.json":
                sweep(file, folder, resume=True)  # writes them again
                assert file_checksum(folder / RUNS) == read_json(folder / MERGED_SUMS, FORMAT)["files"][RUNS]
            (folder / name).write_bytes(before)


def test_damage_to_a_result_is_noticed_in_one_sentence(tmp_path: Path) -> None:
    assert check_damaged_results(tmp_path, 8) >= 36  # of 40; blanks in the manifest mean nothing


def test_damage_to_any_one_file_of_a_run_under_way_costs_no_result(tmp_path: Path, right: str) -> None:
    check_damaged_checkpoints(tmp_path, 1, right)


def test_damage_to_merged_tables_is_repaired_from_the_runs(tmp_path: Path, file: Path) -> None:
    check_damaged_sweep(tmp_path, file, 2)


@pytest.mark.soak
def test_thousands_of_damaged_files_give_the_right_result_or_one_sentence(
    tmp_path: Path, file: Path, right: str
) -> None:
    check_damaged_results(tmp_path, 2000)
    check_damaged_checkpoints(tmp_path, 60, right)
    check_damaged_sweep(tmp_path, file, 100)


# --- Two at once --------------------------------------------------------------------------------------


def check_pairs(tmp_path: Path, file: Path, count: int, right: str) -> None:
    draw = random.Random(17)
    both_complete = sorted(result.fingerprint for _, result in sweep(file, tmp_path / "right").runs)
    with pair() as both:
        for number in range(count):
            folder = tmp_path / f"pair-{number}"
            delays = [draw.choice((0.0, draw.uniform(0, 0.2))) for _ in range(2)]
            kind = ("run", "resume", "unlike", "sweep", "sweeps")[number % 5]
            if kind == "resume":
                interrupted(folder)
            if kind in ("sweep", "sweeps"):
                options = [{"resume": True}, {"resume": kind == "sweep"}]
                orders = [("sweep", d, (file, folder), o) for d, o in zip(delays, options, strict=True)]
                ends = both(*orders)
                # Each does what the other does not hold; one that did not ask to go on may be refused.
                assert all(state == "complete" or (kind == "sweeps" and "already holds" in why) for state, why in ends)
                again = sweep(file, folder, resume=True)
                assert sorted(result.fingerprint for _, result in again.runs) == both_complete
                assert {p.name for p in folder.iterdir()} == MERGED | {o.name for o in status(folder).complete}
                continue
            options = [{"checkpoint_every": 2, "resume": kind == "resume"} for _ in range(2)]
            if kind == "unlike":
                options[1]["rounds"] = 5
            orders = [("run", d, (folder,), o) for d, o in zip(delays, options, strict=True)]
            ends = both(*orders)
            states = sorted(state for state, _ in ends)
            # Two resumes may well follow each other; the second then finds the result and returns it.
            assert states == ["complete", "refused"] or (kind == "resume" and states == ["complete", "complete"]), ends
            winner = next(what for state, what in ends if state == "complete")
            for state, sentence in ends:
                assert state == "complete" or re.search("in use by process|already exists", sentence), sentence
            assert fs.load(folder).fingerprint == winner
            assert kind == "unlike" or winner == right
            assert set(os.listdir(folder)) == RESULT


def test_of_two_at_once_in_one_folder_one_works_and_nothing_is_lost(tmp_path: Path, file: Path, right: str) -> None:
    check_pairs(tmp_path, file, 10, right)


@pytest.mark.soak
def test_fifty_pairs_at_once_in_one_folder_lose_and_overwrite_nothing(tmp_path: Path, file: Path, right: str) -> None:
    check_pairs(tmp_path, file, 60, right)
