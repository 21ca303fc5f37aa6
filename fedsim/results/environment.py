"""What the bits of a run depend on besides the scenario: package versions and CPU features."""

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
    """Versions of Python, of the fedsim that runs, and of installed packages, read without importing them."""
    return dict(_versions())


@cache  # reading the packages' metadata takes longer than a short run
def _versions() -> dict[str, str]:
    from fedsim import __version__  # installed metadata may be of another copy than the one that runs

    found = {"python": platform.python_version(), "fedsim-systems": __version__}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def cpu_features() -> list[str]:
    """The vector instructions that NumPy found, sorted; compiled kernels round alike where these are equal.

    NumPy only prints them in public (`np.show_runtime`), so they are taken from where it keeps them.
    """
    from numpy._core._multiarray_umath import __cpu_features__  # type: ignore[import-not-found]

    return sorted(name for name, present in __cpu_features__.items() if present)
