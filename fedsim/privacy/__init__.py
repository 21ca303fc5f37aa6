"""Differential privacy of the clients' rows, as (epsilon, delta).

`fald.guarantee` and `fedpaq.guarantee` are the papers' guarantees, as printed. `spent` is a metric for
Scenario(metrics=...): a Renyi accountant of the uploads that began, with the column "epsilon". `compare` returns both
for the same noise. An algorithm of your own needs `mechanism(problem, sensitivity) -> Mechanism`, and may have
`guarantee(problem) -> Guarantee`; the manifest of a run holds both, as `privacy`.

Where a paper's bound and the accountant differ:

- Private FedPAQ guarantees (epsilon, delta) of one client in one round and makes no claim for several. Rounds compose,
  and the accountant gives the sum.
- Its noise is calibrated for a sensitivity of 4 eta E C, where 2 eta E C is enough: for one round the accountant gives
  a smaller epsilon than the paper.
- Its proof holds for epsilon <= 2 gamma only, which its own experiments (epsilon 1, gamma 0.2, delta 1e-4) violate;
  `valid` is then False. The accountant is valid there, too: 0.36 a round, and 1.17 with sensitivity="tight".
- FA-LD's theorem is about a run before clients are drawn. It gains a factor of about S / N because participation is
  secret, and loses by composing (epsilon, delta) pairs and by allowing small steps only. The accountant uses the actual
  participation without such a secret, and adds Renyi divergences; either may be smaller.
- Scheme I of that theorem charges (d0 / 1.25)^(1/s^2) for a client drawn s times, which is rarely a small delta.
"""

from __future__ import annotations

from fedsim.privacy import fald, fedpaq
from fedsim.privacy.accountant import Guarantee, Mechanism, epsilons
from fedsim.privacy.ledger import Comparison, Ledger, Spent, compare, spent

__all__ = [
    "Comparison",
    "Guarantee",
    "Ledger",
    "Mechanism",
    "Spent",
    "compare",
    "epsilons",
    "fald",
    "fedpaq",
    "spent",
]
