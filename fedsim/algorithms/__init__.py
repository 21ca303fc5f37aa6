"""Algorithms: one paper's algorithm, one file, in the paper's order.

An algorithm is a frozen dataclass with

    init(problem, initial) -> state          a dict of arrays, theta among them
    memory(problem) -> dict                  a client's memory before its first visit (optional)
    broadcast(state) -> dict                 the message to the clients
    work(job) -> float                       local steps, known before computing, for the clock
    client(job, message, memory) -> (reply, memory)
    server(state, replies, rng) -> state

`fs.explain("job")` and `fs.explain("replies")` document those two, `fs.protocols` has their types, and
`fs.testing.check` runs the contract suite on an algorithm of your own. `fs.explain("A5")` explains a code such as (A5)
in a docstring. `sampler = True` marks iterates that are samples: predictions are then averaged over the recorded
samples; otherwise they are those of the current theta. All arguments but the first are by keyword.
"""

from fedsim.algorithms.desgld import DESGLD
from fedsim.algorithms.dgsgld import DGSGLD
from fedsim.algorithms.diging_sgld import DIGingSGLD
from fedsim.algorithms.fahmc import FAHMC
from fedsim.algorithms.fald import FALD
from fedsim.algorithms.fedavg import FedAvg, distributed_sgd
from fedsim.algorithms.fedbe import FedBE
from fedsim.algorithms.feddyn import FedDyn
from fedsim.algorithms.fednova import FedNova
from fedsim.algorithms.fedopt import FedAdagrad, FedAdam, FedYogi
from fedsim.algorithms.fedpaq import FedPAQ
from fedsim.algorithms.fedprox import FedProx
from fedsim.algorithms.fsgld import FSGLD
from fedsim.algorithms.hmc import HMC
from fedsim.algorithms.mala import MALA
from fedsim.algorithms.pfedavg import PFedAvg
from fedsim.algorithms.private_fedpaq import PrivateFedPAQ
from fedsim.algorithms.psgld import PSGLD
from fedsim.algorithms.qlsd import QLSD
from fedsim.algorithms.qlsd_plus_plus import QLSDPlusPlus
from fedsim.algorithms.qlsd_star import QLSDStar
from fedsim.algorithms.scaffold import Scaffold
from fedsim.algorithms.sgld import SGLD

__all__ = [
    "DESGLD",
    "DGSGLD",
    "FAHMC",
    "FALD",
    "FSGLD",
    "HMC",
    "MALA",
    "PSGLD",
    "QLSD",
    "SGLD",
    "DIGingSGLD",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedBE",
    "FedDyn",
    "FedNova",
    "FedPAQ",
    "FedProx",
    "FedYogi",
    "PFedAvg",
    "PrivateFedPAQ",
    "QLSDPlusPlus",
    "QLSDStar",
    "Scaffold",
    "distributed_sgd",
]
