"""Read a figure's runs, and give every method its own random numbers.

A figure file has the number of the repetition as a setting `seed`, with an axis `"seed": repeats(5)`, and draws from

    fs.Scenario(..., seed=stream("fig1b", alpha, seed))

`check_streams` refuses runs that share a seed, unless `paired` names the settings that differ on purpose.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from fedsim.arrays import Array
from fedsim.errors import InvalidInput
from fedsim.results import Result

if TYPE_CHECKING:
    from fedsim.sweeps.study import Study


def stream(*names: object) -> int:
    """Return a seed that depends on these names: the figure, the method's settings and the repetition."""
    return int.from_bytes(blake2b(repr(names).encode(), digest_size=8).digest(), "big") >> 1


def repeats(count: int) -> list[int]:
    """Return the numbers of independent repetitions, an axis of `quick` and `full`."""
    return list(range(count))


def check_streams(study: Study, paired: Iterable[str] = ()) -> None:
    """Refuse runs that share a seed and differ in a setting that is not declared as paired."""
    first: dict[int, dict[str, object]] = {}
    for settings, result in study.runs:
        own = first.setdefault(int(result.manifest["scenario"]["seed"]), settings)
        differing = sorted(name for name in {*own, *settings} - {*paired} if own.get(name) != settings.get(name))
        if differing:
            raise InvalidInput(
                f"runs of different {', '.join(differing)} share a seed; use seed=stream(...) with these settings, or "
                f"declare paired = {tuple(differing)!r}"
            )


def found(study: Study, **settings: object) -> list[Result]:
    """Return the runs of a study with these settings, in the order of the grid."""
    rows = study.frame().to_dict("records")  # does not load the runs
    at = [i for i, row in enumerate(rows) if all(row.get(f"set {k}", row.get(k)) == v for k, v in settings.items())]
    return [study.runs[i][1] for i in at]


def pick(study: Study, **settings: object) -> Result:
    """Return the one run of a study with these settings."""
    own = found(study, **settings)
    if len(own) != 1:
        raise InvalidInput(f"pick({settings}): {len(own)} runs have these settings; name exactly one")
    return own[0]


def end(result: Result, metric: str, rows: int = 1) -> float:
    """Return the mean of a metric over its last `rows` evaluations, and over replicas if each has a value."""
    if metric in result.metrics:
        return float(result.metrics[metric].dropna().to_numpy()[-rows:].mean())
    return float(spread(result, metric, rows).mean())


def spread(result: Result, metric: str, rows: int = 1) -> Array:
    """Return the mean of a metric over its last `rows` evaluations per replica: (replicas,)."""
    table = result.rounds[["replica", "round", metric]].dropna()
    return np.array([own[metric].to_numpy()[-rows:].mean() for _, own in table.groupby("replica")])


def per_seed(study: Study, metric: str, rows: int = 1, **settings: object) -> Array:
    """Return `end` of each run with these settings: one value per seed."""
    own = found(study, **settings)
    if not own:
        raise InvalidInput(f"per_seed({settings}): no run has these settings")
    return np.array([end(result, metric, rows) for result in own])


def per_replica(study: Study, metric: str, rows: int = 1, **settings: object) -> Array:
    """Return `spread` over all runs with these settings: one value per replica, which are independent chains."""
    own = found(study, **settings)
    if not own:
        raise InvalidInput(f"per_replica({settings}): no run has these settings")
    return np.concatenate([spread(result, metric, rows) for result in own])
