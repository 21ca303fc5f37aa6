"""Algorithms: one paper's algorithm, one file, in the paper's order.

An algorithm is a frozen dataclass with `init`, `memory`, `broadcast`, `work`, `client` and `server`; `fs.testing.check`
runs the contract suite on anyone's. `sampler = True` says that its iterates are samples of a law: predictions are then
judged averaged over the samples kept, otherwise (also where nothing is said) those of the current theta.
"""

from fedsim.algorithms.fahmc import FAHMC
from fedsim.algorithms.fald import FALD
from fedsim.algorithms.fedavg import FedAvg, distributed_sgd
from fedsim.algorithms.fedpaq import FedPAQ
from fedsim.algorithms.hmc import HMC
from fedsim.algorithms.mala import MALA
from fedsim.algorithms.pfedavg import PFedAvg
from fedsim.algorithms.private_fedpaq import PrivateFedPAQ
from fedsim.algorithms.qlsd import QLSD
from fedsim.algorithms.qlsd_plus_plus import QLSDPlusPlus
from fedsim.algorithms.qlsd_star import QLSDStar
from fedsim.algorithms.scaffold import Scaffold
from fedsim.algorithms.sgld import SGLD

__all__ = [
    "FAHMC",
    "FALD",
    "HMC",
    "MALA",
    "QLSD",
    "SGLD",
    "FedAvg",
    "FedPAQ",
    "PFedAvg",
    "PrivateFedPAQ",
    "QLSDPlusPlus",
    "QLSDStar",
    "Scaffold",
    "distributed_sgd",
]
