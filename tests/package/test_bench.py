"""The benchmarks' own arithmetic: what counts, what got worse, how something grows."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from analysis.bench import guard, scaling
from analysis.bench.peers import measure, report, turns, workloads
from analysis.bench.peers.workloads import Workload

TINY = Workload("softmax", 4, 30, 4, 3, 10, 2, 6, 3)


def row(who, loss, updates=100, seconds=1.0, load="W1"):
    numbers = {"updates_per_s": 1.0, "startup_s": 1.0, "peak_mib": 1.0}
    return {"load": load, "who": who, "s_per_round": seconds, "loss": loss, "updates": updates, **numbers}


def test_rounds_that_ended_together_took_equally_long():
    assert measure.lengths([10.0, 11.0, 17.0], [1, 2, 5]) == [1.0, 2.0, 2.0, 2.0]


def test_only_what_got_a_third_worse_is_flagged(tmp_path, capsys):
    before = {"W1": 1.0, "W2": 1.0, "gone": 1.0}
    assert guard.worse({"W1": 1.29, "W2": 1.31, "new": 9.0}, before) == ["W2: 1 -> 1.31, 1.31 x worse"]
    guard.save(before, tmp_path / "ratios.json")
    assert json.loads((tmp_path / "ratios.json").read_text()) == before
    assert guard.check({"W2": 2.0}, tmp_path / "ratios.json") == 1
    assert guard.check({"W2": 1.1}, tmp_path / "ratios.json") == 0
    assert "2.00 x worse" in capsys.readouterr().out


def test_a_time_counts_only_with_the_bare_loops_loss_and_all_updates():
    rows = [
        row("bare", 0.65), row("bare (fresh subsets)", 0.75, seconds=2.0), row("fedsim", 0.75, seconds=0.5),
        row("peer", 0.65, seconds=3.0), row("lazy", 0.65, updates=90), row("wrong", 0.75),
    ]  # fmt: skip
    table = report.summary(pd.DataFrame(rows), {"W1": "softmax"}, {"W1": 100}).set_index("who")
    assert table["counts"].to_dict() == {
        "bare": True, "bare (fresh subsets)": True, "fedsim": True, "peer": True, "lazy": False, "wrong": False,
    }  # fmt: skip
    assert table["ratio"]["fedsim"] == 0.5
    assert report.ratios(table.reset_index()) == {"W1, fedsim": 0.5}
    assert "| W1 | peer | 3 |" in report.markdown(table.reset_index())
    assert report.small(table.reset_index()).splitlines()[2:] == [
        "| bare | 1,000 |", "| bare (fresh subsets) | 2,000 |", "| fedsim | 500 |", "| peer | 3,000 |", "| lazy |  |",
        "| wrong |  |",
    ]  # fmt: skip


def test_a_table_is_put_between_the_marks_of_a_page():
    begin, end = report.MARKS
    page = report.put_into(f"above\n{begin}\nold\n{end}\nbelow\n", "new")
    assert page == f"above\n{begin}\nnew\n{end}\nbelow\n"
    assert report.put_into(page, "new") == page
    with pytest.raises(SystemExit, match="no place for the table"):
        report.put_into("nothing", "new")


def test_later_turns_take_whom_they_can_afford_the_quickest_first():
    pairs = [("W1", "slow"), ("W1", "quick"), ("W2", "middling"), ("W2", "broken")]
    plan = turns.Plan(pairs, 3, until=100.0)
    assert plan.turn(0, 0.0) == pairs
    for (load, who), seconds in zip(pairs[:3], (40.0, 1.0, 9.0), strict=True):
        plan.took(load, who, seconds)
    plan.drop("W2", "broken")
    assert plan.turn(1, 50.0) == [("W1", "quick"), ("W2", "middling")]  # 25 seconds are its share
    assert plan.turn(2, 50.0) == pairs[:3]
    assert plan.turn(2, 99.5) == []


def test_medians_are_taken_over_turns():
    rows = [row("bare", 0.65, seconds=s) for s in (1.0, 9.0, 2.0)]
    table = report.summary(pd.DataFrame(rows), {"W1": "softmax"}, {"W1": 100})
    assert table["s_per_round"].tolist() == [2.0]


def test_batches_walk_through_shuffled_rows_and_shuffle_again():
    chosen = list(workloads.batches(np.random.default_rng(0), TINY))
    assert sorted(np.concatenate(chosen)) == list(range(30))
    fresh = list(workloads.batches(np.random.default_rng(0), TINY, fresh=True))
    assert [len(set(b)) for b in fresh] == [10, 10, 10]


@pytest.mark.parametrize("kind", ["softmax", "linear"])
def test_the_plain_client_descends_along_finite_differences(kind):
    classes = 3 if kind == "softmax" else 1
    w = Workload(kind, 1, 10, 1, 1, 10, 1, 4, classes, lr=1e-3)  # its batch is all its rows
    draw = np.random.default_rng(0)
    x = draw.standard_normal((10, 4))
    y = draw.integers(0, 3, 10) if kind == "softmax" else draw.standard_normal(10)
    start = [draw.standard_normal(p.shape) for p in w.start()]
    moved = workloads.local_sgd(w, start, x, y, draw)
    for part, (before, after) in enumerate(zip(start, moved, strict=True)):
        for at in np.ndindex(before.shape):
            ends = []
            for h in (1e-5, -1e-5):
                shifted = [p.copy() for p in start]
                shifted[part][at] += h
                ends.append(workloads.final_loss(w, shifted, x, y))
            slope = (ends[0] - ends[1]) / 2e-5
            assert (before[at] - after[at]) / w.lr == pytest.approx(slope, rel=1e-4, abs=1e-6)


def test_the_exponent_of_a_power_law_is_found_past_fixed_costs():
    sizes = [1, 10, 100, 1000]
    assert scaling.exponent(sizes, [1e-5 + 1e-6 * n**1.5 for n in sizes]) == pytest.approx(1.5, abs=0.15)
    assert scaling.exponent([1, 2], [1.0, 2.0]) == pytest.approx(1.0)
