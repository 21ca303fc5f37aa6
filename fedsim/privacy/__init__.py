"""What a run gives away about the clients' rows, as (epsilon, delta)-differential privacy.

`fald.guarantee` and `fedpaq.guarantee` are what the papers promise, as printed. `spent` is a metric for
Scenario(metrics=...), the accountant fed with the uploads that really began; its column is "epsilon".
`compare` sets the two side by side and says where they differ. An algorithm of your own joins in by offering
`mechanism(problem, sensitivity) -> Mechanism`.
"""

from __future__ import annotations

from fedsim.privacy import fald, fedpaq
from fedsim.privacy.guarantee import Guarantee
from fedsim.privacy.ledger import Ledger
from fedsim.privacy.metric import Comparison, Spent, compare, spent
from fedsim.privacy.rdp import Mechanism, epsilons

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
