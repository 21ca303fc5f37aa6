"""Algorithms: one paper's algorithm, one file, in the paper's order.

An algorithm is a frozen dataclass with `init`, `memory`, `broadcast`, `work`, `client` and `server`; `fs.testing.check` runs
the contract suite on anyone's.
"""

from fedsim.algorithms.fahmc import FAHMC
from fedsim.algorithms.fald import FALD

__all__ = ["FAHMC", "FALD"]
