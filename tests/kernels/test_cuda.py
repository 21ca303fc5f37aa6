"""The CUDA backend without a device: its source compiles, its host code runs, its errors name the remedy."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tools import cuda_on_host

import fedsim as fs
from fedsim import kernels, rng
from fedsim.errors import InvalidInput
from fedsim.kernels import cpu, cuda, reference
from fedsim.kernels.cpu import sums
from fedsim.kernels.cuda import device
from fedsim.protocols import Backend, members
from fedsim.rng import Stream

DTYPES = ["float32", "float64"]
needs_compiler = pytest.mark.skipif(not cuda_on_host.COMPILER, reason="no C++ compiler")


# --- Choosing CUDA ------------------------------------------------------------------------------------


def test_without_cupy_the_error_names_the_package_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(InvalidInput, match=r"pip install 'fedsim-systems\[cuda\]'.*backend='cpu'"):
        kernels.backend("cuda")


def device_count(found):
    def count():
        if isinstance(found, Exception):
            raise found
        return found

    return SimpleNamespace(cuda=SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=count)))


@pytest.mark.parametrize("found", [0, RuntimeError("cudaErrorInsufficientDriver")])
def test_without_a_device_the_error_says_to_use_the_cpu(monkeypatch, found):
    monkeypatch.setitem(sys.modules, "cupy", device_count(found))
    with pytest.raises(InvalidInput, match=r"no CUDA device was found.*use backend='cpu'"):
        fs.Inline(backend="cuda").kernels()


def test_with_a_device_the_backend_is_the_module(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", device_count(1))
    assert kernels.backend("cuda") is cuda


def test_an_unknown_backend_is_refused_with_the_choices():
    with pytest.raises(InvalidInput, match="'auto', 'cpu', 'cuda' or 'numpy'"):
        kernels.backend("metal")


def test_the_module_is_imported_without_cupy():
    code = "import sys, fedsim.kernels.cuda; sys.exit('cupy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_backend_has_the_same_names():
    names = set(kernels.backend("cpu").__all__)
    assert names <= set(cuda.__all__)
    assert set(members(Backend)) <= names  # tests/contract/test_protocols.py compares their arguments


def test_gradients_without_a_cuda_kernel_are_refused(on_host):
    class Mine:
        clients, dim, sizes = 1, 2, np.array([1])

    with pytest.raises(InvalidInput, match=r"gradients of Mine have no CUDA kernel.*backend='cpu'"):
        cuda.gradients(Mine(), np.zeros((1, 2)), np.array([0]), None)


# --- NVRTC ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nvrtc():
    found = importlib.util.find_spec("nvidia.cuda_nvrtc") if importlib.util.find_spec("nvidia") else None
    folders = found.submodule_search_locations if found else []
    libraries = [lib for folder in folders for lib in Path(folder).glob("lib/libnvrtc.so.*")]
    if not libraries:
        pytest.skip("NVRTC is not installed: pip install nvidia-cuda-nvrtc-cu12")
    return ctypes.CDLL(str(sorted(libraries)[0]))


def compile_by_nvrtc(nvrtc, options, kind):
    """Return the PTX ("PTX") or machine code ("CUBIN") of the CUDA source."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    source = device.source().encode()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"kernels.cu", 0, None, None) == 0
    try:
        given = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        failed = nvrtc.nvrtcCompileProgram(program, len(options), given)
        what = "ProgramLog" if failed else kind
        getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        getattr(nvrtc, f"nvrtcGet{what}")(program, text)
        assert not failed, text.value.decode()
        return text.raw
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


@pytest.mark.parametrize("dim", [0, 2, device.REGISTERS])
@pytest.mark.parametrize("dtype", DTYPES)
def test_nvrtc_compiles_every_kernel_to_exactly_rounded_arithmetic(nvrtc, dtype, dim):
    ptx = compile_by_nvrtc(nvrtc, (*device.options(dtype, dim), "-arch=compute_80"), "PTX").decode()
    names = [name for name, _ in cuda_on_host.KERNEL.findall(device.source())]
    assert {"words", "langevin_quadratic", "sum_over_rows", "leapfrog_step", "elias_bits"} <= set(names)
    for name in names:
        assert f".entry {name}(" in ptx
    for inexact in (".approx", ".ftz"):
        assert inexact not in ptx
    fused = set(re.findall(r"fma\.\w+\.\w+", ptx))
    assert fused <= ({"fma.rn.f32"} if np.dtype(dtype) == np.float32 else set())  # those in the source
    assert ".local" not in ptx  # parameters and noise in registers


@pytest.mark.parametrize("dtype", DTYPES)
def test_nvrtc_generates_machine_code(nvrtc, dtype):
    code = compile_by_nvrtc(nvrtc, (*device.options(dtype), "-arch=sm_80"), "CUBIN")
    assert code.startswith(b"\x7fELF")
    assert b"langevin_quadratic" in code


# --- Gradients, compared with Numba's ----------------------------------------------------------

OFFSETS = np.array([0, 3, 70, 71, 180, 200])
JOBS = 60


def data(dtype, d):
    draw = rng.normal(rng.keys(3, Stream.DATA, client=np.arange(200)), d + 1, 0)
    theta = rng.normal(rng.keys(4, Stream.DATA, client=np.arange(JOBS)), d, 0)
    client = np.arange(JOBS) * 7 % 5
    return theta.astype(dtype), np.ascontiguousarray(draw[:, :d], dtype), draw[:, d].astype(dtype), client


def minibatches(client):
    sizes = np.diff(OFFSETS)[client]
    start = np.concatenate([[0], np.cumsum(np.minimum(sizes, 1 + np.arange(JOBS) % 30))])
    return reference.choose_rows(rng.keys(5, Stream.BATCH, client=np.arange(JOBS)), sizes, start, 0), start


def both(name, theta, *arguments, backend=sums):
    """Return the results of the CUDA kernel and of the Numba kernel for the same arguments."""
    found, expected = np.empty_like(theta), np.empty_like(theta)
    getattr(cuda, name)(theta, *arguments, found)
    getattr(backend, name)(theta, *arguments, expected)
    return found, expected


def symmetric(d, dtype, copies):
    root = rng.normal(rng.keys(6, Stream.DATA, client=np.arange(copies)), d * d, 0).reshape(copies, d, d)
    return (root + root.transpose(0, 2, 1)).astype(dtype)


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
def test_quadratic_gradients_equal_numbas(on_host, dtype):
    theta, x, _, client = data(dtype, 5)
    found, expected = both("quadratic_full", theta, symmetric(5, dtype, 5), x[:5], client)
    np.testing.assert_array_equal(found, expected)


@needs_compiler
@pytest.mark.parametrize("copies", [1, 5])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gaussian_minibatch_gradients_equal_numbas(on_host, dtype, copies):
    theta, x, _, client = data(dtype, 5)
    share = np.dtype(dtype).type(0.3)
    precision = symmetric(5, dtype, copies)
    found, expected = both("gaussian_rows", theta, x, OFFSETS, precision, client, *minibatches(client), share)
    np.testing.assert_array_equal(found, expected)


@needs_compiler
@pytest.mark.parametrize("logistic", [False, True])
@pytest.mark.parametrize("all_rows", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_linear_model_gradients_equal_numbas(on_host, monkeypatch, dtype, all_rows, logistic):
    theta, x, y, client = data(dtype, 7)
    rows, start = sums.ALL_ROWS if all_rows else minibatches(client)
    scale, share = np.array([2.5, 0.3], dtype)
    arguments = x, y, OFFSETS, client, rows, start, logistic, scale, share
    for scores in (device.SCORES, 64, 1):  # all jobs at once, a few, one at a time
        monkeypatch.setattr(device, "SCORES", scores)
        found, expected = both("linear_model", theta, *arguments)
        np.testing.assert_array_equal(found, expected)


@needs_compiler
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_gradients_equal_numbas_to_rounding(on_host, dtype, bias):
    theta, x, y, client = data(dtype, (6 + bias) * 3)  # three classes
    labels, share = (np.abs(y) * 3).astype(int) % 3, np.dtype(dtype).type(0.3)
    arguments = np.ascontiguousarray(x[:, :6]), labels, OFFSETS, client, *minibatches(client), 3, bias, share
    found, expected = both("softmax_gradient", theta, *arguments, backend=cpu)
    np.testing.assert_allclose(found, expected, rtol=0, atol=200 * np.finfo(dtype).eps * np.abs(expected).max())


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_nan_in_theta_gives_a_nan(on_host, dtype):
    theta, x, y, client = data(dtype, 7)
    theta[4, 2] = np.nan
    out = np.empty_like(theta)
    one = np.dtype(dtype).type(1)
    cuda.linear_model(theta, x, y, OFFSETS, client, *sums.ALL_ROWS, True, one, one, out)
    assert np.isnan(out[4]).all()
    assert np.isfinite(np.delete(out, 4, axis=0)).all()


# --- Tables and complete runs ------------------------------------------------------------------------------


@needs_compiler
def test_tables_are_copied_once_and_freed_with_the_hosts_array(on_host):
    theta, x, _, client = data("float64", 5)
    hessian, linear = symmetric(5, "float64", 5), x[:5].copy()
    out = np.empty_like(theta)
    cuda.quadratic_full(theta, hessian, linear, client, out)
    before = [table for _, table in device._tables.values()]
    cuda.quadratic_full(theta, hessian, linear, client, out)
    assert len(before) == 2
    assert all(a is b for a, (_, b) in zip(before, device._tables.values(), strict=True))
    del hessian, linear
    gc.collect()
    assert not device._tables


@needs_compiler
def test_no_jobs_give_no_rows(on_host):
    none = np.empty((0, 4), np.uint32)
    assert cuda.normal(none, 3).shape == (0, 3)
    assert cuda.choose_rows(none, np.empty(0, int), np.zeros(1, int), 0).shape == (0,)


def scenario(dtype):
    return fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(clients=6, dim=3, samples=20, seed=1),
        algorithm=fs.algorithms.FALD(step_size=1e-3, local_steps=4, correlation=0.3),
        participation=fs.participation.uniform(3), budget=fs.Budget(rounds=5), replicas=9, seed=2, dtype=dtype,
    )  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_run_has_the_bits_of_the_cpu(on_host, dtype, threads):
    found = fs.run(scenario(dtype), runtime=fs.Inline(threads=threads, chunk=5, backend="cuda"))
    expected = fs.run(scenario(dtype), runtime=fs.Inline(threads=1))
    np.testing.assert_array_equal(found.samples, expected.samples)


@needs_compiler
def test_a_run_on_minibatches_has_the_bits_of_the_cpu(on_host):
    study = fs.Scenario(
        problem=fs.problems.LogisticRegression.synthetic(clients=6, dim=3, samples=20, seed=1),
        algorithm=fs.algorithms.FALD(step_size=1e-3, local_steps=4, batch_size=5),
        participation=fs.participation.uniform(3), budget=fs.Budget(rounds=3), replicas=9, seed=2,
    )  # fmt: skip
    found = fs.run(study, runtime=fs.Inline(threads=1, backend="cuda"))
    np.testing.assert_array_equal(found.samples, fs.run(study, runtime=fs.Inline(threads=1)).samples)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_run_on_a_device_agrees_with_the_cpu_to_rounding(dtype):
    found = fs.run(scenario(dtype), runtime=fs.Inline(backend="cuda"))
    expected = fs.run(scenario(dtype), runtime=fs.Inline())
    np.testing.assert_allclose(found.samples, expected.samples, rtol=0, atol=1e3 * np.finfo(dtype).eps)
