"""Tests on data sets that are not in the repository, where FEDSIM_DATA names a folder that has them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REAL = os.environ.get("FEDSIM_DATA", "")


def needs(name: str) -> pytest.MarkDecorator:
    """Skipped where the set is not at hand."""
    return pytest.mark.skipif(
        not (REAL and (Path(REAL) / name).is_dir()), reason=f"FEDSIM_DATA names no folder with {name}"
    )
