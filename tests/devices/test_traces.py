import gzip
import io
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tools.real_data import find

from fedsim import devices, readers, rng
from fedsim.devices import traces
from fedsim.errors import CorruptData, FedsimError, InvalidInput

DAY = 86400.0


def recorded(name):
    return find("FEDSIM_DATA", f"traces/{name}")


def on(model, client, times):
    times = np.asarray(times, float)
    clients = np.full(len(times), client)
    key = rng.keys(1, rng.Stream.AVAILABILITY, client=clients)
    return model.next_available(clients, times, rng.Draws(key)) == times


# --- FLASH availability --------------------------------------------------------------------------------


def flash_file(tmp_path, **changed):
    arrays = {
        "client_id": np.arange(3, dtype=np.int32),
        "ok": np.array([True, False, True]),
        "trace_start": np.array([DAY + 10.0, np.nan, 3 * DAY]),
        "trace_end": np.array([2 * DAY + 10.0, np.nan, 5 * DAY]),
        "offsets": np.array([0, 4, 5, 6], np.int32),
        # Client 0: touching, empty and overlapping ones, and one across midnight; client 2: one.
        "ready_start": np.array([DAY + 100.0, DAY + 200.0, DAY + 500.0, 2 * DAY - 50.0, 7.0, 3 * DAY + 60.0]),
        "ready_end": np.array([DAY + 200.0, DAY + 300.0, DAY + 500.0, 2 * DAY + 5.0, 8.0, 3 * DAY + 90.0]),
    }
    path = tmp_path / "flash.npz"
    np.savez(path, **(arrays | changed))
    return path


def test_flash_keeps_only_good_traces_and_the_hour_of_the_day(tmp_path):
    model = traces.flash_availability(flash_file(tmp_path))
    assert model.clients == 2
    assert model.period_s.tolist() == [DAY, 2 * DAY]
    assert on(model, 0, [99.0, 100.0, 200.0, 299.0, 300.0, 500.0]).tolist() == [
        False,
        True,
        True,
        True,
        False,
        False,
    ]
    assert on(model, 0, [DAY + 150.0, 7 * DAY + 150.0]).all()
    assert on(model, 1, [DAY + 70.0, 70.0, 3 * DAY + 70.0]).tolist() == [True, False, True]


def test_an_interval_across_midnight_is_one_on_period(tmp_path):
    model = traces.flash_availability(flash_file(tmp_path))
    draws = rng.Draws(rng.keys(1, rng.Stream.AVAILABILITY))
    assert model.available_until(np.array([0]), np.array([DAY - 20.0]), draws).tolist() == [DAY + 5.0]


@pytest.mark.parametrize(
    "changed",
    [
        {"ok": np.array([True, False])},
        {"ok": np.array([1, 0, 1])},
        {"ok": np.zeros(3, bool)},
        {"trace_end": np.array([0.0, np.nan, 5 * DAY])},
        {"trace_end": np.array([np.nan, np.nan, 5 * DAY])},
        {"offsets": np.array([0, 4, 3, 6])},
        {"offsets": np.array([0, 4, 5, 7])},
        {"offsets": np.array([], int)},
        {"ready_end": np.zeros(6)},
        {"ready_end": np.full(6, np.inf)},
        {"ready_end": np.full(6, 90 * DAY)},
        {"ready_end": np.zeros(5)},
        {"ready_start": np.zeros((6, 1))},
    ],
)
def test_inconsistent_flash_files_are_corrupt(tmp_path, changed):
    with pytest.raises(CorruptData):
        traces.flash_availability(flash_file(tmp_path, **changed))


def test_the_flash_recording_is_read_completely():
    path = recorded("flash_availability_1000.npz")
    model = traces.flash_availability(path)
    assert model.clients == 710
    assert np.isin(model.period_s, DAY * np.arange(1, 11)).all()
    raw = np.load(path, allow_pickle=False)
    first, second = raw["offsets"][:2]
    length = np.sum(raw["ready_end"][first:second] - raw["ready_start"][first:second])
    mine = slice(model.offsets[0], model.offsets[1])
    assert np.sum(model.ends[mine] - model.starts[mine]) == pytest.approx(length)
    ready = np.add.reduceat(model.ends - model.starts, model.offsets[:-1]) / model.period_s
    assert np.median(ready) == pytest.approx(0.055, abs=0.002)
    middle = (raw["ready_start"][first:second] + raw["ready_end"][first:second]) / 2
    longer = raw["ready_end"][first:second] > raw["ready_start"][first:second]
    assert on(model, 0, middle[longer]).all()


# --- FedScale --------------------------------------------------------------------------------------------


def json_file(tmp_path, content, name="trace.json"):
    path = tmp_path / name
    path.write_text(json.dumps(content))
    return path


BEHAVIOUR = {
    "10": {"duration": 30, "active": [0, 50], "inactive": [10, 70], "finish_time": 100, "model": "CPH1801"},
    "2": {"duration": 5, "active": [20], "inactive": [25], "finish_time": 50},
}


def test_fedscale_availability_repeats_after_its_finish_time_in_order_of_ids(tmp_path):
    model = traces.fedscale_availability(json_file(tmp_path, BEHAVIOUR))
    assert model.clients == 2
    assert on(model, 0, [20.0, 25.0, 72.0, 0.0]).tolist() == [True, False, True, False]
    assert on(model, 1, [0.0, 10.0, 60.0, 105.0, 199.0]).tolist() == [True, False, True, True, False]


def test_fedscale_capacity_gives_devices_and_bandwidths(tmp_path):
    content = {
        "2": {"computation": 30.0, "communication": 800.0},
        "1": {"computation": 100.0, "communication": 5000.0},
    }
    columns, bandwidth_bps = traces.fedscale_capacity(json_file(tmp_path, content))
    assert columns["seconds_per_example"].tolist() == pytest.approx([0.3, 0.09])
    assert bandwidth_bps.tolist() == [5e6, 8e5]
    model = devices.table(columns)
    assert model.per_example
    assert model.clients == 2


def test_a_packed_json_file_is_read_too(tmp_path):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(BEHAVIOUR).encode()))
    assert traces.fedscale_availability(path).clients == 2


@pytest.mark.parametrize("name", ["client_behave_trace", "client_behave_trace.pkl"])
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_is_refused_and_never_opened(tmp_path, name, protocol):
    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "sprung",))

    path = tmp_path / name
    path.write_bytes(pickle.dumps({1: Trap()}, protocol))
    with pytest.raises(InvalidInput, match=r"convert it with json.dump"):
        traces.fedscale_availability(path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        7,
        {"one": {"active": [], "inactive": [], "finish_time": 5, "duration": 0}},
        {"1": [1, 2]},
        {"1": {"active": [1], "inactive": [2], "duration": 1}},
        {"1": {"active": [1], "inactive": [2], "finish_time": 0, "duration": 1}},
        {"1": {"active": [1], "inactive": [2], "finish_time": None, "duration": 1}},
        {"1": {"active": [1, 3], "inactive": [2], "finish_time": 9, "duration": 1}},
        {"1": {"active": [3], "inactive": [2], "finish_time": 9, "duration": 1}},
        {"1": {"active": 3, "inactive": [2], "finish_time": 9, "duration": 1}},
        {"1": {"active": ["x"], "inactive": [2], "finish_time": 9, "duration": 1}},
        {"1": {"active": [[1]], "inactive": [2], "finish_time": 9, "duration": 1}},
        {"1": {"active": [10**400], "inactive": [2], "finish_time": 9, "duration": 1}},
        {"1": {"active": [float("nan")], "inactive": [2], "finish_time": 9, "duration": 1}},
    ],
)
def test_inconsistent_fedscale_files_are_corrupt(tmp_path, content):
    with pytest.raises(CorruptData):
        traces.fedscale_availability(json_file(tmp_path, content))


@pytest.mark.parametrize("entry", [{"computation": -1, "communication": 5}, {"computation": 1, "communication": 0}])
def test_impossible_capacities_are_corrupt(tmp_path, entry):
    with pytest.raises(CorruptData, match="communication above 0"):
        traces.fedscale_capacity(json_file(tmp_path, {"1": entry}))


def test_a_client_that_is_never_active_is_never_available(tmp_path):
    content = {"1": {"active": [], "inactive": [], "finish_time": 9, "duration": 0}}
    model = traces.fedscale_availability(json_file(tmp_path, content))
    assert not on(model, 0, [0.0, 5.0]).any()


# --- Speeds and bandwidths ----------------------------------------------------------------------------------


def csv_file(tmp_path, text, packed=True):
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    return path


LATENCY = "phone_model,vit_latency,vit_std,resnet_latency,resnet_std\n"


@pytest.mark.parametrize("packed", [True, False])
def test_latencies_are_milliseconds_without_the_unmeasured_and_the_outliers(tmp_path, packed):
    path = csv_file(tmp_path, LATENCY + "a,300,1,50,0\nb,,,0,0\nc,,,15070,0\n", packed)
    assert traces.flhetbench_latency(path)["seconds_per_step"].tolist() == [0.05]
    assert traces.flhetbench_latency(path, "vit")["seconds_per_step"].tolist() == [0.3]
    assert traces.flhetbench_latency(path, slowest_s=20)["seconds_per_step"].tolist() == [0.05, 15.07]
    with pytest.raises(InvalidInput, match='give "resnet" or "vit"'):
        traces.flhetbench_latency(path, "lstm")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "phone_model\na\n",
        LATENCY,
        LATENCY + "a,1,1,0,0\n",
        LATENCY + "a,1,1,fast,0\n",
        LATENCY + "a,1\n",
        "\0",
    ],
)
def test_damaged_latency_files_are_corrupt(tmp_path, text):
    with pytest.raises(CorruptData):
        traces.flhetbench_latency(csv_file(tmp_path, text))


def test_scores_lose_their_footnotes(tmp_path):
    text = 'Model,CPU,RAM,AI_Score\nA,x,8GB,"400 1,6"\nB,y,0.5GB,100\nC,z,4GB,200 3\n'
    phones = traces.ai_benchmark(csv_file(tmp_path, text))
    assert phones["model"] == ["A", "B", "C"]
    assert phones["ram_gb"].tolist() == [8.0, 0.5, 4.0]
    assert phones["relative_speed"].tolist() == [2.0, 0.5, 1.0]
    with pytest.raises(CorruptData):
        traces.ai_benchmark(csv_file(tmp_path, "Model,RAM,AI_Score\nA,8GB,\n"))


def test_mobiperf_cases_give_measurements_in_bits_per_second(tmp_path):
    text = "case,client,tcp_speed_kbps\n1,1,10 30\n1,0,5\n2,0,7 7 7\n"
    case = traces.mobiperf(csv_file(tmp_path, text), case=1)
    assert case["mean_bps"].tolist() == [5e3, 2e4]
    assert case["std_bps"].tolist() == [0.0, 1e4]
    assert case["samples_bps"].tolist() == [5e3, 1e4, 3e4]
    assert case["offsets"].tolist() == [0, 1, 3]
    with pytest.raises(InvalidInput, match=r"case=5: the file has the cases \[1, 2\]"):
        traces.mobiperf(csv_file(tmp_path, text), case=5)
    with pytest.raises(CorruptData):
        traces.mobiperf(csv_file(tmp_path, "case,client,tcp_speed_kbps\n1,0,\n"), case=1)


def pensieve_file(tmp_path, **changed):
    arrays = {
        "time_s": np.array([0.0, 1.0, 0.0], np.float32),
        "mbps": np.array([1.0, 2.0, 4.0], np.float32),
        "offsets": np.array([0, 2, 3], np.int32),
        "name": np.array(["bus", "train"]),
        "split": np.array(["test", "train"]),
    }
    path = tmp_path / "pensieve.npz"
    np.savez(path, **(arrays | changed))
    return path


def test_bandwidth_traces_come_by_name_in_bits_per_second(tmp_path):
    by_name = traces.pensieve_bandwidth(pensieve_file(tmp_path))
    assert by_name["bus"].times_s.tolist() == [0.0, 1.0]
    assert by_name["bus"].bps.tolist() == [1e6, 2e6]
    assert by_name["bus"].period_s == 2.0
    assert by_name["train"].bps.tolist() == [4e6]


@pytest.mark.parametrize(
    "changed",
    [
        {"time_s": np.array([1.0, 0.0, 0.0], np.float32)},
        {"mbps": np.array([1.0, -2.0, 4.0], np.float32)},
        {"mbps": np.array([1.0, 2.0], np.float32)},
        {"name": np.array(["bus"])},
        {"mbps": np.array([1.0, 2.0, None])},  # object arrays are pickles
    ],
)
def test_damaged_bandwidth_traces_are_corrupt(tmp_path, changed):
    with pytest.raises(CorruptData):
        traces.pensieve_bandwidth(pensieve_file(tmp_path, **changed))


def test_the_recorded_speeds_are_read_completely():
    phones = traces.flhetbench_latency(recorded("flhetbench_training_latency.csv.gz"))["seconds_per_step"]
    assert 900 < len(phones) < 997
    assert (phones.min(), phones.max()) == (0.04, 4.886)
    assert (
        len(traces.flhetbench_latency(recorded("flhetbench_training_latency.csv.gz"), "vit")["seconds_per_step"]) == 21
    )
    scores = traces.ai_benchmark(recorded("ai_benchmark_devices.csv.gz"))
    assert len(scores["model"]) == 333
    assert scores["score"][0] == 76206
    speeds = traces.flash_speeds(recorded("flash_speed_distribution.csv.gz"))
    assert [len(column) for column in speeds.values()] == [19] * 4
    assert speeds["down_mean_bps"][0] == pytest.approx(7.4914e6)


def test_the_recorded_bandwidths_are_read_completely():
    path = recorded("mobiperf_tcp_down_sampled.csv.gz")
    for case, spread_kbps in ((1, 282), (2, 4645), (3, 10634), (4, 28993)):
        mean_bps = traces.mobiperf(path, case)["mean_bps"]
        assert len(mean_bps) == 100
        assert mean_bps.std() == pytest.approx(spread_kbps * 1e3, rel=1e-3)
    by_name = traces.pensieve_bandwidth(recorded("pensieve_bandwidth_traces.npz"))
    assert len(by_name) == 269
    means = [bandwidth.bps.mean() for bandwidth in by_name.values()]
    assert np.median(means) == pytest.approx(1.3e6, rel=0.05)


def test_recordings_make_devices_for_any_population():
    model = devices.table(
        traces.flhetbench_latency(recorded("flhetbench_training_latency.csv.gz")),
        availability=traces.flash_availability(recorded("flash_availability_1000.npz")),
        recycle=True,
    )
    model.check(1_000_000)
    clients = np.array([5, 715, 999_999])
    key = rng.keys(1, rng.Stream.AVAILABILITY, client=clients)
    begin = model.next_available(clients, np.zeros(3), rng.Draws(key))
    assert np.isfinite(begin).all()
    assert begin[0] == begin[1]


# --- Hostile files -------------------------------------------------------------------------------

READERS = [
    traces.flash_availability,
    traces.fedscale_availability,
    traces.fedscale_capacity,
    traces.flhetbench_latency,
    traces.ai_benchmark,
    traces.flash_speeds,
    lambda path: traces.mobiperf(path, 1),
    traces.pensieve_bandwidth,
]


@pytest.mark.parametrize("read", READERS)
def test_a_missing_file_is_the_callers_mistake(tmp_path, read):
    with pytest.raises(InvalidInput, match="cannot be read"):
        read(tmp_path / "nowhere")
    with pytest.raises(InvalidInput, match="cannot be read"):
        read(tmp_path)


@pytest.mark.parametrize("read", READERS)
@given(content=st.binary(max_size=200))
@settings(max_examples=25, deadline=None)
def test_any_bytes_give_a_clean_error(tmp_path_factory, read, content):
    path = tmp_path_factory.getbasetemp() / "noise"
    for start in (b"", b"\x1f\x8b", b"PK\x03\x04", b"{", b"\x93NUMPY"):
        path.write_bytes(start + content)
        with pytest.raises(FedsimError):
            read(path)


def damaged(path, read):
    """How reading fares with every byte of a file changed, and with the file cut short, in turn."""
    original = path.read_bytes()
    for at in range(0, len(original), 7):
        for content in (original[:at], original[:at] + bytes([original[at] ^ 0xFF]) + original[at + 1 :]):
            path.write_bytes(content)
            try:
                yield read(path)
            except FedsimError as error:
                yield error


def test_damaged_archives_give_clean_errors_or_complete_data(tmp_path):
    outcomes = list(damaged(pensieve_file(tmp_path), traces.pensieve_bandwidth))
    assert any(isinstance(outcome, CorruptData) for outcome in outcomes)
    outcomes = list(damaged(csv_file(tmp_path, LATENCY + "a,1,1,50,0\n"), traces.flhetbench_latency))
    assert any(isinstance(outcome, CorruptData) for outcome in outcomes)


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "LIMIT", 10_000)
    bomb = tmp_path / "bomb.csv.gz"
    bomb.write_bytes(gzip.compress(b"0" * 1_000_000))
    with pytest.raises(InvalidInput, match="when unpacked"):
        traces.flhetbench_latency(bomb)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mbps.npy", b"0" * 1_000_000)
    bomb.write_bytes(buffer.getvalue())
    with pytest.raises(InvalidInput, match="when unpacked"):
        traces.pensieve_bandwidth(bomb)


def test_a_deeply_nested_file_is_corrupt(tmp_path):
    path = tmp_path / "deep.json"
    path.write_text("[" * 100_000)
    with pytest.raises(CorruptData, match="not a JSON file"):
        traces.fedscale_availability(path)
