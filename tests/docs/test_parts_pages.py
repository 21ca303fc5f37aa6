"""The pages about parts of a user's own document every member of the part's protocol, and nothing else."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

import fedsim as fs
from fedsim.protocols import algorithms, devices, metrics, participation, problems, runtime

ROW = re.compile(r"^\| (`.*?) +\|", re.MULTILINE)
PAGES: dict[str, tuple[Any, ...]] = {
    "job": (algorithms.Job,),
    "replies": (algorithms.Replies,),
    "view": (participation.View,),
    "rng": (algorithms.Rng,),
    "metric": (metrics.Metric, metrics.MetricView),
    "problem": (
        problems.Problem, problems.ProblemLike, problems.Exact, problems.Quadratic, problems.Predicts, problems.HasLoss,
        problems.HasPotential, problems.BatchedGradients, problems.HasShards,
    ),
    "devices": (devices.DeviceModel, devices.DevicesLike),
    "codec": (runtime.Codec, runtime.FixedLength),
}  # fmt: skip


def members(protocol: Any) -> set[str]:
    """Return the public names that a protocol and its bases declare."""
    declared = [c for c in inspect.getmro(protocol) if c.__module__.startswith("fedsim.")]
    names = {name for c in declared for name in (*vars(c), *inspect.get_annotations(c))}
    return {name for name in names if not name.startswith("_")}


def documented(topic: str) -> set[str]:
    """Return the names in the first column of the page's tables."""
    return {name for row in ROW.findall(str(fs.explain(topic))) for name in re.findall(r"`(\w+)[`(]", row)}


@pytest.mark.parametrize("topic", PAGES)
def test_a_page_documents_every_member_of_its_protocol_and_nothing_else(topic: str) -> None:
    declared = set().union(*(members(protocol) for protocol in PAGES[topic]))
    assert documented(topic) == declared


def test_a_member_that_a_page_lacks_is_found() -> None:
    class More(algorithms.Job):
        def gradient_of_all(self) -> None: ...

    assert "shared_normal" in members(algorithms.Job)
    assert members(More) - members(algorithms.Job) == set()  # only fedsim's own classes count
    assert len(documented("job")) > 10
