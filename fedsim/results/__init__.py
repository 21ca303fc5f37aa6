"""Results: samples, tables and a manifest, in memory or as a folder.

Rounds count from 1. Replicas stop separately: `samples` is padded with NaN, and `lengths` has the length of each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedsim.arrays import Array
from fedsim.errors import InvalidInput, NotRecorded
from fedsim.results.environment import cpu_features, versions
from fedsim.results.files import write_atomic
from fedsim.results.folder import load, save
from fedsim.text import printable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["METRICS", "ROUNDS", "SPENT", "Result", "cpu_features", "load", "versions", "write_atomic"]

Axis = Literal["rounds", "seconds", "uplink_bits", "downlink_bits", "backhaul_bits", "total_bits"]

_COUNTS = ("selected", "arrived", "dropped", "late", "uplink_bits", "downlink_bits", "wasted_bits")
ROUNDS = ("replica", "round", "opened_s", "closed_s", *_COUNTS)  # then one column per metric of a replica
METRICS = ("round", "seconds", "uplink_bits", "downlink_bits")  # then one column per metric over replicas
# Columns of `rounds` after these; results of earlier versions lack them.
SPENT = ("dropped_bits", "wasted_down_bits", "wasted_s", "late_s", "dropped_s", "called_off_s", "backhaul_bits")
MESSAGE_TYPE = "message_type"  # a column of `rounds` of a Flower app


class Summary(str):
    """Text that a prompt or a notebook displays line by line."""

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """One finished run.

    `rounds` has one row per replica and round (`rounds_every` rounds where the record is thinned):

    | column                         | meaning                                                                    |
    |--------------------------------|----------------------------------------------------------------------------|
    | `replica`, `round`             | which; rounds count from 1. Write rounds["round"]: `rounds.round` is a     |
    |                                | method of pandas                                                           |
    | `opened_s`, `closed_s`         | virtual seconds at which the round opened and closed                       |
    | `selected`, `arrived`          | clients selected; replies aggregated                                       |
    | `dropped`, `late`              | visits that dropped out; visits that the round closed without              |
    | `uplink_bits`, `downlink_bits` | sent in the round, payload only, each message once                         |
    | `wasted_bits`                  | uplink bits that were never aggregated (`wasted_down_bits`, `wasted_s`:    |
    |                                | downlink bits and device seconds, where recorded)                          |
    | `dropped_bits`                 | the part of `wasted_bits` from visits that dropped out; the rest was late  |
    | one per metric of a replica    | NaN where it was not evaluated                                             |

    `metrics` has one row per evaluated round: `round`, then `seconds` and cumulative bits as medians over the replicas
    that reached it, then the metrics over replicas, such as `w2`. `clients` has one row per client, `events` one per
    event of the timeline (in `fs.analysis.timeline.visits`, `select` is the instant a client was selected; write
    visits["select"]). `summary()` returns a few lines of text, `report("page.html")` writes a page with figures.
    """

    samples: Array | None  # (recorded rounds, replicas, d): theta after the round; of all sites: (..., sites, d)
    sample_rounds: Array  # (recorded rounds,): their rounds
    lengths: Array  # (replicas,): recorded samples of each replica
    stopped_by: tuple[str, ...]  # (replicas,): the budget that ended it
    rounds: pd.DataFrame
    metrics: pd.DataFrame
    clients: pd.DataFrame | None = None
    events: pd.DataFrame | None = None
    manifest: dict[str, Any] = field(default_factory=dict)
    replicas: tuple[int, ...] = ()  # their indices; if empty, 0, 1, ...
    visits: pd.DataFrame | None = None  # of a Flower app: `fs.analysis.timeline.visits`, with what its replies measured

    def __post_init__(self) -> None:
        count = len(self.stopped_by)
        if not self.replicas:
            object.__setattr__(self, "replicas", tuple(range(count)))
        sizes = {"lengths": np.shape(self.lengths), "replicas": (len(self.replicas),)}
        if self.samples is not None:
            sizes["samples"] = self.samples.shape[1:2]
            if self.samples.ndim not in (3, 4) or self.samples.shape[:1] != np.shape(self.sample_rounds):
                raise InvalidInput(
                    f"samples {self.samples.shape} must be (recorded rounds, replicas, d), or (..., sites, d), "
                    f"with one of the {np.size(self.sample_rounds)} sample_rounds for each"
                )
        if wrong := [name for name, size in sizes.items() if size != (count,)]:
            raise InvalidInput(f"stopped_by names {count} replicas, {' and '.join(wrong)} another number")
        for name, table, needed in (("rounds", self.rounds, ROUNDS), ("metrics", self.metrics, METRICS)):
            if missing := [column for column in needed if column not in table.columns]:
                raise InvalidInput(f"{name} lacks the columns {', '.join(missing)}")
        for column in ("replica", "round", *_COUNTS):
            if (dtype := self.rounds[column].dtype) != np.int64:
                raise InvalidInput(f"rounds.{column} is {dtype}; it must be int64, so that bits are counted exactly")
        if unknown := set(self.rounds["replica"].unique().tolist()) - set(self.replicas):
            raise InvalidInput(f"rounds name the replicas {sorted(unknown)}; pass replicas= with all indices")

    def __repr__(self) -> str:
        """Return a short text: asyncio prints the return value of a task, and tables would be slow to print."""
        return f"<Result of {len(self.replicas)} replicas, {len(self.rounds)} rounds in all>"

    @property
    def hosts(self) -> pd.DataFrame | None:
        """One row per client host of a run on Ray: its clients, their links and devices, and the bytes it holds.

        Clients are numbered consecutively, from `first` to `last`; a column of links or devices is given by its
        smallest and largest value.
        """
        import pandas as pd

        return pd.DataFrame(self.manifest["hosts"]) if self.manifest.get("hosts") else None

    def curve(self, metric: str, against: Axis = "rounds") -> pd.DataFrame:
        """Return a metric at every round where it was evaluated, as columns `[against, metric]`.

        For a metric of each replica the values are medians over replicas, with 5 and 95 % quantiles in `low` and
        `high`, against the median that those replicas had spent.
        """
        if self._is_over_replicas(metric):
            table = self.metrics[self.metrics[metric].notna()].sort_values("round")
            x = median_spent(self, table, against)
            return table[[metric]].assign(**{against: x})[[against, metric]].reset_index(drop=True)
        by_round = self._evaluated(metric, against).groupby("round")
        values = by_round["value"]
        bands = {metric: values.median(), "low": values.quantile(0.05), "high": values.quantile(0.95)}
        return by_round["x"].median().to_frame(against).assign(**bands).reset_index(drop=True)

    def time_to(
        self, metric: str, above: float | None = None, below: float | None = None, against: Axis = "seconds"
    ) -> Any:
        """Return the amount spent when a metric was first at or above (at or below) a level.

        For a metric over replicas this is a float, NaN if never. For a metric of each replica it is a Series over
        replicas, infinity if never, so that the median stays correct while fewer than half of them fail.
        """
        if (above is None) == (below is None):
            raise InvalidInput(f"time_to({metric!r}): give exactly one of above= and below=")

        def reached(values: Any) -> Any:
            return values >= above if above is not None else values <= below

        if self._is_over_replicas(metric):
            curve = self.curve(metric, against)
            there = curve.loc[reached(curve[metric]), against]
            return float(there.iloc[0]) if len(there) else float("nan")
        seen = self._evaluated(metric, against)
        first = seen[reached(seen["value"])].groupby("replica")["x"].first().astype(np.float64)
        return first.reindex(list(self.replicas), fill_value=np.inf).rename(index=against).rename_axis("replica")

    @property
    def theta(self) -> Array | None:
        """(recorded rounds, replicas, d): the samples, averaged over sites where every site is recorded."""
        if self.samples is None or self.samples.ndim == 3:
            return self.samples
        sites = self.samples.shape[2]
        weights = self.manifest.get("sites", {}).get("weights") or [1 / sites] * sites
        return np.asarray(np.einsum("trsd,s->trd", self.samples, np.asarray(weights)), self.samples.dtype)

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits of the samples and the timeline, bit for bit, without metrics."""
        from hashlib import blake2b

        digest = blake2b(digest_size=8)
        order = np.lexsort((self.rounds["round"], self.rounds["replica"]))
        timeline = [self.rounds[column].to_numpy()[order] for column in ROUNDS]
        for array in (self.sample_rounds, self.samples, *timeline):
            if array is not None:
                array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
                digest.update(f"{array.dtype.str}{array.shape}".encode())
                digest.update(array.reshape(-1).view(np.uint8).data)
        return digest.hexdigest()

    def summary(self, width: int = 80) -> Summary:
        """Return the lines that the terminal prints after a run."""
        from fedsim.analysis.summary import lines

        return Summary(printable("\n".join(lines(self, width))))

    def plot(self, metric: str | None = None, against: Axis = "rounds") -> Figure:
        """Plot a metric against the amount spent, as a matplotlib figure; the default is the first metric."""
        from fedsim.analysis import figures

        known = (*self.over_replicas, *self.per_replica)
        if metric is None and not known:
            raise NotRecorded("no metric was evaluated; add one to Scenario(metrics=...) and run again")
        figure = figures.blank(7, 4)
        figures.curves(figure.subplots(), {"": self}, known[0] if metric is None else metric, against, log="")
        return figure

    def _repr_html_(self) -> str:
        """Return the summary for a notebook."""
        return f"<pre>{escape(str(self.summary()))}</pre>"

    def report(self, path: str | Path) -> Path:
        """Write one HTML page about the run with figures inside, as `fedsim report` does for a folder."""
        from fedsim.analysis.report import run_page

        write_atomic(Path(path), run_page(Path(path).stem, self).encode())
        return Path(path)

    def to_arviz(self) -> Any:
        """Return theta as ArviZ InferenceData: chain = replica, draw = round, up to the first stop of a replica."""
        try:
            import arviz
        except ImportError:
            raise InvalidInput("to_arviz() needs ArviZ: pip install 'fedsim-systems[report]'") from None
        draws = int(np.min(self.lengths, initial=len(self.sample_rounds)))
        theta = self.theta
        if theta is None or draws == 0:
            raise NotRecorded("a replica recorded no samples; set Scenario(record=fs.Record(every=1, warmup=0))")
        return arviz.from_dict(
            posterior={"theta": theta[:draws].swapaxes(0, 1)},
            coords={"chain": list(self.replicas), "draw": self.sample_rounds[:draws]},
        )

    def save(self, path: str | Path) -> Path:
        """Write a new folder, completely or not at all; `load` reads it back."""
        return save(self, path)

    @property
    def over_replicas(self) -> tuple[str, ...]:
        """Names of metrics with one value for all replicas, such as w2."""
        return tuple(name for name in self.metrics.columns if name not in METRICS)

    @property
    def per_replica(self) -> tuple[str, ...]:
        """Names of metrics with one value per replica, such as accuracy."""
        return tuple(name for name in self.rounds.columns if name not in (*ROUNDS, *SPENT, MESSAGE_TYPE))

    def _is_over_replicas(self, metric: str) -> bool:
        over, each = self.over_replicas, self.per_replica
        if metric not in over and metric not in each:
            raise NotRecorded(
                f"metric {metric!r} was not evaluated (this run has: {', '.join([*over, *each]) or 'none'}); "
                "add it to Scenario(metrics=...) and run again"
            )
        return metric in over

    def _evaluated(self, metric: str, against: Axis) -> pd.DataFrame:
        """Return replica, round, amount spent (`x`) and `value`, where a metric of each replica was evaluated."""
        rounds = self.rounds.sort_values(["replica", "round"], ignore_index=True)
        frame = rounds[["replica", "round"]].assign(x=_spent(rounds, against), value=rounds[metric])
        return frame[frame["value"].notna()]


def median_spent(result: Result, table: pd.DataFrame, against: Axis) -> Array:
    """Return the median amount spent at each row of `table`, some rows of `result.metrics`.

    A sum of medians is not a median, so total bits come from `rounds`.
    """
    if against in ("rounds", *METRICS[1:]):
        return np.asarray(table["round" if against == "rounds" else against])
    rounds = result.rounds.sort_values(["replica", "round"], ignore_index=True)
    return np.asarray(_spent(rounds, against).groupby(rounds["round"]).median().reindex(table["round"]))


def _spent(rounds: pd.DataFrame, against: Axis) -> pd.Series:
    """Return the amount that each replica had spent at the end of each of the `rounds`, which are in order."""
    if against == "rounds":
        return rounds["round"]
    if against == "seconds":
        return rounds["closed_s"]
    if against == "total_bits":
        return total_bits(rounds).groupby(rounds["replica"]).cumsum()
    if against in ("uplink_bits", "downlink_bits", "backhaul_bits"):
        return sent_bits(rounds, against).groupby(rounds["replica"]).cumsum()
    raise InvalidInput(
        f"against = {against!r}; it must be rounds, seconds, uplink_bits, downlink_bits, backhaul_bits or total_bits"
    )


def sent_bits(rounds: pd.DataFrame, name: str) -> pd.Series:
    """Return a column of bits; results of earlier versions have none between sites."""
    return rounds[name] if name in rounds else rounds["uplink_bits"] * 0


def total_bits(rounds: pd.DataFrame) -> pd.Series:
    """Return all bits that were sent: up, down and between sites."""
    return rounds["uplink_bits"] + rounds["downlink_bits"] + sent_bits(rounds, "backhaul_bits")
