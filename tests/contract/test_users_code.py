"""Users' code that raises or returns nonsense ends in one sentence that names the part, with the user's traceback."""

from __future__ import annotations

import ast
import inspect
import traceback
import warnings
from pathlib import Path

import pytest
from strategies.users_parts import FAULTS, MEMBERS, Mistake, attempt

import fedsim as fs
from fedsim import protocols
from fedsim.checks import users_traceback
from fedsim.cli.app import call
from fedsim.errors import FedsimError, InvalidInput, NonFinite

PACKAGE = Path(__file__).parents[2] / "fedsim"
FEW = ("raises", "nothing", "another shape", "an object")
IDS = [f"{kind.__name__}-{name}" for _, kind, name in MEMBERS]


def is_attribute(kind, name):
    return isinstance(inspect.getattr_static(kind, name), property)


def assert_refused(error, kind, name, fault):
    message = str(error)
    assert 20 < len(message) < 400, message
    assert "\n" not in message
    if fault in ("raises", "exits"):
        assert f"{kind.__name__} raised" in message or f"{kind.__name__}.{name}" in message, message
        assert fault == "exits" or any('raise Mistake("the mistake")' in line for line in users_traceback(error))


def attack(role, kind, name, fault, after, clock):
    """Return True if the clock served the scenario; whatever went wrong was refused."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            calls = attempt(role, kind, name, fault, after, clock)
    except NonFinite:  # nonsense in the form of an answer
        assert fault in ("NaN", "infinite", "negative", "huge")
    except FedsimError as error:
        if f'clock="{clock}" cannot serve' in str(error):
            return False
        assert_refused(error, kind, name, fault)
    else:
        assert fault not in ("raises", "exits") or len(calls) <= after
    return True


@pytest.mark.parametrize(("role", "kind", "name"), MEMBERS, ids=IDS)
def test_a_member_that_fails_is_named(role, kind, name):
    for fault in FEW:
        assert attack(role, kind, name, fault, 0, "simpy")


@pytest.mark.slow
@pytest.mark.parametrize("clock", ["simpy", "compiled"])
@pytest.mark.parametrize(("role", "kind", "name"), MEMBERS, ids=IDS)
def test_a_member_that_fails_in_any_way_is_named_on_both_clocks(role, kind, name, clock):
    for fault in FAULTS:
        for after in (0,) if is_attribute(kind, name) else (0, 3):
            attack(role, kind, name, fault, after, clock)


# --- One function ---------------------------------------------------------------------------------------------------

FOLDERS = (
    "algorithms", "devices", "engine", "kernels", "metrics", "participation", "problems", "protocols", "running", "runtime",
    "scenario_checks",
)  # fmt: skip
OURS = {  # members that only shipped parts have, and what is not a part at all
    "to_columns", "describe", "sketch", "paths", "groups", "kernels", "open", "fused", "for_gossip",
}  # fmt: skip
BARE = {  # the receivers that are users' own objects, not wrapped with defaults
    "problem", "scenario.problem", "self.problem", "view.problem", "setting.problem", "self.setting.problem",
    "self._setting.problem", "self._problem", "scenario.algorithm", "scenario.participation",
    "scenario.devices", "scenario.network", "metric", "codec", "observer", "self.slowdown", "self.availability",
}  # fmt: skip
FUNCTIONS = {"observer", "metric", "discount", "weigh", "self.function", "self._weigh", "step_size"}


def names_of_members():
    roles = vars(protocols).values()
    found = {name for role in roles if getattr(role, "_is_protocol", False) for name in vars(role)}
    return {name for name in found if not name.startswith("_")} - OURS


def direct_calls(path):
    """Calls of users' code that bypass the one function."""
    tree, members = ast.parse(path.read_text()), names_of_members()
    own = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and f.name == "of" for n in ast.walk(f)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or id(node) in own:
            continue
        called = ast.unparse(node.func)
        receiver, _, name = called.rpartition(".")
        if (called in FUNCTIONS and "ray" not in path.parts) or (
            name in members and (receiver in BARE or receiver.endswith(".wrapped"))
        ):
            yield f"{path.relative_to(PACKAGE)}:{node.lineno} calls {called}"


def test_users_code_is_called_through_one_function():
    paths = [path for folder in FOLDERS for path in (PACKAGE / folder).rglob("*.py")]
    assert [call for path in paths for call in direct_calls(path)] == []


def test_one_function_catches_what_users_code_raises():
    catching = {  # besides that of a scenario file's own functions
        f"{path.relative_to(PACKAGE)}"
        for path in PACKAGE.rglob("*.py")
        for handler in ast.walk(ast.parse(path.read_text()))
        if isinstance(handler, ast.ExceptHandler) and handler.type is not None
        and "SystemExit" in ast.unparse(handler.type) and "flower" not in path.parts and "cli" not in path.parts
    }  # fmt: skip
    assert catching == {"checks.py", "scenario_file.py"}


def test_a_bound_method_of_a_shipped_part_is_not_wrapped():
    uniform = fs.participation.uniform(3)
    assert protocols.as_policy(uniform).select == uniform.select
    assert protocols.member(fs.devices.constant(1.0), "compute_s").__func__ is fs.devices.model.Devices.compute_s


def test_the_command_line_prints_the_users_traceback_below_the_sentence(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(
        "import fedsim as fs\n\n\nclass Mine(fs.algorithms.FedAvg):\n    def server(self, state, replies, rng):\n"
        "        return {'theta': 1 / 0}\n\n\ndef scenario():\n"
        "    problem = fs.problems.GaussianMean.synthetic(clients=3, dim=2, samples=4)\n"
        "    return fs.Scenario(problem, Mine(step_size=0.1), fs.Budget(rounds=2))\n"
    )
    assert call(["run", str(file)]) == 2
    lines = capsys.readouterr().err.splitlines()
    sentence, where, line = lines[next(i for i, line in enumerate(lines) if line.startswith("fedsim: ")) :][:3]
    assert sentence == f"fedsim: {file}:6: Mine.server raised ZeroDivisionError: division by zero"
    assert where.strip() == f'File "{file}", line 6, in server'
    assert line.strip() == "return {'theta': 1 / 0}"


def test_a_traceback_of_run_begins_with_the_users_error():
    problem = fs.problems.GaussianMean.synthetic(clients=3, dim=2, samples=4)

    def observer(progress):
        raise Mistake("here")

    with pytest.raises(InvalidInput, match="observer observer raised Mistake: here") as caught:
        fs.run(fs.Scenario(problem, fs.algorithms.FedAvg(step_size=0.1), fs.Budget(rounds=2)), observers=[observer])
    assert "no running event loop" not in "".join(traceback.format_exception(caught.value))
