"""Backends have the same maths in files of the same name: equal functions with equal arguments."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path

import pytest

from fedsim.kernels import cpu, cuda, reference

SPLIT = {"qlsd_logistic": "qlsd"}  # a backend may split a file by problem
MISSING = {  # by backend and function: why it is absent
    ("numpy", "gaussian_rows"): "the reference calls the problem's own gradient",
    ("numpy", "linear_model"): "the reference calls the problem's own gradient",
    ("numpy", "network_gradient"): "the reference calls the problem's own gradient",
    ("numpy", "quadratic_full"): "the reference calls the problem's own gradient",
    ("numpy", "softmax_gradient"): "the reference calls the problem's own gradient",
    ("numpy", "online_times"): "the rules of availability in Python are its reference",
    ("numpy", "drop_phases"): "the rule of dropouts in Python is its reference",
    ("numpy", "slowdowns"): "the rule of slow-downs in Python is its reference",
}
EXTRA = {
    ("numpy", "exp"): "problems call it; compiled kernels have it inline",
    ("cuda", "require_device"): "only this backend may be absent",
}
CLOCK = {"drop_phases", "online_times", "slowdowns"}  # in kernels.clock, which all backends share
ONE_ROW = {"quantise"}  # codecs call it from the file; it is in no backend's `__all__`


def functions(backend):
    return {name for name in backend.__all__ if callable(getattr(backend, name))}


def module(backend, file):
    return import_module(f"{backend.__name__}.{file}")


def file_of(name):
    """Return the file in which the CPU backend, which has all functions, defines one."""
    function = getattr(cpu, name)
    file = getattr(function, "py_func", function).__module__.rpartition(".")[2]
    return SPLIT.get(file, file)


def parameters(function):
    return list(inspect.signature(function).parameters)


@pytest.mark.parametrize("backend", [reference, cuda], ids=["numpy", "cuda"])
def test_a_backend_has_every_function_in_the_same_file_with_the_same_arguments(backend):
    for name in sorted(functions(cpu)):
        if (backend.name, name) in MISSING:
            assert not hasattr(backend, name)
            continue
        assert parameters(getattr(backend, name)) == parameters(getattr(cpu, name)), name
        if name not in CLOCK:
            assert getattr(module(backend, file_of(name)), name) is getattr(backend, name), name


def test_functions_that_only_one_backend_has_are_listed():
    found = {(b.name, name) for b in (reference, cuda) for name in functions(b) - functions(cpu)}
    assert found == set(EXTRA)


@pytest.mark.parametrize("backend", [reference, cuda], ids=["numpy", "cuda"])
def test_files_of_one_name_share_a_function(backend):
    names = [{path.stem for path in Path(b.__file__).parent.glob("[!_]*.py")} for b in (cpu, backend)]
    shared = set.intersection(*names)
    assert shared >= {"draws", "langevin", "leapfrog", "qlsd", "sums"}
    for file in sorted(shared):
        common = {name for name in functions(cpu) - CLOCK if file_of(name) == file} & functions(backend)
        common |= {name for name in ONE_ROW if all(hasattr(module(b, file), name) for b in (cpu, backend))}
        assert common, file


def test_quantise_has_the_same_arguments():
    assert parameters(module(cpu, "qsgd").quantise) == parameters(module(reference, "qsgd").quantise)


def test_every_cuda_source_belongs_to_a_file_of_that_name():
    sources = {path.stem for path in Path(cuda.__file__).parent.glob("*.cu")} - {"philox"}  # what the others include
    assert sources == {path.stem for path in Path(cuda.__file__).parent.glob("[!_]*.py")} - {"device"}
