"""What a run gives away about the clients' rows, as (epsilon, delta)-differential privacy.

`fald.guarantee` and `fedpaq.guarantee` are what the papers promise, as printed. `spent` is a metric for
Scenario(metrics=...), the accountant fed with the uploads that really began; its column is "epsilon".
`compare` sets the two side by side and says where they differ. An algorithm of your own joins in by offering
`mechanism(problem, sensitivity) -> Mechanism`, and `guarantee(problem) -> Guarantee` if it has a promise to print:
a run's manifest holds both, as `privacy`.

Where a paper's bound and the accountant differ:

- Private FedPAQ promises (epsilon, delta) of one client in one round and nothing of several. Rounds add up, and
  the accountant says to what.
- Its noise is made for a sensitivity of 4 eta E C, where 2 eta E C is enough: for one round the accountant finds a
  smaller epsilon than was promised.
- Its proof holds for epsilon <= 2 gamma only, which its own experiments (epsilon 1, gamma 0.2, delta 1e-4) break, and
  `valid` says so. The accountant has an answer there too: 0.36 a round, and 1.17 with sensitivity="tight".
- FA-LD's theorem speaks of a run before anybody is drawn. It gains a factor of about S / N from hiding who takes
  part, and loses by composing (epsilon, delta) pairs and by allowing small steps only. The accountant is told who
  took part, grants no such secret, and adds Renyi divergences; either may be smaller.
- Scheme I of that theorem charges (d0 / 1.25)^(1/s^2) for a client drawn s times, which is seldom a small delta.
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
