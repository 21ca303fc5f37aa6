"""The settings of Python's garbage collector and of the C library's allocator during a run."""

import gc
import platform
import subprocess
import sys
from contextlib import ExitStack

import pytest

import fedsim as fs
from fedsim.runtime.process import NEW_OBJECTS, rare_collections

SMALL = fs.Scenario(
    problem=fs.problems.GaussianMean.synthetic(3, dim=2, samples=5, seed=1),
    algorithm=fs.algorithms.FALD(1e-3, local_steps=2),
    budget=fs.Budget(rounds=2),
)


@pytest.fixture(autouse=True)
def _as_it_was():
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_garbage_is_collected_less_often_during_a_run_and_as_before_after_it():
    gc.set_threshold(300, 7, 5)
    seen = []
    fs.run(SMALL, observers=[lambda progress: seen.append(gc.get_threshold())])
    assert set(seen) == {(NEW_OBJECTS, 7, 5)}
    assert gc.get_threshold() == (300, 7, 5)


@pytest.mark.parametrize("first", [0, 10**6])
def test_a_collector_that_is_off_or_rarer_still_is_not_changed(first):
    gc.set_threshold(first, 7, 5)
    with rare_collections():
        assert gc.get_threshold() == (first, 7, 5)
    assert gc.get_threshold() == (first, 7, 5)


def test_overlapping_runs_restore_the_threshold_before_the_first():
    gc.set_threshold(300, 7, 5)
    first, second = ExitStack(), ExitStack()
    first.enter_context(rare_collections())
    second.enter_context(rare_collections())
    first.close()
    assert gc.get_threshold() == (NEW_OBJECTS, 7, 5)
    second.close()
    assert gc.get_threshold() == (300, 7, 5)


def test_a_threshold_set_during_a_run_is_not_changed():
    with rare_collections():
        gc.set_threshold(0)
    assert gc.get_threshold()[0] == 0


FAULTS = """
import resource, sys
import numpy as np
from fedsim.runtime.process import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    begin = faults()
    several = [np.ones(10**6) for _ in range(6)]
    del several
print(faults() - begin)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc's")
def test_freed_memory_is_reused_by_the_next_arrays():
    fresh, kept = (
        int(subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, check=True).stdout)
        for how in ("fresh", "kept")
    )
    assert kept * 10 < fresh
