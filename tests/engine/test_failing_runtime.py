"""A runtime that gives up costs no committed round: they are saved, and the run resumes to the same bits."""

from dataclasses import dataclass, replace

import networkx as nx
import pytest
from strategies.hosted import CLIENTS, POLICIES, scenario

import fedsim as fs
from fedsim.errors import RuntimeFailed
from fedsim.runtime.inline import Inline, InlineSession, Worker

SCAFFOLD = fs.algorithms.Scaffold(step_size=1e-2, local_steps=3)
SCENARIOS = {
    "blocks of rounds": lambda: replace(scenario(rounds=60), devices=None),
    "single rounds": lambda: scenario(POLICIES["first"], SCAFFOLD, rounds=15),
    "asynchronous": lambda: scenario(POLICIES["buffered"], SCAFFOLD, rounds=15),
    "tiers": lambda: scenario(rounds=15, exchange=fs.exchanges.tiers([0, 0, 1, 1, 1, 0], every=2)),
    "gossip": lambda: scenario(rounds=15, exchange=fs.exchanges.gossip(nx.cycle_graph(CLIENTS))),
    "metrics": lambda: scenario(POLICIES["first"], rounds=60, metrics=("mean_error",), evaluate_every=4),
}


class Session(InlineSession):
    """Gives up at its `at`-th call."""

    def __init__(self, worker, at):
        super().__init__(worker, 1, None)
        self.left = at

    def _call(self):
        self.left -= 1
        if not self.left:
            raise RuntimeFailed("all hosts are lost")

    async def submit(self, batch, work=1.0):
        self._call()
        return await super().submit(batch, work)

    async def learn(self, block):
        self._call()
        return await super().learn(block)


@dataclass(frozen=True)
class Failing(Inline):
    at: int = 1

    def open(self, algorithm, setting):
        return Session(Worker(algorithm, setting), self.at)


@pytest.mark.parametrize("clock", ["compiled", "simpy"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_rounds_before_a_failure_are_saved_and_the_run_resumes_to_the_same_bits(name, clock, tmp_path):
    what, out = SCENARIOS[name](), tmp_path / "out"
    whole = fs.run(what).fingerprint
    for at in (2, 5):
        with pytest.raises(RuntimeFailed, match=f"all hosts are lost; go on with: fedsim resume {out}"):
            fs.run(what, runtime=Failing(at=at), clock=clock, out=out, checkpoint_every="1000s", resume=True)
        assert list((out / "checkpoints").iterdir())
    assert fs.run(what, out=out, resume=True).fingerprint == whole


def test_a_failure_in_the_first_round_leaves_nothing_to_resume(tmp_path):
    with pytest.raises(RuntimeFailed, match=r"all hosts are lost$"):
        fs.run(scenario(), runtime=Failing(at=1), out=tmp_path / "out", checkpoint_every=1)
    assert not list((tmp_path / "out").glob("checkpoints/*"))


def test_a_failure_where_privacy_is_accounted_leaves_the_last_checkpoint(tmp_path):
    """The round that failed is in the ledger already, so the rounds before it are saved at their own end only."""
    what = fs.Scenario(
        problem=fs.problems.LogisticRegression.synthetic(4, 3),
        metrics=(fs.privacy.spent(delta=1e-4),),
        algorithm=fs.algorithms.PrivateFedPAQ(0.1, local_steps=2, clip=1.0, epsilon=1.0, delta=1e-4, batch_size=2),
        budget=fs.Budget(rounds=8),
    )
    with pytest.raises(RuntimeFailed, match="go on with: fedsim resume"):
        fs.run(what, runtime=Failing(at=5), out=tmp_path / "out", checkpoint_every=2)
    assert fs.run(what, out=tmp_path / "out", resume=True).fingerprint == fs.run(what).fingerprint
