"""The papers' figures and claims.

A figure file (`scenarios/papers/<paper>/<figure>.py`) is a scenario file with these additional names:

    quick = {"local_steps": [1, 10], "replicas": 100}   # settings; a list is an axis of the grid
    full = {"local_steps": [1, 10, 100, 1000], "replicas": 300}
    needs = ("mnist", "torch")                          # optional: data sets, or torch, that the runs need
    claims = [Claim("sentence", judge, published="...", why="...")]
    def figure(study): ...                              # the paper's figure, by `plots`; or
    def table(study): ...                               # the paper's table, as a list of rows {column: value}
"""

from fedsim.reproduce import plots
from fedsim.reproduce.claims import Claim, Figure, Finding, available, bootstrap, end, figures, pick, spread, system
from fedsim.reproduce.run import reproduce

__all__ = [
    "Claim",
    "Figure",
    "Finding",
    "available",
    "bootstrap",
    "end",
    "figures",
    "pick",
    "plots",
    "reproduce",
    "spread",
    "system",
]
