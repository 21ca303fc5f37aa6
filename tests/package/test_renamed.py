"""An old name raises an error that gives the new one, and the changelog lists the same names."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import fedsim as fs
from fedsim import renamed
from fedsim.cli.app import call
from fedsim.errors import InvalidInput
from fedsim.settings import unknown

CHANGELOG = Path(__file__).parents[2] / "CHANGELOG.md"


def listed() -> dict[str, str]:
    """The lines "- `old` -> `new`" of the section "Renamed"."""
    section = re.search(r"^### Renamed\n(.*?)^##", CHANGELOG.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert section
    return dict(re.findall(r"^- `([^`]+)` -> `([^`]+)`$", section[1], re.MULTILINE))


def test_the_changelog_lists_the_renamed_names() -> None:
    assert listed() == renamed.RENAMED


def found(name: str) -> object:
    """The object of a name such as "fs.data.load" or "fedsim.text.size", without keywords; None if there is none."""
    parts = name.replace("fs.", "fedsim.", 1).partition("(")[0].split(".")
    for cut in range(len(parts), 0, -1):
        with contextlib.suppress(ImportError, AttributeError):
            return functools.reduce(getattr, parts[cut:], import_module(".".join(parts[:cut])))
    return None


IN_PYTHON = [old for old in renamed.RENAMED if old.startswith(("fs.", "fedsim."))]


@pytest.mark.parametrize("old", IN_PYTHON)
def test_a_new_name_exists_and_an_old_one_does_not(old: str) -> None:
    new, keyword = renamed.RENAMED[old], re.search(r"\((\w+)=", renamed.RENAMED[old])
    if "torch" in new:
        pytest.importorskip("torch")
    assert found(new) is not None, new
    if not old.endswith(")"):
        path, _, name = old.rpartition(".")
        assert name not in getattr(found(path), "__all__", ()), old
    elif keyword and new != "fs.run(timing_only=)":
        assert keyword[1] in inspect.signature(found(new)).parameters  # type: ignore[arg-type]


def test_a_removed_name_gives_the_new_one() -> None:
    with pytest.raises(AttributeError, match=r"^fs\.plan was renamed in 0\.3\.0: use fs\.tune$"):
        fs.plan  # noqa: B018


FACTORIES = [
    old for old in IN_PYTHON if old.endswith("=)") and not old.startswith(("fs.run(", "fs.plan(", "fs.analysis."))
]  # fmt: skip


@pytest.mark.parametrize("old", FACTORIES)
def test_a_removed_keyword_of_a_factory_gives_the_new_one(old: str) -> None:
    path, _, keyword = old.removesuffix("=)").partition("(")
    with pytest.raises(InvalidInput, match=re.escape(f"{old} was renamed in 0.3.0: use")):
        found(path)(**{keyword: 1})  # type: ignore[operator]


def test_a_removed_option_of_run_gives_the_new_one() -> None:
    scenario = fs.Scenario(
        problem=fs.problems.GaussianMean([[[1.0]], [[2.0]]], [[1.0]]), algorithm=fs.algorithms.FALD(step_size=0.1),
        budget=fs.Budget(rounds=1),
    )  # fmt: skip
    with pytest.raises(
        InvalidInput, match=r"^fs\.run\(compute=\) was renamed in 0\.3\.0: use fs\.run\(timing_only=\)$"
    ):
        fs.run(scenario, compute="skip")  # type: ignore[call-arg]
    with pytest.raises(InvalidInput, match=r"run\(speed=\): no such option; choose among out, progress"):
        fs.run(scenario, speed=2)  # type: ignore[call-arg]


def test_a_removed_setting_gives_the_new_one() -> None:
    assert str(unknown("reach", [])) == "--set reach was renamed in 0.3.0: use --set broadcast_to"
    assert "use --set participation.of" in str(unknown("participation.size", []))
    assert "unknown setting devices.size" in str(unknown("devices.size", []))


def test_a_removed_command_gives_the_new_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["plan", "quickstart"]) == 2
    assert capsys.readouterr().err == "fedsim: fedsim plan was renamed in 0.3.0: use fedsim tune\n"
