"""What an algorithm or a policy of one's own answers is checked, and what it is handed cannot be changed in place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import fedsim as fs
from fedsim.errors import ClientFailed, FedsimError, InvalidInput

PROBLEM = fs.problems.GaussianMean.synthetic(clients=4, dim=2, samples=5)


@dataclass(frozen=True)
class Mine:
    """FedAvg in its plainest form, with a memory, and a place for every kind of mistake."""

    batched: bool = False
    answer: Any = field(default=None)  # (reply, memory) -> what client returns
    meddle: Any = field(default=None)  # (job, message, memory), before
    new: Any = field(default=None)  # (state, replies) -> what server returns
    weigh: Any = None

    def init(self, problem, initial):
        return {"theta": initial}

    def memory(self, problem):
        return {"seen": np.zeros(1)}

    def broadcast(self, state):
        return {"theta": state["theta"]}

    def work(self, job):
        return 1

    def client(self, job, message, memory):
        if self.meddle is not None:
            self.meddle(job, message, memory)
        reply, kept = (
            {"theta": message["theta"] - 1e-3 * job.gradient(message["theta"], 0)},
            {"seen": memory["seen"] + 1},
        )
        return (reply, kept) if self.answer is None else self.answer(reply, kept)

    def server(self, state, replies, rng):
        return {"theta": replies.mean("theta")} if self.new is None else self.new(state, replies)


def outcome(algorithm, policy=None, runtime=None):
    parts = {} if policy is None else {"participation": policy}
    scenario = fs.Scenario(problem=PROBLEM, algorithm=algorithm, budget=fs.Budget(rounds=2), replicas=2, **parts)
    return fs.run(scenario, runtime=runtime or fs.Inline(threads=1))


def assert_one_sentence(error):
    assert 20 < len(str(error)) < 400
    assert "\n" not in str(error)


ANSWERS = {
    "nothing": (lambda r, m: None, "return \\(reply, memory\\)"),
    "the reply alone": (lambda r, m: r, "return \\(reply, memory\\)"),
    "no memory": (lambda r, m: (r, None), "return \\(reply, memory\\)"),
    "names that are numbers": (lambda r, m: ({0: r["theta"]}, m), "return \\(reply, memory\\)"),
    "another name": (lambda r, m: ({"thata": r["theta"]}, m), "replies hold thata"),
    "text": (lambda r, m: ({"theta": "far"}, m), "array of real numbers"),
    "a list of text": (lambda r, m: ({"theta": ["a", "b"]}, m), "array of real numbers"),
    "complex numbers": (lambda r, m: ({"theta": r["theta"] * 1j}, m), "array of real numbers"),
    "a ragged list": (lambda r, m: ({"theta": [[1.0], [2.0, 3.0]]}, m), "array of real numbers"),
    "an extra axis": (lambda r, m: ({"theta": r["theta"][..., None]}, m), "shape"),
    "a memory of another name": (lambda r, m: (r, {"sean": m["seen"]}), "memory 'sean'"),
    "a memory of another shape": (lambda r, m: (r, {"seen": np.zeros(7)}), "memory 'seen' of shape"),
    "a memory of text": (lambda r, m: (r, {"seen": "much"}), "array of real numbers"),
}


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("kind", ANSWERS)
def test_a_client_that_answers_wrongly_is_refused_in_one_sentence(kind, batched):
    answer, says = ANSWERS[kind]
    with pytest.raises(InvalidInput, match=says) as caught:
        outcome(Mine(batched, answer))
    assert_one_sentence(caught.value)


def test_a_batched_client_that_loses_jobs_is_refused():
    with pytest.raises(FedsimError, match="one row for each job"):
        outcome(Mine(True, lambda r, m: ({"theta": r["theta"][:1]}, m)))


def test_clients_that_send_different_names_are_refused():
    def answer(reply, memory):
        return ({"theta": reply["theta"], **({"more": reply["theta"]} if reply["theta"][0] > 0 else {})}, memory)

    with pytest.raises(InvalidInput, match=r"the same names|a reply of"):
        outcome(Mine(False, answer))


def _write(job, message, memory):
    message["theta"] += 1.0


def _remember(job, message, memory):
    memory["seen"][...] = 7.0


def _reweigh(job, message, memory):
    if np.ndim(job.weight):
        job.weight *= 2.0


def _rename(job, message, memory):
    if np.ndim(job.client):
        job.client[0] = 3


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("meddle", [_write, _remember])
def test_a_client_cannot_change_message_or_memory_in_place(meddle, batched):
    with pytest.raises(ClientFailed, match="changed an array in place"):
        outcome(Mine(batched, meddle=meddle))


@pytest.mark.parametrize("meddle", [_reweigh, _rename])
def test_a_batched_client_cannot_change_its_jobs_columns(meddle):
    with pytest.raises(ClientFailed, match="changed an array in place"):
        outcome(Mine(True, meddle=meddle))


SERVERS = {
    "nothing": (lambda s, r: None, "return the new state"),
    "another name": (lambda s, r: {"thata": r.mean("theta")}, "the state from init\\(\\) has"),
    "an extra axis": (lambda s, r: {"theta": r.mean("theta")[..., None]}, "shape"),
    "text": (lambda s, r: {"theta": "here"}, "array of real numbers"),
    "a reply that no client sent": (lambda s, r: {"theta": r.mean("delta")}, "replies hold theta"),
    "its state in place": (lambda s, r: s["theta"].__iadd__(1.0), "changed an array in place"),
    "its replies in place": (lambda s, r: r["theta"].__imul__(2.0), "changed an array in place"),
}


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_that_answers_wrongly_is_refused_in_one_sentence(kind, batched):
    new, says = SERVERS[kind]
    with pytest.raises(InvalidInput, match=says) as caught:
        outcome(Mine(batched, new=new))
    assert_one_sentence(caught.value)


class Weigher:
    def __init__(self, weigh):
        self._weigh = weigh

    def select(self, view, rng):
        return np.arange(view.clients)

    def close(self, view):
        return view.now_s if len(view.in_flight) == 0 else np.inf

    def weigh(self, arrived):
        return self._weigh(arrived)


WEIGHTS = {
    "too few": lambda a: np.ones(len(a.p) - 1),
    "too many": lambda a: np.ones(len(a.p) + 5),
    "a column": lambda a: np.ones((len(a.p), 1)),
    "one number": lambda a: 1.0,
    "nothing": lambda a: None,
    "text": lambda a: ["much"] * len(a.p),
    "a generator": lambda a: (x for x in a.p),
    "NaN": lambda a: np.full(len(a.p), np.nan),
}


@pytest.mark.parametrize("kind", WEIGHTS)
def test_weights_that_do_not_fit_the_replies_are_refused(kind):
    with pytest.raises(InvalidInput, match=r"weigh \(with Weigher\) returned") as caught:
        outcome(fs.algorithms.FedAvg(step_size=1e-3), Weigher(WEIGHTS[kind]))
    assert_one_sentence(caught.value)


def test_weights_of_whole_numbers_in_a_list_will_do():
    fine = outcome(fs.algorithms.FedAvg(step_size=1e-3), Weigher(lambda a: [1] * len(a.p)))
    assert np.isfinite(fine.samples).all()


def test_a_policy_cannot_change_in_place_what_arrived():
    def meddle(arrived):
        arrived.multiplicity[0] = 9
        return arrived.p

    with pytest.raises(InvalidInput, match="changed an array in place"):
        outcome(fs.algorithms.FedAvg(step_size=1e-3), Weigher(meddle))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nothing", "text", "an extra axis", "another name"])
def test_wrong_answers_are_refused_on_ray_with_the_same_sentence(kind):
    with pytest.raises(InvalidInput) as inline:
        outcome(Mine(True, ANSWERS[kind][0]))
    with pytest.raises(InvalidInput) as ray:
        outcome(Mine(True, ANSWERS[kind][0]), runtime=fs.Ray(hosts=1))
    assert str(ray.value) == str(inline.value)


@pytest.mark.slow
def test_changes_in_place_are_refused_on_ray_as_they_are_inline():
    def later(job, message, memory):  # not while the reply is measured, which happens here
        if type(job).__name__ != "DryJob":
            message["theta"] += 1.0

    with pytest.raises(ClientFailed, match="changed an array in place"):
        outcome(Mine(True, meddle=later), runtime=fs.Ray(hosts=1))
