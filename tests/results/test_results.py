"""Results in memory against brute force, and as a folder against damage."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim import results
from fedsim.errors import CorruptData, InvalidInput, NotRecorded, RuntimeFailed
from fedsim.results import Result, files
from fedsim.results.checksums import file_checksum, read_json, with_checksum

AXES = ("rounds", "seconds", "uplink_bits", "downlink_bits", "total_bits")


def make_result(seed=0, lengths=(4, 6, 3), dim=2, evaluate_every=1, **changes):
    """Replicas that ran for `lengths` rounds, each with its own clock, traffic and `accuracy`, and a `w2`."""
    rng = np.random.default_rng(seed)
    rows = []
    for replica, length in enumerate(lengths):
        clock = np.cumsum(rng.exponential(size=length))
        for i in range(length):
            up, down = (int(bits) for bits in rng.integers(1, 2**40, size=2))
            accuracy = float(rng.random()) if (i + 1) % evaluate_every == 0 else np.nan
            rows.append((replica, i + 1, clock[i] - 0.1, clock[i], 5, 4, 1, 0, up, down, 7, accuracy))
    rounds = pd.DataFrame(rows, columns=[*results.ROUNDS, "accuracy"])
    cumulated = rounds.assign(**rounds.groupby("replica")[["uplink_bits", "downlink_bits"]].cumsum())
    medians = cumulated.groupby("round")[["closed_s", "uplink_bits", "downlink_bits"]].median()
    metrics = medians.rename(columns={"closed_s": "seconds"}).reset_index()
    metrics["w2"] = rng.random(len(metrics))
    metrics.loc[metrics["round"] % evaluate_every != 0, "w2"] = np.nan
    samples = np.full((max(lengths), len(lengths), dim), np.nan)
    for replica, length in enumerate(lengths):
        samples[:length, replica] = rng.normal(size=(length, dim))
    fields = {
        "samples": samples,
        "sample_rounds": np.arange(1, max(lengths) + 1),
        "lengths": np.array(lengths),
        "stopped_by": tuple("rounds" if length == max(lengths) else "seconds" for length in lengths),
        "rounds": rounds,
        "metrics": metrics,
        "clients": pd.DataFrame({"client": [0, 1], "name": ["a", "ü"], "compute_s": [0.5, np.nan]}),
        "events": pd.DataFrame({"time_s": [0.0, 1.5], "what": ["open", "drop"], "lost": [False, True]}),
        "manifest": {"seed": 1, "scenario": {"step_size": 0.1, "names": ["x", None]}},
    }
    return Result(**{**fields, **changes})


def assert_same(left, right):
    np.testing.assert_array_equal(left.samples, right.samples)
    np.testing.assert_array_equal(left.sample_rounds, right.sample_rounds)
    np.testing.assert_array_equal(left.lengths, right.lengths)
    assert (left.stopped_by, left.replicas, left.manifest) == (right.stopped_by, right.replicas, right.manifest)
    for name in ("rounds", "metrics", "clients", "events"):
        if getattr(left, name) is None:
            assert getattr(right, name) is None
        else:
            pd.testing.assert_frame_equal(getattr(left, name), getattr(right, name), check_exact=True)


@pytest.fixture
def folder(tmp_path):
    return make_result().save(tmp_path / "run")


# --- curves and times ------------------------------------------------------------------------------------


def spent(result, replica, round_, against):
    rows = result.rounds[(result.rounds["replica"] == replica) & (result.rounds["round"] <= round_)]
    if against == "rounds":
        return round_
    if against == "seconds":
        return rows["closed_s"].max()
    columns = {"total_bits": ["uplink_bits", "downlink_bits"]}.get(against, [against])
    return sum(int(rows[column].sum()) for column in columns)


def runs():
    return st.builds(
        make_result,
        seed=st.integers(0, 2**31),
        lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple),
        evaluate_every=st.integers(1, 3),
    )


@given(runs(), st.sampled_from(AXES))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_a_curve_over_replicas_shows_the_metric_against_the_median_spent(result, against):
    table = result.metrics[result.metrics["w2"].notna()]
    curve = result.curve("w2", against)
    assert list(curve.columns) == [against, "w2"]
    assert curve["w2"].tolist() == table["w2"].tolist()
    for x, round_ in zip(curve[against], table["round"], strict=True):
        there = [r for r, length in enumerate(result.lengths) if length >= round_]
        assert x == pytest.approx(np.median([spent(result, r, round_, against) for r in there]))


@given(runs(), st.sampled_from(AXES))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_a_curve_of_each_replica_shows_median_and_quantiles(result, against):
    evaluated = result.rounds[result.rounds["accuracy"].notna()]
    curve = result.curve("accuracy", against)
    assert list(curve.columns) == [against, "accuracy", "low", "high"]
    assert len(curve) == evaluated["round"].nunique()
    for row, (round_, group) in zip(curve.itertuples(), evaluated.groupby("round"), strict=True):
        values = group["accuracy"].to_numpy()
        expected = np.median(values), *np.quantile(values, [0.05, 0.95])
        assert (row.accuracy, row.low, row.high) == pytest.approx(expected)
        assert row[1] == pytest.approx(np.median([spent(result, r, round_, against) for r in group["replica"]]))


@given(runs(), st.sampled_from(AXES), st.floats(0, 1), st.booleans())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_time_to_is_the_first_time_in_a_loop(result, against, level, upwards):
    limits = {"above": level} if upwards else {"below": level}

    def reached(value):
        return value >= level if upwards else value <= level

    times = result.time_to("accuracy", **limits, against=against)
    assert list(times.index) == list(result.replicas)
    for replica in result.replicas:
        rows = result.rounds[result.rounds["replica"] == replica]
        hits = [round_ for round_, value in zip(rows["round"], rows["accuracy"], strict=True) if reached(value)]
        assert times[replica] == (spent(result, replica, hits[0], against) if hits else math.inf)

    curve = result.curve("w2", against)
    hits = [x for x, value in zip(curve[against], curve["w2"], strict=True) if reached(value)]
    assert result.time_to("w2", **limits, against=against) == pytest.approx(hits[0] if hits else math.nan, nan_ok=True)


def test_neither_curves_nor_times_depend_on_the_order_of_rows():
    result = make_result(lengths=(5, 5, 5))
    shuffled = make_result(
        lengths=(5, 5, 5),
        rounds=result.rounds.sample(frac=1, random_state=3),
        metrics=result.metrics.sample(frac=1, random_state=4),
    )
    for metric in ("w2", "accuracy"):
        for against in AXES:
            pd.testing.assert_frame_equal(result.curve(metric, against), shuffled.curve(metric, against))
    assert result.time_to("accuracy", above=0.5).equals(shuffled.time_to("accuracy", above=0.5))
    assert result.time_to("w2", below=0.5) == shuffled.time_to("w2", below=0.5)
    assert result.fingerprint == shuffled.fingerprint


def test_a_level_that_is_met_exactly_counts_as_reached():
    result = make_result()
    best = result.metrics["w2"].min()
    first = int(result.metrics.loc[result.metrics["w2"] == best, "round"].iloc[0])
    assert result.time_to("w2", below=best, against="rounds") == first


def test_a_metric_may_be_called_like_an_internal_column():
    result = make_result()
    renamed = make_result(rounds=result.rounds.rename(columns={"accuracy": "x"}))
    assert renamed.curve("x")["x"].tolist() == result.curve("accuracy")["accuracy"].tolist()


def test_a_metric_that_was_not_evaluated_names_those_that_were():
    with pytest.raises(NotRecorded, match=r"'brier' was not evaluated \(this run has: w2, accuracy\); add it to"):
        make_result().curve("brier")
    with pytest.raises(NotRecorded, match="arrived"):
        make_result().time_to("arrived", above=1)


def test_unknown_axes_and_ambiguous_levels_are_refused():
    result = make_result()
    for metric in ("w2", "accuracy"):
        for wrong in ("minutes", "round"):
            with pytest.raises(InvalidInput, match="it must be rounds, seconds"):
                result.curve(metric, against=wrong)
        for limits in ({}, {"above": 1, "below": 0}):
            with pytest.raises(InvalidInput, match="exactly one of above= and below="):
                result.time_to(metric, **limits)


def test_replicas_keep_their_own_indices():
    rounds = make_result().rounds
    shifted = make_result(rounds=rounds.assign(replica=rounds["replica"] + 7), replicas=(7, 8, 9))
    assert list(shifted.time_to("accuracy", above=2.0).index) == [7, 8, 9]


@pytest.mark.parametrize(
    "change, message",
    [
        (
            lambda r: {"stopped_by": ("rounds", "rounds")},
            "names 2 replicas, lengths and samples another number",
        ),
        (lambda r: {"samples": r.samples[:, :2]}, "samples another number"),
        (lambda r: {"samples": r.samples[1:]}, "sample_rounds"),
        (lambda r: {"rounds": r.rounds.drop(columns="late")}, "rounds lacks the columns late"),
        (lambda r: {"metrics": r.metrics.drop(columns="seconds")}, "metrics lacks the columns seconds"),
        (
            lambda r: {"rounds": r.rounds.astype({"uplink_bits": float})},
            "uplink_bits is float64; it must be int64",
        ),
        (
            lambda r: {"rounds": r.rounds.assign(replica=r.rounds["replica"] + 1)},
            r"rounds name the replicas \[3\]",
        ),
    ],
)
def test_pieces_that_do_not_fit_together_are_refused(change, message):
    with pytest.raises(InvalidInput, match=message):
        make_result(**change(make_result()))


# --- fingerprint and ArviZ -------------------------------------------------------------------------------


def test_the_fingerprint_sees_one_bit_of_the_run_and_no_metric():
    result = make_result()
    samples, rounds = result.samples.copy(), result.rounds.copy()
    samples[0, 0, 0] = np.nextafter(samples[0, 0, 0], np.inf)
    rounds.loc[3, "uplink_bits"] += 1
    assert make_result(samples=samples).fingerprint != result.fingerprint
    assert make_result(rounds=rounds).fingerprint != result.fingerprint
    assert make_result(samples=None).fingerprint != result.fingerprint
    assert make_result(rounds=result.rounds.drop(columns="accuracy")).fingerprint == result.fingerprint
    assert make_result(samples=np.asfortranarray(result.samples)).fingerprint == result.fingerprint


def test_the_fingerprint_is_the_same_in_another_process(folder):
    code = f"from fedsim import results; print(results.load({str(folder)!r}).fingerprint)"
    environment = {**os.environ, "PYTHONHASHSEED": "5"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == make_result().fingerprint


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_arviz_gets_chains_of_replicas_cut_at_the_shortest():
    pytest.importorskip("arviz")
    rounds = make_result().rounds
    result = make_result(
        sample_rounds=np.arange(6) * 10 + 10,
        rounds=rounds.assign(replica=rounds["replica"] + 7),
        replicas=(7, 8, 9),
    )
    theta = result.to_arviz().posterior["theta"]
    assert theta.dims[:2] == ("chain", "draw")
    assert theta.chain.values.tolist() == [7, 8, 9]
    assert theta.draw.values.tolist() == [10, 20, 30]
    np.testing.assert_array_equal(theta.values, result.samples[:3].swapaxes(0, 1))


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_without_samples_there_is_nothing_for_arviz():
    pytest.importorskip("arviz")
    with pytest.raises(NotRecorded, match="record="):
        make_result(samples=None).to_arviz()


def test_a_missing_arviz_is_answered_with_the_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(InvalidInput, match=r"pip install 'fedsim-systems\[report\]'"):
        make_result().to_arviz()


# --- folders ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{}, {"clients": None, "events": None}, {"samples": None, "sample_rounds": np.arange(0)}],
    ids=["everything", "no optional tables", "no samples"],
)
def test_a_folder_gives_back_what_was_saved(tmp_path, changes):
    result = make_result(**changes)
    loaded = results.load(result.save(tmp_path / "run"))
    if result.samples is None:
        assert loaded.samples is None
        assert loaded.fingerprint == result.fingerprint
    else:
        assert_same(result, loaded)


def test_float32_samples_and_an_empty_run_survive(tmp_path):
    single = make_result(samples=make_result().samples.astype(np.float32))
    assert results.load(single.save(tmp_path / "single")).samples.dtype == np.float32
    full = make_result()
    empty = make_result(
        rounds=full.rounds[:0], metrics=full.metrics[:0], samples=full.samples[:0], sample_rounds=np.arange(0)
    )
    loaded = results.load(empty.save(tmp_path / "empty"))
    assert len(loaded.curve("accuracy")) == 0
    assert loaded.time_to("accuracy", above=0).tolist() == [math.inf] * 3
    assert loaded.fingerprint == empty.fingerprint


def test_parents_are_made_and_a_folder_called_like_a_setting_adds_no_column(tmp_path):
    loaded = results.load(make_result().save(tmp_path / "sweep" / "local_steps=10"))
    assert "local_steps" not in loaded.rounds.columns


def test_a_folder_holds_exactly_the_promised_files_and_no_pickle(folder):
    names = [
        "clients.parquet",
        "events.parquet",
        "manifest.json",
        "metrics.parquet",
        "rounds.parquet",
        "samples.npz",
    ]
    assert sorted(os.listdir(folder)) == names
    assert os.listdir(folder.parent) == ["run"]


def test_bits_are_non_null_int64_in_parquet_and_nan_is_no_null(tmp_path):
    import pyarrow.parquet as pq

    path = make_result(evaluate_every=2).save(tmp_path / "run")
    table = pq.ParquetFile(path / "rounds.parquet").read()
    for name in ("round", "uplink_bits", "downlink_bits", "wasted_bits"):
        assert str(table.schema.field(name).type) == "int64"
        assert not table.schema.field(name).nullable
    assert table["accuracy"].null_count == 0


def test_the_manifest_is_strict_json_whatever_the_engine_puts_in(tmp_path):
    manifest = {
        "nan": math.nan,
        "limits": (math.inf, -np.inf, np.float32(0.5)),
        "count": np.int64(3),
        "flag": np.True_,
        "table": np.eye(2),
        "path": tmp_path,
        1: None,
    }
    path = make_result(manifest=manifest).save(tmp_path / "run")
    text = (path / "manifest.json").read_text()

    def refuse(token):
        raise AssertionError(token)

    json.loads(text, parse_constant=refuse)
    assert results.load(path).manifest == {
        "nan": "nan",
        "limits": ["inf", "-inf", 0.5],
        "count": 3,
        "flag": True,
        "table": [[1.0, 0.0], [0.0, 1.0]],
        "path": str(tmp_path),
        "1": None,
    }


def test_a_manifest_that_json_cannot_hold_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InvalidInput, match=r"manifest.scenario\[1\] is a object"):
        make_result(manifest={"scenario": [1, object()]}).save(tmp_path / "run")
    assert os.listdir(tmp_path) == []


def test_an_existing_folder_is_refused_and_left_alone(folder):
    before = {name: (folder / name).read_bytes() for name in os.listdir(folder)}
    with pytest.raises(InvalidInput, match=r"run already exists; choose another --out or remove it"):
        make_result(seed=1).save(folder)
    assert {name: (folder / name).read_bytes() for name in os.listdir(folder)} == before


def test_a_folder_that_appears_while_we_write_wins(tmp_path, monkeypatch):
    place, write = tmp_path / "run", results.folder.write_table

    def slow(file, table):
        (place / "theirs").mkdir(parents=True, exist_ok=True)
        write(file, table)

    monkeypatch.setattr(results.folder, "write_table", slow)
    with pytest.raises(InvalidInput, match="already exists"):
        make_result().save(place)
    assert os.listdir(tmp_path) == ["run"]
    assert os.listdir(place) == ["theirs"]


@pytest.mark.parametrize(
    "code, kind, message",
    [
        (errno.ENOSPC, RuntimeFailed, "no room to write .*run"),
        (errno.EDQUOT, RuntimeFailed, "no room to write .*run"),
        (errno.EROFS, InvalidInput, "cannot write .*run"),
        (errno.EIO, RuntimeFailed, "writing .*run failed"),
    ],
)
@pytest.mark.parametrize("calls_that_work", [0, 3, 6])
def test_a_disk_that_fails_leaves_nothing_behind(tmp_path, monkeypatch, code, kind, message, calls_that_work):
    calls, fsync = iter(range(99)), os.fsync

    def failing(descriptor):
        if next(calls) >= calls_that_work:
            raise OSError(code, os.strerror(code))
        fsync(descriptor)

    monkeypatch.setattr(files.os, "fsync", failing)
    with pytest.raises(kind, match=message):
        make_result().save(tmp_path / "run")
    assert os.listdir(tmp_path) == []


def test_an_interrupt_leaves_nothing_behind(tmp_path, monkeypatch):
    def interrupt(file, table):
        raise KeyboardInterrupt

    monkeypatch.setattr(results.folder, "write_table", interrupt)
    with pytest.raises(KeyboardInterrupt):
        make_result().save(tmp_path / "run")
    assert os.listdir(tmp_path) == []


def test_a_parent_that_is_a_file_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match=r"cannot write .*file/run"):
        make_result().save(tmp_path / "file" / "run")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_parent_without_permission_is_one_sentence(tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(InvalidInput, match=r"cannot write .*locked/run"):
        make_result().save(tmp_path / "locked" / "run")


def test_write_atomic_replaces_a_file_or_keeps_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint"
    results.write_atomic(path, b"old")
    results.write_atomic(path, b"new")
    assert path.read_bytes() == b"new"

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(RuntimeFailed, match=r"no room to write .*checkpoint"):
        results.write_atomic(path, b"newer")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["checkpoint"]


# --- damage ----------------------------------------------------------------------------------------------

FILES = (
    "manifest.json",
    "rounds.parquet",
    "metrics.parquet",
    "clients.parquet",
    "events.parquet",
    "samples.npz",
)


def test_a_place_without_a_folder_is_the_callers_mistake(tmp_path):
    with pytest.raises(InvalidInput, match="nowhere is no folder"):
        results.load(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["manifest.json", "rounds.parquet", "metrics.parquet", "samples.npz"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(CorruptData, match=f"{name} is missing"):
        results.load(folder)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("length", [0, 1, 0.5, -1])
def test_a_truncated_file_is_named(folder, name, length):
    data = (folder / name).read_bytes()
    end = int(len(data) * length) if isinstance(length, float) else length
    # The last byte of the manifest is a newline, which may be missing.
    (folder / name).write_bytes(data[: end - (name == "manifest.json" and end < 0)])
    with pytest.raises(CorruptData, match=name):
        results.load(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_kind_is_named(folder, name):
    for content in (b"PK\x03\x04 not quite", b"[1, 2]", b"\x80\x04N.", b"PAR1PAR1", b"\xff\xfe"):
        (folder / name).write_bytes(content)
        with pytest.raises(CorruptData, match=name):
            results.load(folder)


def test_flipped_bits_are_noticed_or_harmless_and_never_a_crash(folder):
    """Every byte of data is under a checksum; what remains are paddings and unused fields of the headers."""
    rng, original = np.random.default_rng(7), make_result()
    for name in FILES[1:]:
        data = (folder / name).read_bytes()
        for position in rng.integers(0, len(data), size=40):
            damaged = bytearray(data)
            damaged[position] ^= 1 << int(rng.integers(8))
            (folder / name).write_bytes(bytes(damaged))
            try:
                loaded = results.load(folder)
            except CorruptData:
                continue
            assert loaded.fingerprint == original.fingerprint
        (folder / name).write_bytes(data)
    assert_same(results.load(folder), original)


def with_new_checksums(folder):
    """Change the checksums to match the bytes, as an attacker would."""
    facts = read_json(folder / "manifest.json", results.folder.FORMAT)
    facts["files"] = {name: file_checksum(folder / name) for name in facts["files"]}
    (folder / "manifest.json").write_bytes(with_checksum(results.folder.FORMAT, facts))


def test_pickles_inside_the_archive_are_never_opened(folder):
    np.savez(folder / "samples.npz", samples=np.array([object()], dtype=object))
    with_new_checksums(folder)
    with pytest.raises(CorruptData, match=r"samples.npz.*Python objects, which are not loaded"):
        results.load(folder)


def test_a_plain_array_in_place_of_the_archive_is_refused(folder):
    with (folder / "samples.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(CorruptData, match=r"samples\.npz"):
        results.load(folder)


def test_a_manifest_of_another_program_or_version_is_refused(folder):
    (folder / "manifest.json").write_text('{"fedsim_format": "fedsim-result-99"}')
    with pytest.raises(CorruptData, match=r"format 'fedsim-result-99'; this version of fedsim reads"):
        results.load(folder)


def test_files_of_different_runs_are_not_mixed(folder, tmp_path):
    other = make_result(lengths=(2, 2, 2, 2)).save(tmp_path / "other")
    (folder / "rounds.parquet").write_bytes((other / "rounds.parquet").read_bytes())
    with pytest.raises(CorruptData, match=r"rounds\.parquet is damaged"):
        results.load(folder)
    with_new_checksums(folder)
    with pytest.raises(CorruptData, match="do not fit together"):
        results.load(folder)


# --- environment -----------------------------------------------------------------------------------------


def test_versions_are_read_without_importing_anything():
    code = (
        "import sys; from fedsim import results; found = results.versions(); results.cpu_features(); "
        "print(found['numpy'], {'numba', 'ray', 'pandas', 'pyarrow', 'scipy', 'networkx'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == f"{np.__version__} set()\n"


def test_cpu_features_are_a_sorted_list_for_the_manifest():
    features = results.cpu_features()
    assert features
    assert features == sorted(set(features))
