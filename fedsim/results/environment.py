"""Package versions and CPU features, on which the bits of a run depend besides the scenario."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata

_PACKAGES = (
    "numpy",
    "numba",
    "llvmlite",
    "scipy",
    "pandas",
    "pyarrow",
    "networkx",
    "simpy",
    "ray",
    "cupy-cuda12x",
)


def versions() -> dict[str, str]:
    """Return the versions of Python, of the running fedsim and of installed packages, without importing them."""
    return dict(_versions())


@cache  # reading the packages' metadata takes longer than a short run
def _versions() -> dict[str, str]:
    from fedsim import __version__  # the installed metadata can belong to another copy

    found = {"python": platform.python_version(), "fedsim-systems": __version__}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def cpu_features() -> list[str]:
    """Return the vector instructions that NumPy found, sorted; compiled kernels round equally where these are equal.

    NumPy's public function only prints them (`np.show_runtime`), so this reads a private name.
    """
    from numpy._core._multiarray_umath import __cpu_features__  # type: ignore[import-not-found]

    return sorted(name for name, present in __cpu_features__.items() if present)
