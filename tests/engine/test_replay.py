"""One job of a finished run, computed again alone, is the job that the run folded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import fedsim as fs
from fedsim.cli.app import call
from fedsim.errors import InvalidInput, NotRecorded
from fedsim.runtime.inline import Inline
from fedsim.scenario_file import load_file

TEXT = """
import numpy as np
import fedsim as fs

def scenario(*, clients: int = 1, policy: str = "full", steps: int = 2):
    data = [np.full((4, 2), c, float) for c in range(clients)]
    choose = fs.participation
    policies = {"full": choose.full(), "uniform": choose.uniform(2), "buffered": choose.buffered(2)}
    return fs.Scenario(
        problem=fs.problems.GaussianMean(data, np.eye(2)),
        algorithm=fs.algorithms.FALD(step_size=1e-2, local_steps=steps),
        devices=fs.devices.lognormal(median_step_s=0.1, sigma=0.5),
        participation=policies[policy], budget=fs.Budget(rounds=6), replicas=3, seed=4, metrics=("w2",))
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "it.py"
    path.write_text(TEXT)
    return path


@dataclass
class Listening:
    """A runtime, and its session, that remembers every reply."""

    def kernels(self):
        return Inline().kernels()

    def open(self, algorithm, setting):
        self.session, self.heard = Inline(threads=1).open(algorithm, setting), {}
        return self

    async def submit(self, batch, work=1.0):
        reply = await self.session.submit(batch, work)
        for i, (replica, client) in enumerate(zip(batch.replica.tolist(), batch.client.tolist(), strict=True)):
            values = {name: v[i] for name, v in reply.values.items()}
            self.heard.setdefault((replica, batch.round + 1, client), []).append((values, reply.bits[i]))
        return reply

    def close(self):
        self.session.close()


def test_a_lone_clients_reply_is_the_sample_after_the_round(file: Path) -> None:
    assert call(["run", "it.py", "--out", "a", "--quiet"]) == 0
    samples = fs.load("a").samples
    job = fs.replay("a", replica=2, round=4, client=0)
    assert np.array_equal(job.values["theta"], samples[3, 2])
    assert np.array_equal(job.message["theta"], samples[2, 2])
    assert job.bits == 128


def test_the_stored_text_counts_and_not_what_the_file_has_become(file: Path) -> None:
    call(["run", "it.py", "--out", "a", "--quiet"])
    file.unlink()
    assert fs.replay("a", replica=0, round=1, client=0).round == 1


@pytest.mark.parametrize("policy", ["uniform", "buffered"])
@pytest.mark.parametrize("algorithm", ["FALD", "Scaffold"])
def test_a_job_among_many_is_replayed_to_the_last_bit(policy: str, algorithm: str, file: Path) -> None:
    scenario = load_file(file).build({"clients": 5, "policy": policy})
    if algorithm == "Scaffold":
        scenario = replace(scenario, algorithm=fs.algorithms.Scaffold(step_size=1e-2, local_steps=2), metrics=())
    listening = Listening()
    fs.run(scenario, runtime=listening, out="a")
    for replica, round, client in [key for key in listening.heard if key[1] in (1, 4) and key[0] == 1]:
        job = fs.replay("a", replica=replica, round=round, client=client, scenario=scenario)
        values, bits = listening.heard[replica, round, client][0]
        assert job.values.keys() == values.keys()
        assert all(np.array_equal(job.values[name], value) for name, value in values.items())
        assert job.bits == bits


def test_what_cannot_be_replayed_is_said_in_one_sentence(file: Path) -> None:
    call(["run", "it.py", "--set", "clients=5", "--set", "policy=uniform", "--out", "a", "--quiet"])
    heard = []
    for client in range(5):
        try:
            heard.append(fs.replay("a", replica=0, round=1, client=client).client)
        except NotRecorded:
            continue
    assert len(heard) == 2
    absent = min(set(range(5)) - set(heard))
    with pytest.raises(NotRecorded, match=f"client {absent} took no part in round 1 of replica 0"):
        fs.replay("a", replica=0, round=1, client=absent)
    for wrong in ({"replica": 3}, {"round": 7}, {"round": 0}, {"client": 5}):
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            fs.replay("a", **{"replica": 0, "round": 1, "client": 0, **wrong})
    with pytest.raises(InvalidInput, match="not the one"):
        fs.replay("a", replica=0, round=1, client=0, scenario=load_file(file).build({}))
    with pytest.raises(InvalidInput, match="no run's folder"):
        fs.replay(file.parent, replica=0, round=1, client=0)
