"""What a paper claims, as a predicate of a study; and a few readers of studies that such predicates share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedsim import rng
from fedsim.arrays import Array
from fedsim.data import load
from fedsim.errors import InvalidInput, one_of
from fedsim.results import Result

if TYPE_CHECKING:
    from fedsim.sweeps.study import Study

Expected = Literal["holds", "cannot", "undecided"]


@dataclass(frozen=True)
class Finding:
    """What a study says of a claim: whether it holds, our figure, and whether our interval covers both answers."""

    held: bool
    ours: str
    undecided: bool = False


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper. `judge` None is a claim that is not run, and `why` says why; a judge that returns None
    says that this form of the figure does not have the runs that the claim is about.

    `expected` is "holds", or "cannot" where the paper's own recursion contradicts it (`why` has the code of
    `fedsim explain`), or "undecided" where its size is below what can be told apart.
    """

    claim: str
    judge: Callable[[Any], Finding | None] | None
    published: str
    why: str
    expected: Expected = "holds"

    def __post_init__(self) -> None:
        remedy = "it must be 'holds', 'cannot' or 'undecided'"
        one_of("Claim(expected={!r})", self.expected, ("holds", "cannot", "undecided"), remedy)


def pick(study: Study, **settings: object) -> Result:
    """The one run of a study with these settings."""
    rows = study.frame().to_dict("records")  # the settings alone: a folder's runs are read when looked at
    found = [i for i, row in enumerate(rows) if all(row.get(f"set {k}", row.get(k)) == v for k, v in settings.items())]
    if len(found) != 1:
        raise InvalidInput(f"pick({settings}): {len(found)} runs have these settings; name exactly one")
    result: Result = study.runs[found[0]][1]
    return result


def end(result: Result, metric: str, rows: int = 1) -> float:
    """A metric at the end: over its last so many evaluations, and over replicas where each has its own."""
    if metric in result.metrics:
        return float(result.metrics[metric].dropna().to_numpy()[-rows:].mean())
    return float(spread(result, metric, rows).mean())


def spread(result: Result, metric: str, rows: int = 1) -> Array:
    """The same of every replica, (replicas,)."""
    table = result.rounds[["replica", "round", metric]].dropna()
    return np.array([own[metric].to_numpy()[-rows:].mean() for _, own in table.groupby("replica")])


def bootstrap(values: Sequence[float] | Array, draws: int = 2000, level: float = 0.95) -> tuple[float, float]:
    """A percentile interval of the mean of `values`, the same on every machine."""
    own = np.asarray(values, np.float64)
    chosen = (rng.uniform(rng.keys(0, rng.Stream.DATA, client=np.arange(draws)), len(own)) * len(own)).astype(int)
    means = own[chosen].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def available(*names: str) -> str:
    """The first of these data sets that is there; the last where none is."""
    return next((name for name in names if lacks(name) == ""), names[-1])


def lacks(name: str) -> str:
    """Why something that a figure needs is not there, or ""."""
    if name == "torch":
        return "" if find_spec("torch") else "needs torch: pip install 'fedsim-systems[torch]'"
    try:
        load(name)
    except InvalidInput:
        return f"needs the data set {name}, in the folder that FEDSIM_DATA names"
    return ""
