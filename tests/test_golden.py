"""The bits of many small scenarios are those that were pinned; whoever changes one must mean it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from golden_scenarios import (
    FILE,
    KERNELS,
    ON_RAY,
    ON_SIMPY_ALONE,
    RESUMED,
    SCENARIOS,
    computed,
    environment,
    manifest,
    process_with,
)
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

import fedsim as fs
from fedsim.errors import InvalidInput

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

    def compare(name, way="one thread"):
        found, pinned = call(computed, name, way), PINNED["scenarios"][name]
        if same:
            assert found == pinned
        assert np.allclose(found["figures"], pinned["figures"], rtol=1e-6)

    return compare


def test_at_least_sixty_scenarios_are_pinned():
    assert set(PINNED["scenarios"]) == set(SCENARIOS)
    assert len(SCENARIOS) >= 60


def test_digests_are_compared_on_every_cpu_with_avx2_and_fma():
    assert PINNED["environment"]["cpu"] == ["AVX2", "FMA3"]
    assert PINNED["environment"]["blas_kernels"] == [KERNELS]


def test_the_manifest_names_the_blas_kernels(call):
    assert call(manifest, "FALD")["blas_kernels"] == call(environment)["blas_kernels"] != []


def test_bits_do_not_depend_on_wider_vectors(call):
    """NumPy's logarithms and powers do: a privacy budget and a loss read some."""
    wide = [name for name in __cpu_dispatch__ if __cpu_features__[name] and name.startswith(("AVX512", "X86_V4"))]
    with process_with(OPENBLAS_CORETYPE=KERNELS, NPY_DISABLE_CPU_FEATURES=" ".join(wide)) as narrow:
        for name in ("budget of epsilon", "PrivateFedPAQ", "FALD, softmax", "FedAvg"):
            assert narrow(computed, name) == call(computed, name)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_run_has_the_pinned_bits(agrees, name):
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


@pytest.mark.parametrize("name", [n for n, s in SCENARIOS.items() if s.devices and n not in ON_SIMPY_ALONE])
def test_the_compiled_clock_has_the_pinned_bits(agrees, name):
    agrees(name, "compiled clock")


@pytest.mark.parametrize("name", ON_SIMPY_ALONE)
def test_the_compiled_clock_refuses_sizes_that_depend_on_values_where_time_goes_event_by_event(name):
    with pytest.raises(InvalidInput, match="the sizes of replies depend on their values"):
        fs.run(SCENARIOS[name], clock="compiled")
