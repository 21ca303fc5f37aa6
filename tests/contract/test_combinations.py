"""No combination is accepted and means something else: each is refused in one sentence, or equals the oracles."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from contract.combinations import (
    EXCHANGES,
    GROUPS,
    PAIRS,
    POLICIES,
    REFERENCES,
    ROUNDS,
    ROWS,
    SIZES,
    Cell,
    counts,
    outcome,
)
from contract.combinations_page import PAGE, page
from oracles import timeline, weights

import fedsim as fs
from fedsim import algorithms
from fedsim.errors import InvalidInput
from fedsim.participation import Uniform
from fedsim.protocols import Received

NEAR = 1e-10


def verdict(cell: Cell) -> str:
    """What is wrong with a cell's outcome; empty if nothing is."""
    found = outcome(cell)
    if not found.refusal:
        return "" if found.difference < NEAR else f"{cell}: differs from the oracle by {found.difference:.3g}"
    if not found.at_construction:
        return f"{cell}: refused only when it ran: {found.refusal}"
    one = "\n" not in found.refusal and ". " not in found.refusal
    return "" if one else f"{cell}: not one sentence: {found.refusal}"


def test_every_shipped_algorithm_has_a_row() -> None:
    shipped = set(algorithms.__all__) - {"distributed_sgd", "halving"}
    assert {type(row.algorithm).__name__ for row in ROWS.values()} == shipped


def test_oracles_share_no_code_with_what_they_check() -> None:
    found = set()
    for path in (Path(__file__).parents[1] / "oracles").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                found |= {f"{node.module}.{name.name}" for name in node.names}
    ours = {name for name in found if name.split(".")[0] in ("fedsim", "contract")}
    assert ours == {"fedsim.rng", "fedsim.rng.Stream"}


def test_the_cells_have_empty_partial_and_stale_rounds_and_losses() -> None:
    def run(policy: str, exchange: str = "star", losses: str = "") -> fs.results.Result:
        return fs.run(Cell("FALD", policy, exchange, "unequal", losses).scenario(), runtime=fs.Inline(threads=1))

    assert run("bernoulli").rounds.arrived.tolist() == [4, 3, 0]
    assert run("deadline").rounds.arrived.tolist() == [4, 2, 3]
    assert run("with_replacement").rounds.selected.tolist() == [2, 3, 2]  # of three draws
    stale = timeline.asynchronous(run("buffered").events, ROUNDS)
    assert any(at.version < round for round, received in enumerate(stale) for at in received)
    for losses, policy, exchange in PAIRS:
        rounds = run(policy, exchange, losses).rounds
        assert rounds.dropped.sum() >= 1
        assert rounds.arrived.sum() >= 3


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("algorithm", ROWS)
def test_a_combination_is_refused_in_one_sentence_or_equals_the_oracle(algorithm: str, exchange: str) -> None:
    cells = [Cell(algorithm, policy, exchange, sizes) for policy in POLICIES for sizes in SIZES]
    assert [wrong for cell in cells if (wrong := verdict(cell))] == []


@pytest.mark.parametrize(("losses", "policy", "exchange"), PAIRS)
def test_a_combination_with_losses_is_refused_in_one_sentence_or_equals_the_oracle(
    losses: str, policy: str, exchange: str
) -> None:
    cells = [Cell(algorithm, policy, exchange, "unequal", losses) for algorithm in ROWS]
    assert [wrong for cell in cells if (wrong := verdict(cell))] == []


@pytest.mark.parametrize("exchange", ["star", *GROUPS])
@pytest.mark.parametrize("algorithm", [name for name in ROWS if name.startswith("QLSD")])
def test_an_accepted_draw_gives_every_message_of_qlsd_a_mean_weight_of_one(algorithm: str, exchange: str) -> None:
    groups, accepted = np.array(GROUPS.get(exchange, (0, 0, 0, 0))), {}
    for policy, sizes in product(("uniform", "with_replacement"), SIZES):
        cell = Cell(algorithm, policy, exchange, sizes)
        if outcome(cell).refusal:
            continue
        chances, mean = cell.row.oracle.activity, np.zeros(4)
        for chance, cohort in weights.cohorts(policy, counts(exchange, 4), np.array(SIZES[sizes]), groups):
            mean += chance * cohort * (4 / cohort.sum() if chances is None else 1 / chances)
        accepted[policy, sizes] = mean
    for cell, mean in accepted.items():
        np.testing.assert_allclose(mean, 1.0, atol=1e-12, err_msg=str(cell))
    if algorithm == "QLSD, inverse" and exchange != "tiers every=2":
        assert len(accepted) == 4


@dataclass(frozen=True)
class Otherwise(Uniform):
    """uniform() with other weights."""

    def weigh(self, arrived: Received) -> np.ndarray:
        return arrived.normalised(1 / arrived.p)


@pytest.mark.parametrize("weighting", ["normalised", "scaled"])
@pytest.mark.parametrize("algorithm", [name for name in ROWS if name not in REFERENCES])
def test_an_accepted_weighting_is_the_one_that_the_server_uses(algorithm: str, weighting: str) -> None:
    try:
        scenario = Cell(algorithm, f"uniform {weighting}", "star", "unequal").scenario()
    except InvalidInput:
        return
    other = replace(scenario, participation=Otherwise(2, weighting=weighting))
    found, changed = (fs.run(s, runtime=fs.Inline(threads=1)).samples for s in (scenario, other))
    assert np.abs(found - changed).max() > 1e-6


def test_the_page_of_combinations_is_up_to_date() -> None:
    assert page() == PAGE.read_text(encoding="utf-8"), "run PYTHONPATH=tests python -m contract.combinations_page"
