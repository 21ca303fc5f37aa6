"""Recordings of real devices, as columns for `devices.table`, as availability, or as bandwidths for a network.

`devices.table(..., recycle=True)` repeats the rows for a larger population. Bandwidths are in bits per second, numbers
or, for recordings over time, `fs.network.Varying`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.checks import check_choice, check_int, check_positive
from fedsim.devices.availability import Intervals
from fedsim.errors import CorruptData, InvalidInput
from fedsim.network.varying import Varying
from fedsim.readers import checked_offsets, numbers, read_csv, read_npz, read_records
from fedsim.text import short_repr

# --- Availability -----------------------------------------------------------------------------------


def flash_availability(path: str | Path) -> Intervals:
    """Return FLASH: when phones were idle, charging and on WiFi (Yang et al., WWW 2021); only the traces marked `ok`.

    Each repeats after its length. Lengths are multiples of a day and times are taken modulo the length, so that the
    hour of the day is common to all clients.
    """
    kinds = {
        "ok": "b",
        "trace_start": "f",
        "trace_end": "f",
        "offsets": "i",
        "ready_start": "f",
        "ready_end": "f",
    }
    a = read_npz(path, kinds)
    if not len(a["ok"]) == len(a["trace_start"]) == len(a["trace_end"]):
        raise CorruptData(f"{path}: ok, trace_start and trace_end differ in length")
    if len(a["ready_start"]) != len(a["ready_end"]):
        raise CorruptData(f"{path}: ready_start and ready_end differ in length")
    offsets = checked_offsets(path, a["offsets"], len(a["ok"]), len(a["ready_start"]))
    used = np.flatnonzero(a["ok"])
    periods = (a["trace_end"] - a["trace_start"])[used]
    traces = [slice(offsets[c], offsets[c + 1]) for c in used]
    return _repeated(path, [a["ready_start"][t] for t in traces], [a["ready_end"][t] for t in traces], periods)


def fedscale_availability(path: str | Path) -> Intervals:
    """Return FedScale's `client_behave_trace`, as JSON: {id: {"active": [s], "inactive": [s], "finish_time": s, ...}}.

    Client i of the result is the i-th smallest id; a trace repeats after its `finish_time`, as in FedScale.
    """
    records = read_records(path, ("active", "inactive", "finish_time", "duration"))
    on = [numbers(path, "active", _list(path, r["active"])) for r in records]
    off = [numbers(path, "inactive", _list(path, r["inactive"])) for r in records]
    return _repeated(path, on, off, numbers(path, "finish_time", [r["finish_time"] for r in records]))


def _repeated(path: str | Path, starts: list[Array], ends: list[Array], periods: Array) -> Intervals:
    """Return intervals modulo their periods: cut where a period ends, sorted, not empty, not touching."""
    if not len(periods) or not (np.isfinite(periods) & (periods > 0)).all():
        raise CorruptData(f"{path}: there must be a trace, and every trace must be longer than 0 s")
    merged: list[Array] = []  # per client (intervals, 2)
    for client, (s, e, period) in enumerate(zip(starts, ends, periods, strict=True)):
        if s.shape != e.shape or not (np.isfinite(s) & np.isfinite(e) & (s <= e)).all():
            raise CorruptData(f"{path}: trace {client} has intervals that do not end after they begin")
        if (e - s > period).any():
            raise CorruptData(f"{path}: trace {client} has an interval longer than the trace, {period:g} s")
        begin = np.mod(s, period)
        end = begin + (e - s)
        pieces = np.stack([begin, np.minimum(end, period)], axis=1)
        wrapped = np.stack([np.zeros_like(end), end - period], axis=1)[end > period]
        pieces = np.concatenate([pieces, wrapped])
        merged.append(_merged(pieces[pieces[:, 0] < pieces[:, 1]]))
    offsets = np.cumsum([0, *(len(pieces) for pieces in merged)])
    every = np.concatenate(merged)
    return Intervals(every[:, 0], ends=every[:, 1], offsets=offsets, period_s=periods)


def _merged(pieces: Array) -> Array:
    """Return intervals sorted by start, with those that touch or overlap merged."""
    pieces = pieces[np.argsort(pieces[:, 0], kind="stable")]
    latest = np.maximum.accumulate(pieces[:, 1]) if len(pieces) else pieces[:, 1]
    new = np.ones(len(pieces), bool)
    new[1:] = pieces[1:, 0] > latest[:-1]
    last = np.append(np.flatnonzero(new)[1:], len(pieces)) - 1 if len(pieces) else np.zeros(0, np.int64)
    return np.stack([pieces[new, 0], latest[last]], axis=1)


def _list(path: str | Path, value: object) -> list[Any]:
    if not isinstance(value, list):
        raise CorruptData(f"{path}: active and inactive must be lists of seconds, not {short_repr(value, 40)}")
    return value


# --- Compute times ----------------------------------------------------------------------------------


def flhetbench_latency(path: str | Path, model: str = "resnet", *, slowest_s: float = 5.0) -> dict[str, Array]:
    """Return FLHetBench: seconds per batch of training on phones, {"seconds_per_step": (n,)} for `devices.table`.

    `model` is "resnet" (997 phones) or "vit" (21). The file states no unit; milliseconds are assumed. Rows that
    were not measured (empty or 0) and outliers above `slowest_s` are left out.
    """
    check_choice("flhetbench_latency model={!r}", model, ("resnet", "vit"), 'give "resnet" or "vit"')
    slowest_s = check_positive("flhetbench_latency slowest_s={}", slowest_s)
    name = f"{model}_latency"
    seconds = numbers(path, name, read_csv(path, [name])[name]) / 1e3
    measured = seconds[(seconds > 0) & (seconds <= slowest_s)]
    if not len(measured):
        raise CorruptData(f"{path}: no {name} above 0 and up to {slowest_s:g} s")
    return {"seconds_per_step": measured}


def fedscale_capacity(path: str | Path, *, training_factor: float = 3.0) -> tuple[dict[str, Array], Array]:
    """Return FedScale's `client_device_capacity`, as JSON: {id: {"computation": ms/sample, "communication": kbit/s}}.

    The result is {"seconds_per_example": (n,)} for `devices.table`, and the bandwidths (n,) in bits per second, by
    increasing id. `computation` is the time of inference; FedScale takes three times that for training.
    """
    training_factor = check_positive("fedscale_capacity training_factor={}", training_factor)
    records = read_records(path, ("computation", "communication"))
    compute = numbers(path, "computation", [r["computation"] for r in records])
    bandwidth = numbers(path, "communication", [r["communication"] for r in records])
    if not (np.isfinite(compute) & (compute >= 0) & np.isfinite(bandwidth) & (bandwidth > 0)).all():
        raise CorruptData(f"{path}: computation must be at least 0 and communication above 0 for every client")
    return {"seconds_per_example": compute * training_factor / 1e3}, bandwidth * 1e3


def ai_benchmark(path: str | Path) -> dict[str, Any]:
    """Return AI-Benchmark: {"model": names, "ram_gb", "score", "relative_speed"} of phones.

    `relative_speed` is the score over the median score, so seconds_per_step = t / relative_speed gives the
    median phone t. The score is of inference with accelerators; that of training may differ.
    """
    text = read_csv(path, ["Model", "RAM", "AI_Score"])
    ram = numbers(path, "RAM", [size.removesuffix("GB") for size in text["RAM"]])
    score = numbers(path, "AI_Score", [f"{mark} x".split()[0] for mark in text["AI_Score"]])  # without footnotes
    if not (score > 0).all():
        raise CorruptData(f"{path}: every AI_Score must be above 0")
    return {"model": text["Model"], "ram_gb": ram, "score": score, "relative_speed": score / np.median(score)}


# --- Bandwidths, for a network ------------------------------------------------------------------------


def flash_speeds(path: str | Path) -> dict[str, Array]:
    """Return the clients' bandwidths of FLASH: `down_mean_bps`, `down_sigma_bps`, `up_mean_bps`, `up_sigma_bps`."""
    names = [f"{way}_{what}" for way in ("down", "up") for what in ("mean", "sigma")]
    text = read_csv(path, [f"{name}_kbps" for name in names])
    speeds = {f"{name}_bps": numbers(path, name, text[f"{name}_kbps"]) * 1e3 for name in names}
    if not all((np.isfinite(s) & (s >= 0)).all() for s in speeds.values()):
        raise CorruptData(f"{path}: every speed must be at least 0 kbit/s")
    return speeds


def mobiperf(path: str | Path, case: int) -> dict[str, Array]:
    """Return MobiPerf TCP downloads, cases 1 (similar clients) to 4 (very different), 100 clients each.

    `mean_bps` and `std_bps` (n,), and the measurements `samples_bps`, of client c `offsets[c]:offsets[c + 1]`.
    """
    case = check_int("mobiperf case={}", case)
    text = read_csv(path, ["case", "client", "tcp_speed_kbps"])
    cases = numbers(path, "case", text["case"])
    rows = np.flatnonzero(cases == case)
    if not len(rows):
        raise InvalidInput(f"mobiperf case={case}: the file has the cases {np.unique(cases).astype(int).tolist()}")
    rows = rows[np.argsort(numbers(path, "client", text["client"])[rows], kind="stable")]
    samples = [numbers(path, "tcp_speed_kbps", text["tcp_speed_kbps"][row].split()) * 1e3 for row in rows]
    if not all(len(s) and (np.isfinite(s) & (s > 0)).all() for s in samples):
        raise CorruptData(f"{path}: every client needs measurements above 0 kbit/s")
    return {
        "mean_bps": np.array([s.mean() for s in samples]),
        "std_bps": np.array([s.std() for s in samples]),
        "samples_bps": np.concatenate(samples),
        "offsets": np.cumsum([0, *map(len, samples)]),
    }


def pensieve_bandwidth(path: str | Path) -> dict[str, Varying]:
    """Return Pensieve: bandwidth over time on buses, trains, ... and home lines, {name: Varying} for links.

    Every trace begins at 0 and repeats; its last measurement has the mean duration.
    """
    kinds = {"time_s": "f", "mbps": "f", "offsets": "i", "name": "U"}
    a = read_npz(path, kinds)
    if len(a["time_s"]) != len(a["mbps"]):
        raise CorruptData(f"{path}: time_s and mbps differ in length")
    offsets = checked_offsets(path, a["offsets"], len(a["name"]), len(a["mbps"]))
    time, bps = a["time_s"].astype(np.float64), a["mbps"].astype(np.float64) * 1e6
    if not (np.isfinite(time) & np.isfinite(bps) & (bps >= 0)).all():
        raise CorruptData(f"{path}: times and bandwidths must be finite, bandwidths at least 0")
    traces = {}
    for i, name in enumerate(a["name"]):
        piece = slice(offsets[i], offsets[i + 1])
        if not bps[piece].any() or not (np.diff(time[piece]) > 0).all():
            raise CorruptData(f"{path}: the times of trace {name} do not increase, or all its bandwidths are 0")
        times = time[piece] - time[piece][0]
        period = times[-1] * len(times) / (len(times) - 1) if len(times) > 1 else 1.0
        traces[str(name)] = Varying(times, bps[piece], period)
    return traces
