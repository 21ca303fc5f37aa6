"""The papers' figures and claims.

The claims of a paper are in `scenarios/papers/<paper>/claims.toml`. A figure file
(`scenarios/papers/<paper>/<figure>.py`) is a scenario file with these additional names:

    paper = {"local_steps": [1, 10, 100], "replicas": 300}   # the settings that the paper gives
    quick = {"local_steps": [1, 10], "seed": repeats(5)}     # settings; a list is an axis of the grid
    full = {"local_steps": [1, 10, 100], "seed": repeats(5)}
    harmless = {"rounds": "the curve is flat from round 200"} # optional: departures that change no verdict
    paired = ("codec",)                                      # optional: settings whose runs share random numbers
    stand_in = "two classes of CIFAR-10"                     # optional: data in place of the paper's
    needs = ("mnist", "torch")                               # optional: data sets, or torch, that the runs need
    def figure(study): ...                                   # the paper's figure, by `plots`; or
    def table(study): ...                                    # the paper's table, as a list of rows {column: value}
    @judge("fig1b-heterogeneity-slows")                      # one per claim; returns an outcome of a predicate
    def slower(study): return ordered(...)

`theorems.py` judges the claims without a figure; `not_run.toml` has the claims that are given up, with the reason.
"""

from fedsim.reproduce import plots
from fedsim.reproduce.figures import Figure, available, figures, system
from fedsim.reproduce.judging import VERDICTS, Outcome, every, judge, some
from fedsim.reproduce.predicates import (
    agreement,
    bounded,
    count,
    exact,
    exact_range,
    extreme,
    identical,
    interval,
    not_run,
    ordered,
    rate,
    superiority,
    within_range,
)
from fedsim.reproduce.run import reproduce
from fedsim.reproduce.studies import end, found, per_replica, per_seed, pick, repeats, spread, stream

__all__ = [
    "VERDICTS",
    "Figure",
    "Outcome",
    "agreement",
    "available",
    "bounded",
    "count",
    "end",
    "every",
    "exact",
    "exact_range",
    "extreme",
    "figures",
    "found",
    "identical",
    "interval",
    "judge",
    "not_run",
    "ordered",
    "per_replica",
    "per_seed",
    "pick",
    "plots",
    "rate",
    "repeats",
    "reproduce",
    "some",
    "spread",
    "stream",
    "superiority",
    "system",
    "within_range",
]
