"""A module, a loss, data, labels or `test=` that are wrong end in one sentence that names them; forked children run."""

from __future__ import annotations

import os
import signal
import warnings

import numpy as np
import pytest

import fedsim as fs
from fedsim.checks import users_traceback
from fedsim.errors import FedsimError, InvalidInput

torch = pytest.importorskip("torch", reason="torch is not installed; pip install torch==2.13.0 for these tests")

from strategies.users_torch import CASES, ODD_MODULES, X, Y, arguments  # noqa: E402

LATER = (12, 60, 110, 150)  # calls of a module or a loss before it fails: in the constructor, at the start, in rounds


def failure(what, name, after):
    """The error of a run with one wrong argument; None if there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            problem = fs.problems.Torch(**arguments(what, name, after))
            algorithm = fs.algorithms.FedAvg(step_size=1e-2, local_steps=2, batch_size=4)
            made = fs.Scenario(problem, algorithm, fs.Budget(rounds=3), metrics=("accuracy", "loss"), replicas=2)
            fs.run(made, runtime=fs.Inline(threads=1))
        except FedsimError as error:
            return error
    return None


def attack(what, name, after=12):
    if (error := failure(what, name, after)) is None:
        return
    message = str(error)
    assert 20 < len(message) < 400, message
    assert "\n" not in message
    if name in ("raises", "exits"):
        assert " raised " in message
        assert name == "exits" or any("the mistake" in line for line in users_traceback(error))


@pytest.mark.parametrize(("what", "name"), CASES, ids=lambda word: word.replace(" ", "-"))
def test_what_is_wrong_is_refused_in_one_sentence(what, name):
    attack(what, name)


@pytest.mark.slow
@pytest.mark.parametrize("after", LATER)
@pytest.mark.parametrize(("what", "name"), [case for case in CASES if case[0].startswith("later")])
def test_what_goes_wrong_later_is_refused_in_one_sentence(what, name, after):
    attack(what, name, after)


@pytest.mark.parametrize("name", ODD_MODULES)
def test_what_is_no_module_is_refused(name):
    given = arguments("module", "NaN") | {"module": ODD_MODULES[name]}
    with pytest.raises(InvalidInput, match="Torch"):
        fs.problems.Torch(**given)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"data": [(X, np.array(["a"] * 12))]}, r"Torch\(data\[0\]=.*pair \(X, y\) of arrays of real numbers"),
        ({"data": [(X, Y), (X, np.zeros((12, 3)))]}, r"data\[1\] has labels \(3,\), data\[0\] \(\)"),
        ({"test": X}, r"Torch\(test=.*give a pair"),
        ({"test": (X[:, :2], Y)}, r"Torch\(test\): X \(12, 2\) and y \(12,\); give rows like the clients' \(3,\)"),
    ],
)
def test_data_and_test_rows_are_checked_alike(changed, message):
    with pytest.raises(InvalidInput, match=message):
        fs.problems.Torch(**(arguments("", "") | changed))


def fingerprint():
    torch.manual_seed(1)
    wide = torch.nn.Sequential(torch.nn.Linear(30, 8000), torch.nn.ReLU(), torch.nn.Linear(8000, 2))
    x, y = np.random.default_rng(1).normal(size=(12, 30)), np.arange(12) % 2
    problem = fs.problems.Torch(wide, torch.nn.functional.cross_entropy, [(x, y)] * 2, test=(x, y))
    algorithm = fs.algorithms.FedAvg(step_size=1e-2, batch_size=4)
    scenario = fs.Scenario(problem, algorithm, fs.Budget(rounds=1), metrics=("accuracy",))
    return fs.run(scenario, runtime=fs.Inline(threads=2)).fingerprint


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_forked_after_a_run_of_the_parent_gets_the_same_bits():
    before = torch.get_num_threads()
    torch.set_num_threads(2)  # what a machine of several cores has
    try:
        whole = fingerprint()
        child = os.fork()
        if child == 0:
            signal.alarm(120)  # a hang ends the child
            os._exit(0 if fingerprint() == whole else 3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        torch.set_num_threads(before)
