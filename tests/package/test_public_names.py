"""The names that fedsim exports. A name that appears, disappears or moves is a decision, made here."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fedsim as fs

CLASSES = {"Budget", "Inline", "Network", "Ray", "Record", "Result", "Scenario", "Study", "Target"}
FUNCTIONS = {"arun", "explain", "load", "replay", "run", "sweep", "tune"}
MODULES = {
    "algorithms", "analysis", "codecs", "data", "devices", "errors", "exchanges", "flower", "initial", "metrics", "network", "participation", "privacy", "problems", "protocols", "rng",
    "schedules", "testing", "topologies",
}  # fmt: skip
NAMES = CLASSES | FUNCTIONS | MODULES


def test_the_exported_names_are_these():
    assert set(fs.__all__) == NAMES
    assert fs.__all__ == sorted(fs.__all__)


def test_dir_lists_the_exported_names_and_the_version():
    assert set(dir(fs)) == NAMES | {"__version__"}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_exported_name_loads(name):
    value = getattr(fs, name)
    if name in MODULES:
        assert value.__name__ == f"fedsim.{name}"
    elif name in CLASSES:
        assert isinstance(value, type)
    else:
        assert callable(value)


def test_classes_and_functions_are_called_what_they_are_exported_as():
    for name in sorted(CLASSES | FUNCTIONS):
        assert getattr(fs, name).__name__ == name


@pytest.mark.parametrize("name", sorted(MODULES))
def test_modules_export_names_that_exist(name):
    module = getattr(fs, name)
    for exported in getattr(module, "__all__", ()):
        assert hasattr(module, exported), f"fedsim.{name}.{exported}"


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(AttributeError, match=r"has no attribute 'Scenarios'; choose among .*Scenario.*"):
        fs.Scenarios  # noqa: B018


def test_a_star_import_brings_exactly_the_exported_names():
    code = "before = set(globals()); from fedsim import *; print(*sorted(set(globals()) - before - {'before'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == NAMES
