"""Help: class docstrings, `fedsim --help`, `fedsim explain`, `fedsim list`."""

from __future__ import annotations

import inspect
import math
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import fedsim as fs
from fedsim.cli import listing
from fedsim.cli.app import call
from fedsim.engine.view import SiteView
from fedsim.errors import InvalidInput
from fedsim.running import RunOptions
from fedsim.runtime.aggregation import SegmentReplies
from fedsim.runtime.jobs import JobsAtHand

PACKAGE = Path(fs.__file__).parent
CLASSES = [name for name in fs.algorithms.__all__ if inspect.isclass(getattr(fs.algorithms, name))]


@pytest.mark.parametrize("name", CLASSES)
def test_help_of_an_algorithm_has_equations_and_every_argument(name: str) -> None:
    made = getattr(fs.algorithms, name)
    text = inspect.getdoc(made) or ""
    assert re.search(r"^    .*(<-|=|~)", text, re.MULTILINE), "no equation"
    rows = [line for line in text.splitlines() if line.startswith("|")]
    table = "\n".join(rows) + ("`epsilon` `delta`" if "epsilon, delta" in text else "")
    assert [f.name for f in fields(made) if f.init and f"`{f.name}`" not in table] == []
    assert len({len(row) for row in rows}) == 1, "the table is ragged"


def test_help_of_a_scenario_explains_each_field() -> None:
    text = inspect.getdoc(fs.Scenario) or ""
    assert [f.name for f in fields(fs.Scenario) if not re.search(rf"^\| `{f.name}` +\| \S", text, re.MULTILINE)] == []


def test_help_of_run_explains_each_option() -> None:
    text = inspect.getdoc(fs.run) or ""
    assert [
        name for name in RunOptions.__annotations__ if not re.search(rf"^\| `{name}` +\| ", text, re.MULTILINE)
    ] == []


def test_help_of_a_result_documents_the_columns_of_rounds() -> None:
    from fedsim.results import ROUNDS, Result

    assert [name for name in ROUNDS if f"`{name}`" not in (Result.__doc__ or "")] == []


@pytest.mark.parametrize(("topic", "made"), [("job", JobsAtHand), ("replies", SegmentReplies), ("view", SiteView)])
def test_a_topic_names_what_the_object_has_and_nothing_else(topic: str, made: type) -> None:
    page = fs.explain(topic)
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("|")][2:]
    named = {n for row in rows for n in re.findall(r"`(\w+)[`(]", row)}
    source = inspect.getsource(made)
    assert len(named) >= 8
    assert [n for n in named if not re.search(rf"\bdef {n}\(|\bself\.{n}\b", source)] == []


def test_rounds_count_as_the_pages_say() -> None:
    seen = []

    class Spy(fs.algorithms.FedAvg):
        batched = False

        def client(self, job, message, memory):
            seen.append(job.round)
            return super().client(job, message, memory)

    problem = fs.problems.GaussianMean([np.ones((2, 1))], np.eye(1))
    fs.run(fs.Scenario(problem=problem, algorithm=Spy(step_size=0.1), budget=fs.Budget(rounds=2)), runtime=fs.Inline(1))
    assert sorted(set(seen)) == [1, 2]


def test_the_example_of_a_policy_runs() -> None:
    text = re.search(r"^    class Fastest.*?\n\n", fs.explain("view"), re.MULTILINE | re.DOTALL)
    assert text
    found: dict[str, object] = {"np": np, "math": math}
    exec(inspect.cleandoc("\n" + text[0]), found)
    problem = fs.problems.GaussianMean([np.ones((2, 1))] * 40, np.eye(1))
    fs.testing.check(found["Fastest"](), problem)  # type: ignore[operator]


def test_every_code_in_the_package_can_be_looked_up() -> None:
    texts = [path.read_text() for path in PACKAGE.rglob("*.py") if "kernels" not in path.parts]
    codes = {code for text in texts for code in re.findall(r"\(([A-E]\d{1,2})\)", text)}
    assert len(codes) > 20
    for code in codes:
        assert fs.explain(code).startswith(f"{code}. ")
    assert not any(re.search(r"\bDESIGN\b|\bDECISIONS\b|SPEC\.md", text) for text in texts)


def test_explain_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["explain", "(A5)"]) == 0
    assert capsys.readouterr().out.startswith("A5. Who computes")
    assert call(["explain"]) == 0
    assert re.search(r"job +what a client sees", capsys.readouterr().out)
    assert call(["explain", "nonsense"]) == 2
    with pytest.raises(InvalidInput, match=r"no such page; fedsim explain, or fs.explain\(\), lists them"):
        fs.explain("F9")
    assert fs.explain("job") == fs.explain("job")  # twice: the name is a function's, not a module's


def test_the_list_has_every_public_part_and_no_helper(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["list"]) == 0
    text = capsys.readouterr().out
    for name in (
        "lognormal(", "pareto_slowdown(", "markov(", "star(", "from_graphml(", "QSGD(", "Elias(", "Identity(", "w2(",
        "rhat(", "spent(", "distance_to(", "GaussianMean", "SoftmaxRegression", "Payload",
    ):  # fmt: skip
        assert re.search(rf"^  {re.escape(name)}", text, re.MULTILINE), name
    for helper in ("pooled", "weights_of", "split_rhat", "w2_floor", "resolve", "gaussian_w2"):
        assert not re.search(rf"^  {helper}\b", text, re.MULTILINE), helper


@pytest.mark.parametrize("wide", [60, 80, 120])
def test_the_list_wraps_at_the_terminals_width(wide: int) -> None:
    assert max(map(len, listing.lines(wide))) <= wide


COMMANDS = ("run", "flower", "resume", "sweep", "tune", "status", "report", "reproduce", "list", "explain", "docs")


def test_help_lists_every_command_without_cutting_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    listed = [line.split()[0] for line in lines[lines.index("Commands:") + 1 :] if re.match(r"  \w+  +\S", line)]
    assert listed == list(COMMANDS)
    assert [line for line in lines if line.endswith("...") and not line.startswith("Usage:")] == []
    assert "  --version  Show the version and exit." in lines


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=lambda line: " ".join(line) or "fedsim")
def test_help_fits_80_columns_and_names_the_next_command_and_a_page(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert call([*command, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert re.match(r"  (Next|Start with|Without TOPIC): ", lines[-1])
    page = re.search(r"fedsim explain ([\w-]+)", lines[-1])
    assert page
    assert str(fs.explain(page[1])).startswith(f"# {page[1]}: ")


def test_help_of_the_package_names_the_page_to_read_next() -> None:
    named = re.findall(r'fs\.explain\("([\w-]+)"\)', fs.__doc__ or "")
    assert named[0] == "first-run"
    assert [name for name in named if not str(fs.explain(name))] == []
