"""An old name raises an error that gives the new one, and the changelog lists the same names."""

from __future__ import annotations

import re
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


def exists(name: str) -> bool:
    value: object = fs
    for part in name.removeprefix("fs.").partition("(")[0].split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            return False
    return True


@pytest.mark.parametrize("old", [old for old in renamed.RENAMED if old.startswith("fs.")])
def test_a_new_name_exists_and_an_old_one_does_not(old: str) -> None:
    new = renamed.RENAMED[old]
    if new.startswith("fs."):
        assert exists(new), new
    if "(" not in old:
        assert not exists(old), old


@pytest.mark.parametrize("old", [old for old in renamed.RENAMED if re.fullmatch(r"fs\.\w+", old)])
def test_a_removed_name_of_the_package_gives_the_new_one(old: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(f"{old} was renamed in 0.3.0: use {renamed.RENAMED[old]}")):
        getattr(fs, old.removeprefix("fs."))


FACTORIES = [
    old for old in renamed.RENAMED if "(" in old and exists(old) and not old.startswith(("fs.run(", "fs.plan("))
]  # fmt: skip


@pytest.mark.parametrize("old", FACTORIES)
def test_a_removed_keyword_of_a_factory_gives_the_new_one(old: str) -> None:
    path, _, keyword = old.removesuffix("=)").partition("(")
    factory: object = fs
    for part in path.removeprefix("fs.").split("."):
        factory = getattr(factory, part)
    with pytest.raises(InvalidInput, match=re.escape(f"{old} was renamed in 0.3.0: use")):
        factory(**{keyword: 1})  # type: ignore[operator]


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


def test_a_removed_setting_gives_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "fs.Scenario(reach=) was renamed in 0.3.0: use fs.Scenario(broadcast_to=)" in str(unknown("reach", []))
    monkeypatch.setitem(renamed.RENAMED, "fs.participation.some(size=)", "fs.participation.some(k=)")
    assert "use fs.participation.some(k=)" in str(unknown("participation.size", []))
    assert "unknown setting devices.size" in str(unknown("devices.size", []))


def test_a_removed_command_gives_the_new_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["plan", "quickstart"]) == 2
    assert capsys.readouterr().err == "fedsim: fedsim plan was renamed in 0.3.0: use fedsim tune\n"
