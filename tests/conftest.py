"""Property tests draw the same examples in every run, and what several files of tests set up."""

from __future__ import annotations

import sys

import pytest
from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None)  # a failure seen once is a failure seen again
settings.load_profile("fixed")


@pytest.fixture
def on_host(monkeypatch):
    """The CUDA backend with CuPy's place taken by the host's compiler and NumPy."""
    import cuda_on_host

    from fedsim.kernels import cuda

    monkeypatch.setitem(sys.modules, "cupy", cuda_on_host)
    cuda._module.cache_clear()
    cuda._tables.clear()
    yield cuda
    cuda._module.cache_clear()
    cuda._tables.clear()
