"""The record of a run: samples, one row per replica and round, and metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.checks import check_bool, check_choice, check_int
from fedsim.errors import InvalidInput
from fedsim.results import ROUNDS, SPENT

LIMIT_BYTES = 1_000_000_000
COLUMNS = (*ROUNDS[2:], *SPENT)  # of a round of a replica, before its metrics


@dataclass(frozen=True)
class Record:
    """What a run records: theta after every `every`-th round past `warmup`, a row after every `rounds_every`-th round.

    With `rounds_every` above 1 a row covers all rounds since the previous row: counts and bits are sums, and `opened_s`
    is that of the first round. `events=True` also records the timeline, one row per event. `sites="all"` records theta
    of every site instead of their average: `samples` is then (rounds, replicas, sites, d).
    """

    every: int = 1
    warmup: int = 0
    rounds_every: int = 1
    events: bool = False
    sites: str = "average"

    def __post_init__(self) -> None:
        for name, least in (("every", 1), ("warmup", 0), ("rounds_every", 1)):
            object.__setattr__(self, name, check_int(f"Record({name}={{}})", getattr(self, name), least))
        object.__setattr__(self, "events", check_bool("Record(events={})", self.events))
        check_choice("Record(sites={!r})", self.sites, ("average", "all"))

    def keeps(self, rounds: int) -> bool:
        """Return True if theta is recorded after this many rounds."""
        return rounds > self.warmup and (rounds - self.warmup) % self.every == 0

    def check(self, rounds: int | None, replicas: int, dim: int, itemsize: int) -> None:
        """Refuse samples over 1 GB before the run starts, and name a record that fits."""
        if rounds is None:
            return
        each = replicas * dim * itemsize
        count = max(0, (rounds - self.warmup) // self.every)
        size = count * each
        if size > LIMIT_BYTES:
            fits = (rounds - self.warmup) // (LIMIT_BYTES // each + 1) + 1
            raise InvalidInput(
                f"{count:,} samples of {replicas} replicas with d={dim:,} take {size / 1e9:.1f} GB; "
                f"thin them with {self.thinned(fits)} or more"
            )

    def thinned(self, every: int) -> str:
        """Return this record with another `every`, as source text."""
        return f"record=fs.Record({f'warmup={self.warmup}, ' * bool(self.warmup)}every={every})"


class Recorder:
    """Columns that grow round by round. Replicas stop separately."""

    def __init__(self, record: Record, replicas: Array, dim: int, dtype: np.dtype[Any]) -> None:
        self.record, self.replicas, self.dim, self.dtype = record, replicas, dim, dtype
        self.samples: list[Array] = []
        self.site_samples: list[Array] = []  # (replicas, sites, d) each, where all sites are recorded
        self.sample_rounds: list[int] = []
        self.lengths = np.zeros(len(replicas), np.int64)
        self.rows: list[tuple[Any, Array, Arrays]] = []  # round (one, or one each), positions, columns
        self.metrics: list[dict[str, Any]] = []
        self.closed = np.zeros(len(replicas), np.int64)  # rounds closed so far
        self.closed_s = np.zeros(len(replicas))  # when the last of them closed
        self._last: Arrays = {}  # metrics of a replica's last row, where it was evaluated after the row was written
        self._open: Arrays = {}  # sums of the rounds that the next row will cover
        self._pending = np.zeros(len(replicas), bool)
        self._at = 0
        self._rows_saved = self._samples_saved = self._metrics_saved = 0

    def round(self, number: int, active: Array, columns: Arrays, per_replica: Arrays) -> None:
        """Record a closed round, counted from 1, of the replicas at the positions `active`."""
        self.closed[active], self.closed_s[active] = number, columns["closed_s"]
        if self.record.rounds_every == 1:
            self.rows.append((number, active, {**columns, **per_replica}))
            return
        if not self._open:
            self._open = {name: np.zeros(len(self.replicas), v.dtype) for name, v in columns.items()}
        fresh = active[~self._pending[active]]
        for name, value in columns.items():
            total = self._open[name]
            if name == "opened_s":
                total[fresh] = value[np.isin(active, fresh)]
            elif name == "closed_s":
                total[active] = value
            else:
                total[active] += value
        self._pending[active] = True
        self._at = number
        if number % self.record.rounds_every == 0 or per_replica:
            self.flush(active, per_replica)

    def rounds(self, last: int, active: Array, columns: Arrays) -> None:
        """Record consecutive rounds up to `last`, columns (rounds, replicas); at most the last one is due."""
        count = len(columns["opened_s"])
        if self.record.rounds_every == 1:
            numbers = np.repeat(np.arange(last - count + 1, last + 1), len(active))
            self.rows.append((numbers, np.tile(active, count), {n: v.ravel() for n, v in columns.items()}))
            self.closed[active], self.closed_s[active] = last, columns["closed_s"][-1]
            return
        ends = {"opened_s": columns["opened_s"][0], "closed_s": columns["closed_s"][-1]}
        self.round(last, active, {n: ends.get(n, v.sum(axis=0)) for n, v in columns.items()}, {})

    def flush(self, active: Array, per_replica: Arrays | None = None) -> None:
        """Write the row that is being summed for these replicas, if any."""
        active = active[self._pending[active]]
        if len(active):
            self.rows.append((self._at, active, {n: v[active] for n, v in self._open.items()} | (per_replica or {})))
            for value in self._open.values():
                value[active] = 0
            self._pending[active] = False

    def evaluated_last(self, stopped: Array, per_replica: Arrays) -> None:
        """Add metrics of the last round of replicas that have stopped; its row may exist already."""
        for name, value in per_replica.items():
            self._last.setdefault(name, np.full(len(self.replicas), np.nan))[stopped] = value

    def sample(self, number: int, active: Array, theta: Array, sites: Array | None = None) -> None:
        """Record theta after round `number` if it is due; `sites` is (replicas, sites, d) where there are several."""
        if not self.record.keeps(number):
            return
        if sites is None and self.record.sites == "all":
            sites = theta[:, None]
        if len(active) == len(self.replicas):
            sample = theta.copy()
        else:
            sample = np.full((len(self.replicas), self.dim), np.nan, self.dtype)
            sample[active] = theta
        self.samples.append(sample)
        if sites is not None:
            all_sites = np.full((len(self.replicas), *sites.shape[1:]), np.nan, self.dtype)
            all_sites[active] = sites
            self.site_samples.append(all_sites)
        self.sample_rounds.append(number)
        self.lengths[active] += 1
        if len(self.samples) * (sample if sites is None else all_sites).nbytes > LIMIT_BYTES:
            raise InvalidInput(
                f"samples passed 1 GB after {number:,} rounds; "
                f"thin them with {self.record.thinned(2 * self.record.every)} or more"
            )

    @property
    def history(self) -> Array:
        """Samples so far, (recorded rounds, replicas, d)."""
        if not self.samples:
            return np.empty((0, len(self.replicas), self.dim), self.dtype)
        return np.stack(self.samples)

    @property
    def recorded_samples(self) -> Array:
        """The same, or (recorded rounds, replicas, sites, d) where all sites are recorded."""
        return np.stack(self.site_samples) if self.site_samples else self.history

    def frame(self) -> Arrays:
        """Return the columns of `rounds`, one row per replica and round, by round and then replica."""
        names = list(dict.fromkeys(name for _, _, columns in self.rows for name in columns))
        out: Arrays = {
            "replica": np.concatenate([self.replicas[a] for _, a, _ in self.rows] or [np.empty(0, np.int64)]),
            "round": np.concatenate([np.broadcast_to(n, len(a)) for n, a, _ in self.rows] or [np.empty(0, np.int64)]),
        }
        for name in list(dict.fromkeys([*COLUMNS, *names])):
            parts = [c[name] if name in c else np.full(len(a), np.nan) for _, a, c in self.rows]
            out[name] = np.concatenate(parts) if parts else np.empty(0, np.float64 if name.endswith("_s") else np.int64)
        count, last = len(out["round"]), np.zeros(len(self.replicas), np.int64)
        np.maximum.at(last, np.concatenate([a for _, a, _ in self.rows] or [np.empty(0, np.int64)]), np.arange(count))
        for name, value in self._last.items():
            known = ~np.isnan(value)
            out.setdefault(name, np.full(count, np.nan))[last[known]] = value[known]
        return out

    # --- Checkpoints -----------------------------------------------------------------------------------

    def segment(self) -> Arrays:
        """Return what was recorded since the last call, as flat arrays; later checkpoints refer to it."""
        rows, self._rows_saved = self.rows[self._rows_saved :], len(self.rows)
        sites = self.site_samples[self._samples_saved :]
        samples, self._samples_saved = self.samples[self._samples_saved :], len(self.samples)
        metrics, self._metrics_saved = self.metrics[self._metrics_saved :], len(self.metrics)
        out: Arrays = {}
        if samples:
            out["samples"] = np.stack(samples)
            if sites:
                out["site_samples"] = np.stack(sites)
            out["sample_rounds"] = np.asarray(self.sample_rounds[-len(samples) :], np.int64)
        if rows:
            out["rows.round"] = np.concatenate([np.broadcast_to(n, len(a)) for n, a, _ in rows]).astype(np.int64)
            out["rows.active"] = np.concatenate([a for _, a, _ in rows])
            for name in dict.fromkeys(n for _, _, c in rows for n in c):
                parts = [c[name] if name in c else np.full(len(a), np.nan) for _, a, c in rows]
                out[f"rows.column.{name}"] = np.concatenate(parts)
        if metrics:
            for name in dict.fromkeys(n for row in metrics for n in row):
                out[f"metrics.{name}"] = np.array([row.get(name, np.nan) for row in metrics])
        return out

    def state(self) -> Arrays:
        """Return the state that later rounds need."""
        out = {
            "lengths": self.lengths,
            "closed": self.closed,
            "closed_s": self.closed_s,
            "pending": self._pending,
            "at": np.array(self._at),
        }
        out |= {f"last.{name}": v for name, v in self._last.items()}
        return out | {f"open.{name}": v for name, v in self._open.items()}

    def restore(self, state: Arrays, segments: list[Arrays]) -> None:
        """Restore the state from a checkpoint."""
        self.lengths[:], self.closed[:] = state["lengths"], state["closed"]  # in place: tracers look at it
        self.closed_s = state.get("closed_s", self.closed_s)
        self._last = {n.removeprefix("last."): v for n, v in state.items() if n.startswith("last.")}
        self._pending, self._at = state["pending"], int(state["at"])
        self._open = {n.removeprefix("open."): v for n, v in state.items() if n.startswith("open.")}
        for part in segments:
            self.samples += list(part.get("samples", ()))
            self.site_samples += list(part.get("site_samples", ()))
            self.sample_rounds += part.get("sample_rounds", np.empty(0, np.int64)).tolist()
            columns = {n.removeprefix("rows.column."): v for n, v in part.items() if n.startswith("rows.column.")}
            if columns:
                self.rows.append((part["rows.round"], part["rows.active"], columns))
            metrics = {n.removeprefix("metrics."): v for n, v in part.items() if n.startswith("metrics.")}
            for i in range(len(next(iter(metrics.values()), ()))):
                self.metrics.append({n: v[i].item() for n, v in metrics.items()})
        self._rows_saved, self._samples_saved, self._metrics_saved = (
            len(self.rows),
            len(self.samples),
            len(self.metrics),
        )
