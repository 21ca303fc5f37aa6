"""Whole runs on every clock and path that can serve them, and their comparison."""

from __future__ import annotations

import threading

import pytest
from tools.clocks import clock, compiled_path

import fedsim as fs

ONE = fs.Inline(threads=1)
PATHS = ("loop", "short")


def on_simpy(scenario: fs.Scenario, **options) -> fs.Result:
    with clock("simpy"):
        result = fs.run(scenario, **{"runtime": ONE, **options})
    assert result.manifest["clock"]["name"] == "simpy"
    return result


def on_path(scenario: fs.Scenario, path: str, **options) -> fs.Result:
    """Run on a path of the compiled clock; raise InvalidInput where it cannot serve.

    The short path gives up where broadcasts of two rounds meet on a link; the run is then one of the loop.
    """
    with compiled_path(path):
        result = fs.run(scenario, **{"runtime": ONE, **options})
    used = result.manifest["clock"]
    gives_up = path == "short" and scenario.broadcasts_to_all and scenario.network is not None
    assert used["name"] == "compiled"
    assert used["path"] == path or (gives_up and used["path"] == "loop")
    return result


def assert_same(one: fs.Result, other: fs.Result) -> None:
    """Two results are equal, bit by bit."""
    assert one.stopped_by == other.stopped_by
    assert one.lengths.tolist() == other.lengths.tolist()
    assert list(one.rounds) == list(other.rounds)
    for name in one.rounds:
        left, right = one.rounds[name].to_numpy(), other.rounds[name].to_numpy()
        assert (left.dtype, left.tobytes()) == (right.dtype, right.tobytes()), f"{name}: {left}, {right}"
    for name in ("clients", "metrics", "events"):
        left, right = getattr(one, name), getattr(other, name)
        assert right is None if left is None else left.equals(right), name
    assert (one.samples is None) == (other.samples is None)
    assert one.samples is None or one.samples.tobytes() == other.samples.tobytes()
    assert one.fingerprint == other.fingerprint


def agree(scenario: fs.Scenario, **options) -> list[str]:
    """Compare a run on SimPy with every path of the compiled clock; return the paths that served it.

    What is refused is refused in the same words.
    """
    served = []
    try:
        expected = on_simpy(scenario, **options)
    except fs.errors.InvalidInput as error:
        expected = str(error)
    for path in PATHS:
        try:
            found = on_path(scenario, path, **options)
        except fs.errors.InvalidInput as error:
            if "cannot serve" in str(error):
                continue
            found = str(error)
        if isinstance(expected, str) or isinstance(found, str):
            assert found == expected
        else:
            assert_same(found, expected)
        served.append(path)
    return served


def interrupt(scenario: fs.Scenario, folder, round: int, **options) -> None:
    """Run into a folder until a round has closed."""
    stop = threading.Event()
    with pytest.raises(fs.errors.Interrupted):
        fs.run(
            scenario, out=folder, stop=stop, observers=[lambda p: stop.set() if p.round == round else None],
            **{"runtime": ONE, "checkpoint_every": round, **options},
        )  # fmt: skip
