"""What reaches the terminal: no control characters of a folder's content, and a line a minute where it is a file."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from strategies.files import MOODY
from tools.faults import run

import fedsim as fs
from fedsim.cli import terminal
from fedsim.cli.app import call
from fedsim.results.checksums import read_json, with_checksum
from fedsim.results.folder import FORMAT
from fedsim.sweeps.execution import FAILED
from fedsim.sweeps.spec import FORMAT as SWEEP_FORMAT
from fedsim.text import printable

BAD = "\x1b[2J\x07\x9b31m\x08\r\u202e"
LINE = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (.*)$", re.MULTILINE)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.py").write_text(MOODY)
    return tmp_path


def spoilt(value: Any) -> Any:
    """The value with control characters in every text and every name."""
    if isinstance(value, str):
        return value + BAD
    if isinstance(value, list):
        return [spoilt(part) for part in value]
    if isinstance(value, dict):
        return {name: spoilt(part) for name, part in value.items()}
    return value


def shown(capfd: pytest.CaptureFixture[str], *line: str) -> str:
    capfd.readouterr()
    call(line)
    printed = capfd.readouterr()
    return printed.out + printed.err


def test_control_characters_are_shown_as_escapes() -> None:
    assert printable("a\tb\nc") == "a\tb\nc"
    assert printable(BAD) == r"\x1b[2J\x07\x9b31m\x08\r\u202e"


def test_control_characters_of_a_run_do_not_reach_the_terminal(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(here / "a")
    facts = read_json(here / "a/manifest.json", FORMAT)
    facts["warnings"] = ["it is noise"]
    kept = {name: facts[name] for name in ("files", "sizes", "versions", "scenario")}
    (here / "a/manifest.json").write_bytes(with_checksum(FORMAT, {**spoilt(facts), **kept}))
    text = shown(capfd, "resume", "a") + str(fs.load("a").summary())
    assert "noise" + printable(BAD) in text
    assert not set(BAD) - set("[2J31m") & set(text)
    (here / "a/manifest.json").write_bytes(with_checksum(FORMAT, {**facts, "fedsim_format": BAD}))
    for command in ("status", "report", "resume"):
        text = shown(capfd, command, "a")
        assert text
        assert not set(BAD) - set("[2J31m") & set(text)


def test_control_characters_of_a_sweep_do_not_reach_the_terminal(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (here / "bad").touch()
    call(["sweep", "tiny.py", "--grid", "level=1,3", "--set", "bad=bad", "--out", "s", "--jobs", "1", "--quiet"])
    stored = read_json(here / "s/sweep.json", SWEEP_FORMAT)
    for path in (here / "s").glob(f"*/{FAILED}"):
        path.write_text(json.dumps(spoilt(json.loads(path.read_text()))))
    texts = [shown(capfd, "status", "s")]
    assert "ClientFailed" + printable(BAD) in texts[0]
    (here / "s/sweep.json").write_bytes(with_checksum(SWEEP_FORMAT, {**stored, "name": BAD, "grid": {BAD: [BAD, 1]}}))
    texts += [shown(capfd, command, "s") for command in ("status", "report")]
    assert all(texts)
    assert not set(BAD) - set("[2J31m") & set("".join(texts))


def test_a_file_gets_a_line_of_progress_while_a_round_lasts(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line comes from a clock and not from the next round, so a round that hangs is seen."""
    monkeypatch.setattr(terminal, "HEARTBEAT_S", 0.01)
    started, written, seen = threading.Event(), threading.Event(), []
    before = terminal.heartbeat

    def watched(write: Any, line: Any) -> Any:
        def keep(text: str) -> None:
            seen.append(text)
            written.set()

        started.set()
        return before(keep, line)

    monkeypatch.setattr("fedsim.cli.run.heartbeat", watched)
    monkeypatch.setattr("builtins.wait_for_a_line", lambda: not started.is_set() or written.wait(60), raising=False)
    (here / "tiny.py").write_text(MOODY.replace("if self.bad and", "assert wait_for_a_line()\n        if self.bad and"))
    assert call(["run", "tiny.py"]) == 0
    assert LINE.fullmatch(seen[0])[1] == "compiling"  # type: ignore[index]


def test_a_file_gets_a_line_of_progress_of_a_sweep(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "HEARTBEAT_S", 0.01)
    assert call(["sweep", "tiny.py", "--grid", "level=3,4", "--out", "s", "--jobs", "1"]) == 0
    lines = LINE.findall(capsys.readouterr().out)
    assert re.fullmatch(r"0/2 runs, running [01], failed 0", lines[0])
    assert all(re.fullmatch(r"[012]/2 runs, running [01], failed 0(, ETA .*)?", line) for line in lines)


def test_nothing_prints_beside_the_functions_that_escape() -> None:
    folder = Path(terminal.__file__).parent
    found = [
        f"{path.name}: {line.strip()}"
        for path in sorted(folder.glob("*.py"))
        for line in path.read_text().splitlines()
        if re.search(r"(?<![\w.])print\(|\becho\(|std(out|err)\.write\(|console\.print\(", line)
    ]
    assert found == [
        '__init__.py: sys.stderr.write("fedsim: the current folder no longer exists; change to another one\\n")',
        '__init__.py: sys.stderr.write("fedsim: interrupted\\n")',
        "terminal.py: self._live.console.print(line, markup=False) if self._live is not None else self._write(line)",
        "terminal.py: print(text.printable(line))",
        "terminal.py: print(text.printable(line), file=sys.stderr)",
        "terminal.py: console.print(text.printable(line), soft_wrap=True)",
    ]
