"""Files that are not in the repository: data sets, reference results, papers.

An environment variable names the folder of each kind. A test that needs a file is skipped only where the variable is
unset; where it is set and the file is missing, the test fails.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

VARIABLES = ("FEDSIM_DATA", "FEDSIM_REFERENCE", "FEDSIM_PAPERS")


def find(variable: str, name: str) -> Path:
    """Return the path of a file or folder in the folder that `variable` names; skip or fail the test without it."""
    assert variable in VARIABLES
    folder = os.environ.get(variable)
    if not folder:
        pytest.skip(f"{variable} is not set; it names the folder with {name}")
    path = Path(folder) / name
    if not path.exists():
        pytest.fail(f"{variable}={folder}: there is no {name} in it; add it, or unset the variable")
    return path


def needs(name: str) -> pytest.MarkDecorator:
    """Mark a test that reads the data set `name`."""
    return pytest.mark.needs("FEDSIM_DATA", name)
