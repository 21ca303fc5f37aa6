"""Property tests draw the same examples in every run, and what several files of tests set up."""

from __future__ import annotations

import sys

import pytest
from hypothesis import settings
from tools import real_data

pytest.register_assert_rewrite("engine.clocks")  # modules there that compare for several files of tests
settings.register_profile("fixed", derandomize=True, deadline=None)  # a failure seen once is a failure seen again
settings.load_profile("fixed")


def pytest_runtest_setup(item):
    for mark in item.iter_markers("needs"):
        real_data.find(*mark.args)


def pytest_terminal_summary(terminalreporter):
    """Print how many runs were compared with the pinned digests, and how."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, ())]
    how = [value for report in reports for name, value in report.user_properties if name == "golden"]
    if how:
        bits, figures = how.count("bits"), how.count("figures")
        terminalreporter.write_line(f"golden: {bits} runs compared bit for bit, {figures} to 1e-6 only")


@pytest.fixture
def on_host(monkeypatch):
    """The CUDA backend with CuPy's place taken by the host's compiler and NumPy."""
    from tools import cuda_on_host

    from fedsim.kernels import cuda
    from fedsim.kernels.cuda import device

    monkeypatch.setitem(sys.modules, "cupy", cuda_on_host)
    device._module.cache_clear()
    device._tables.clear()
    yield cuda
    device._module.cache_clear()
    device._tables.clear()
