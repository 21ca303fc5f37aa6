"""The bits of many small scenarios are those that were pinned; a change of one is a decision."""

from __future__ import annotations

import json

import numpy as np
import pytest
from golden.golden_scenarios import (
    CLOCKS,
    FILE,
    KERNELS,
    ON_RAY,
    RESUMED,
    SCENARIOS,
    computed,
    environment,
    manifest,
    on_clock,
    process_with,
)
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

PINNED = json.loads(FILE.read_text())


@pytest.fixture(scope="module")
def call():
    """Call a function in a process with the pinned BLAS kernels."""
    with process_with(OPENBLAS_CORETYPE=KERNELS) as call:
        yield call


@pytest.fixture
def agrees(call, record_property):
    """Compare every digest where versions, BLAS kernels and vector instructions are the file's; elsewhere the figures."""
    same = call(environment) == PINNED["environment"]
    record_property("golden", "bits" if same else "figures")

    def compare(name, way="one thread", found=None):
        found, pinned = found or call(computed, name, way), PINNED["scenarios"][name]
        if same:
            assert found == pinned
        assert np.allclose(found["figures"], pinned["figures"], rtol=1e-6)

    return compare


def test_at_least_sixty_scenarios_are_pinned():
    assert set(PINNED["scenarios"]) == set(PINNED["clocks"]) == set(SCENARIOS)
    assert len(SCENARIOS) >= 60


def test_digests_are_compared_on_every_cpu_with_avx2_and_fma():
    assert PINNED["environment"]["cpu"] == ["AVX2", "FMA3"]
    assert PINNED["environment"]["blas_kernels"] == [KERNELS]


def test_the_manifest_names_the_blas_kernels(call):
    assert call(manifest, "FALD")["blas_kernels"] == call(environment)["blas_kernels"] != []


@pytest.mark.slow
def test_bits_do_not_depend_on_wider_vectors(call):
    """NumPy's logarithms and powers do: a privacy budget and a loss read some."""
    wide = [name for name in __cpu_dispatch__ if __cpu_features__[name] and name.startswith(("AVX512", "X86_V4"))]
    with process_with(OPENBLAS_CORETYPE=KERNELS, NPY_DISABLE_CPU_FEATURES=" ".join(wide)) as narrow:
        for name in ("budget of epsilon", "PrivateFedPAQ", "FALD, softmax", "FedAvg"):
            assert narrow(computed, name) == call(computed, name)


def test_every_scenario_runs_on_simpy_and_most_on_the_loop_and_the_short_path():
    served = [clock for clocks in PINNED["clocks"].values() for clock in clocks]
    assert served.count("simpy") == len(SCENARIOS)
    assert served.count("loop") >= 80
    assert served.count("short") >= 40


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_run_has_the_pinned_bits_on_every_clock_that_can_serve_it(agrees, call, name, clock):
    """The clock is forced, and the manifest tells which one ran."""
    found = call(on_clock, name, clock)
    assert (found is not None) == (clock in PINNED["clocks"][name])
    if found is not None:
        agrees(name, found=found)


@pytest.mark.parametrize("name", ["FALD", "star: first", "tree: uniform", "tiers", "star: buffered", "gossip"])
def test_a_run_whose_clock_is_chosen_has_the_pinned_bits(agrees, name):
    agrees(name)


@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_run_has_the_pinned_bits(agrees, name):
    agrees(name, "resumed")


@pytest.mark.parametrize("name", ["FALD, softmax", "QLSDPlusPlus", "tree: first"])
def test_threads_and_chunks_have_the_pinned_bits(agrees, name):
    agrees(name, "threads and chunks")


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_RAY)
def test_hosts_have_the_pinned_bits(agrees, name):
    agrees(name, "Ray")
