"""A run whose tables do not fit into memory is refused at the start, not at the end."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pytest

import fedsim as fs
from fedsim.engine import memory_needed
from fedsim.engine.recorder import COLUMNS, Record, Recorder
from fedsim.errors import InvalidInput


def many(**parts: object) -> fs.Scenario:
    return fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(2, 2, 4.0, 5, seed=1),
        algorithm=fs.algorithms.FALD(step_size=1e-3, local_steps=1),
        budget=fs.Budget(rounds=1000),
        replicas=30_000,
        **parts,  # type: ignore[arg-type]
    )


def test_thirty_million_rows_are_refused_where_they_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_needed, "free_bytes", lambda: 8e9)
    thinned = fs.Record(every=1000)
    with pytest.raises(InvalidInput, match=r"30,000 replicas .* would take .*GB.* replicas=range\(0, 15\d{3}\)"):
        fs.run(many(record=thinned))
    memory_needed.check_memory(many(record=fs.Record(every=1000, rounds_every=10)), timing_only=False)


def test_the_estimate_of_a_row_covers_the_table_while_it_is_sorted() -> None:
    replicas, rounds = np.arange(500), 256
    tracemalloc.start()
    try:
        recorder = Recorder(Record(), replicas, 2, np.dtype(float))
        for last in range(64, rounds + 1, 64):
            columns = {name: np.ones((64, 500), float if name.endswith("_s") else np.int64) for name in COLUMNS}
            recorder.rounds(last, replicas, columns)
        pd.DataFrame(recorder.frame()).sort_values(["replica", "round"], ignore_index=True)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0.5 * memory_needed.ROW < peak / (500 * rounds) < memory_needed.ROW
