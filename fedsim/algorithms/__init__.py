"""Algorithms: one paper's algorithm, one file, in the paper's order.

An algorithm is a frozen dataclass with

    init(problem, initial) -> state          a dict of arrays, theta among them
    memory(problem) -> dict                  what a client remembers from visit to visit, at first (optional)
    broadcast(state) -> dict                 what goes down
    work(job) -> float                       local steps, known before computing: the clock multiplies them
    client(job, message, memory) -> (reply, memory)
    server(state, replies, rng) -> state

`fs.explain("job")` and `fs.explain("replies")` say what those two offer; `fs.testing.check` runs the contract suite on
anyone's algorithm. Codes such as (A5) in the docstrings: `fs.explain("A5")`. `sampler = True` says that its
iterates are samples of a law: predictions are then judged averaged over the samples kept, otherwise (also where nothing
is said) those of the current theta.
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
