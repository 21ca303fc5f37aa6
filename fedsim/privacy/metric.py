"""`spent`, the metric behind the column "epsilon"; `compare`, a paper's promise beside the accountant's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from fedsim.arrays import Arrays
from fedsim.errors import InvalidInput, quoted, whole
from fedsim.privacy.guarantee import Guarantee, check
from fedsim.privacy.ledger import Ledger
from fedsim.privacy.rdp import ORDERS, Mechanism, check_mechanism, to_epsilon
from fedsim.protocols import AlgorithmLike, PrivacyMechanism, ProblemLike


class LedgerView(Protocol):
    """What the metric sees: the ledger that `Spent.ledger` made, with every upload so far entered."""

    @property
    def ledger(self) -> Ledger: ...


@dataclass(frozen=True)
class Spent:
    delta: float
    sensitivity: float | None = None
    columns: ClassVar[tuple[str, ...]] = ("epsilon",)
    per_replica: ClassVar[bool] = True

    def ledger(self, algorithm: AlgorithmLike, problem: ProblemLike, replicas: int) -> Ledger:
        """An empty ledger for a run of this algorithm."""
        if not isinstance(algorithm, PrivacyMechanism):
            raise InvalidInput(
                f"privacy.spent: {type(algorithm).__name__} does not say what noise hides a client's rows; use "
                "FALD or PrivateFedPAQ, or give it a method mechanism(problem, sensitivity)"
            )
        return Ledger(algorithm.mechanism(problem, self.sensitivity), replicas, self.delta)

    def evaluate(self, view: LedgerView) -> Arrays:
        return {"epsilon": view.ledger.epsilon()}


def spent(delta: float, sensitivity: float | None = None) -> Spent:
    """The epsilon, at this delta, of the client that has given away most so far: a column of `rounds`.

    It follows who really took part and how often. `sensitivity`, for algorithms that do not clip, is the most
    by which another row can change the gradient of a row's loss; nothing checks it, and where the true one is
    larger so is the true epsilon.
    """
    check("privacy.spent", 1, delta=delta)
    if sensitivity is not None:
        check("privacy.spent", math.inf, sensitivity=sensitivity)
    return Spent(float(delta), sensitivity)


@dataclass(frozen=True)
class Comparison:
    """Two accounts of the same noise, at the paper's delta."""

    paper: Guarantee
    accountant: float  # epsilon
    visits: int  # that the accountant was told of


def compare(paper: Guarantee, mechanism: Mechanism, visits: int) -> Comparison:
    """A paper's promise beside the accountant's, for the worst client if it visits in the first rounds.

    FA-LD's theorem speaks of a run before it is known who is drawn. It gains about S / N from that secret,
    which nobody grants who sees the uploads come in, and loses by composing (epsilon, delta) pairs and by
    holding only up to a largest step size. The accountant is told `visits`, grants no secret and adds Renyi
    divergences; either may come out smaller. Scheme I's delta charges (d0 / 1.25)^(1/s^2) for a client drawn
    s times, which is seldom small.

    Private FedPAQ promises something of one visit: compare it with visits=1, and find with more what its
    rounds add up to. Its noise is made for 4 eta E C where 2 eta E C is enough, so that the accountant finds
    it twice as strong as needed; and it has an answer also where epsilon / (2 g) > 1 and the paper's proof
    has none.
    """
    check_mechanism("compare", mechanism)
    if not isinstance(paper, Guarantee):
        raise InvalidInput(f"privacy.compare(paper={quoted(paper)}): give a privacy.Guarantee, or fald.guarantee(...)")
    visits = whole("privacy.compare(visits={})", visits, 0, most=2**53 if mechanism.constant else 10**6)
    kinds = np.arange(mechanism.kinds)
    rdp = np.zeros((mechanism.kinds, len(ORDERS)))
    if mechanism.constant and visits:
        rdp = visits * mechanism.rdp(kinds, 0)
    elif visits:
        for round in range(visits):
            rdp += mechanism.rdp(kinds, round)
    delta = min(max(paper.delta, float(np.finfo(float).tiny)), 1.0)
    return Comparison(paper, float(to_epsilon(rdp, delta).max()), visits)
