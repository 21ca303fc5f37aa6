"""What the README shows is true: its Python and its commands run; .ci/run does its two installations."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from fedsim.cli.app import call
from fedsim.privacy.accountant import curve

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
INSTALLING = (
    "python3 -m venv .venv && .venv/bin/pip install -e . && .venv/bin/fedsim run scenarios/quickstart.py",
    "python3 -m venv .venv && .venv/bin/pip install -e '.[test]' && .venv/bin/pytest",
)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    return [line for block in blocks("sh") for line in block.splitlines() if line not in INSTALLING]


def test_every_python_block_runs_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    shared: dict[str, object] = {}
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), shared)
    assert "w2" in capsys.readouterr().out


def test_the_python_blocks_need_no_more_than_the_first_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    for extra in ("dp_accounting", "arviz", "plotly", "pooch", "cupy", "torch"):
        monkeypatch.setitem(sys.modules, extra, None)  # as if it were not installed
    curve.cache_clear()  # what other tests have computed with it
    shared: dict[str, object] = {}
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), shared)
    assert "epsilon" in shared["result"].rounds  # type: ignore[attr-defined]


def test_the_readme_has_commands_to_run() -> None:
    assert len(commands()) >= 3


@pytest.mark.parametrize("line", commands())
def test_every_command_runs(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    program, *arguments = shlex.split(line)
    assert program == "fedsim"
    assert call(arguments) == 0


def test_both_installation_lines_stand_there_letter_by_letter_for_ci_to_run() -> None:
    lines = README.splitlines()
    assert [lines.count(line) for line in INSTALLING] == [1, 1]
    script = (ROOT / ".ci" / "run").read_text()
    ends = re.findall(r"\$\(line '(.*?)'\)", script)
    found = [line for end in ends for line in lines if re.search(rf"^python3 -m venv .*{end}$", line)]
    assert sorted(found) == sorted(INSTALLING)


def test_the_map_names_files_that_exist() -> None:
    named = re.findall(r"`((?:fedsim|scenarios|tests|\.ci)/[\w/.]*)`", README)
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []
