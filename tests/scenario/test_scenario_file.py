"""A scenario file is loaded and built, or refused in one sentence that names its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedsim.errors import ClientFailed, FedsimError, InvalidInput
from fedsim.running import run
from fedsim.scenario import Scenario
from fedsim.scenario_file import load_file, shipped

GOOD = '''
"""Five clients and a mean."""
import numpy as np
import fedsim as fs

def scenario(*, local_steps: int = 2, clients: int = 5, size: int = 0, scale: "float" = 1.0, plain=3):
    data = [np.full((4, 2), c, float) for c in range(clients)]
    policy = fs.participation.uniform(size) if size else fs.participation.full()
    return fs.Scenario(
        problem=fs.problems.GaussianMean(data, np.eye(2)),
        algorithm=fs.algorithms.FALD(step_size=1e-3 * scale, local_steps=local_steps),
        participation=policy, budget=fs.Budget(rounds=3), replicas=2)
'''


def written(folder: Path, text: str, name: str = "it.py") -> Path:
    path = folder / name
    path.write_text(text.lstrip())
    return path


def test_arguments_come_from_the_signature(tmp_path: Path) -> None:
    file = load_file(written(tmp_path, GOOD))
    assert [(p.name, p.annotation, p.default) for p in file.parameters] == [
        ("local_steps", int, 2),
        ("clients", int, 5),
        ("size", int, 0),
        ("scale", float, 1.0),
        ("plain", int, 3),
    ]


def test_settings_reach_arguments_and_fields(tmp_path: Path) -> None:
    file = load_file(written(tmp_path, GOOD))
    built = file.build({"local_steps": "7", "budget.rounds": "9", "seed": 4, "replicas": "3:6"})
    assert isinstance(built, Scenario)
    assert (built.algorithm.local_steps, built.budget.rounds, built.seed) == (7, 9, 4)
    assert built.replica_numbers == range(3, 6)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"local_steps": "-1"}, "FALD(local_steps=-1): must be an integer of at least 1"),
        ({"size": "60"}, "participation.uniform(60): only 5 clients exist; use at most 5"),
        ({"local_step": "1"}, "unknown setting local_step; did you mean local_steps?"),
        ({"step_size": "1"}, "unknown setting step_size; did you mean algorithm.step_size?"),
        ({"budget.rounds": "-3"}, "Budget(rounds=-3): must be an integer of at least 1"),
        ({"problem.x": "1"}, "problem is GaussianMean and has no fields to set"),
    ],
)
def test_a_bad_setting_is_one_sentence(tmp_path: Path, setting: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        load_file(written(tmp_path, GOOD)).build(setting)
    said = str(refused.value)
    assert said.startswith(sentence) or re.search(rf"it\.py:\d+: {re.escape(sentence)}$", said)
    assert "\n" not in said


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("def scenario(:\n    pass", "it.py:1: invalid syntax"),
        ("x = 1", "it.py defines no function scenario()"),
        ("import not_there_at_all", "it.py:1: ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("x = 1\ny = x / 0", "it.py:2: ZeroDivisionError: division by zero"),
        ("def scenario(**anything): ...", "name every argument"),
        ("def scenario(x: 'Missing' = 1): ...", "the annotation does not evaluate"),
        ("def scenario(): ...\ngrid = 3", "grid is int"),
        ("def scenario(): ...\ngrid = {'a': 3}", "give a list of at least one value"),
        ("def scenario(): ...\nfigure = 3", "make it a function of the study"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        load_file(written(tmp_path, text))
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("def scenario():\n    return 1 / 0", "it.py:2: ZeroDivisionError: division by zero"),
        ("def scenario():\n    return 3", "scenario() returned int; return a fs.Scenario"),
        ("def scenario(*, size): ...", "scenario() needs size"),
    ],
)
def test_a_scenario_that_cannot_be_built_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        load_file(written(tmp_path, text)).build({})
    assert sentence in str(refused.value)


def test_bytes_that_are_no_python_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "it.py"
    path.write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00")
    with pytest.raises(InvalidInput, match=r"it\.py"):
        load_file(path)


def test_a_name_that_is_neither_file_nor_shipped_lists_what_ships(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no such file.*quickstart"):
        load_file(tmp_path / "nothing.py")


def test_a_file_may_import_its_neighbour(tmp_path: Path) -> None:
    written(tmp_path, "STEPS = 6", "neighbour_of_it.py")
    file = load_file(written(tmp_path, GOOD.replace("import numpy", "import neighbour_of_it, numpy")))
    assert file.name == "it"


def test_shipped_scenarios_have_a_first_line_and_build() -> None:
    assert "quickstart" in shipped()
    for name in set(shipped()) - {
        "lenet",
        "credit",
        "fashion_mnist",
    }:  # which need torch or data; they have tests of their own
        file = load_file(name)
        assert file.source.startswith('"""')
        assert isinstance(file.build({}), Scenario)


FAILING = (
    GOOD.replace("import fedsim as fs", "import fedsim as fs\nfrom dataclasses import dataclass")
    .replace(
        "def scenario",
        """@dataclass(frozen=True)
class Mine(fs.algorithms.FALD):
    batched = False
    def fused(self, problem, backend): return None
    def client(self, job, message, memory):
        return {"theta": {}["nothing"] if job.client == 3 else message["theta"]}, memory

def scenario""",
    )
    .replace("fs.algorithms.FALD(step", "Mine(step")
)


def test_an_error_in_a_clients_code_names_the_line_of_the_file(tmp_path: Path) -> None:
    file = load_file(written(tmp_path, FAILING))
    scenario = file.build({})
    with (
        pytest.raises(ClientFailed, match=r"it\.py:11: .*KeyError: 'nothing'.*client 3"),
        file.blamed(FedsimError),
    ):
        run(scenario)
