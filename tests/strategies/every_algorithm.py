"""One of every algorithm with a server, its problem, and a short run of it over some of the clients."""

from __future__ import annotations

import fedsim as fs
from fedsim import algorithms, participation
from fedsim.codecs import QSGD
from fedsim.problems import GaussianMean, PerformativeMean, pooled

CLIENTS, D = 6, 3
EQUAL = GaussianMean.synthetic(clients=CLIENTS, dim=D, heterogeneity=2.0, samples=12, seed=5)
UNEQUAL = GaussianMean.synthetic(clients=CLIENTS, dim=D, heterogeneity=2.0, samples=(4, 8, 12, 10, 6, 20), seed=5)
WHOLE = pooled(EQUAL)
REACTING = PerformativeMean((2.0, 4.0, 7.0, 3.0, 9.0, 5.0), (0.1, 0.9, 0.4, 1.2, 0.3, 0.1), 0.8)
EVERY = {  # at least one of each kind in fs.algorithms, with memory, minibatches and a real wire where it has them
    "FALD": (algorithms.FALD(1e-3, local_steps=2, correlation=0.5, batch_size=4), EQUAL),
    "FAHMC": (algorithms.FAHMC(1e-2, leapfrog_steps=3, local_steps=2, correlation=0.5), EQUAL),
    "FAHMC, de-biased": (
        algorithms.FAHMC(1e-2, leapfrog_steps=3, local_steps=2, correlation=0.5, debias="stale", batch_size=4),
        EQUAL,
    ),
    "QLSD": (algorithms.QLSD(1e-3, batch_size=4, codec=QSGD(4)), EQUAL),
    "QLSDStar": (algorithms.QLSDStar(1e-3, batch_size=4, codec=QSGD(4)), EQUAL),
    "QLSDPlusPlus": (algorithms.QLSDPlusPlus(1e-3, refresh_every=2, batch_size=4, codec=QSGD(4)), EQUAL),
    "FedAvg": (algorithms.FedAvg(0.1, local_steps=2, batch_size=4), EQUAL),
    "distributed_sgd": (algorithms.distributed_sgd(0.1, batch_size=4), EQUAL),
    "FedPAQ": (algorithms.FedPAQ(0.1, local_steps=2, batch_size=4), EQUAL),
    "PrivateFedPAQ": (
        algorithms.PrivateFedPAQ(0.1, local_steps=2, clip=1.0, epsilon=1.0, delta=1e-4, batch_size=2),
        EQUAL,
    ),
    "Scaffold": (algorithms.Scaffold(0.1, local_steps=2, batch_size=4), EQUAL),
    "FedProx": (
        algorithms.FedProx(
            0.1, local_steps=(3, 1, 2, 2, 1, 3), proximal=0.5, batch_size=4, momentum=0.5, weight_decay=0.01
        ),
        EQUAL,
    ),
    "FedNova": (algorithms.FedNova(0.1, local_steps=(3, 1, 2, 2, 1, 3), batch_size=4, momentum=0.5), EQUAL),
    "FedDyn": (algorithms.FedDyn(0.1, local_steps=2, regularity=0.5, batch_size=4), EQUAL),
    "FedAdam": (algorithms.FedAdam(0.1, local_steps=2, server_step=0.1, batch_size=4), EQUAL),
    "FedYogi": (algorithms.FedYogi(0.1, local_steps=2, server_step=0.1, batch_size=4), EQUAL),
    "FedAdagrad": (algorithms.FedAdagrad(0.1, local_steps=2, server_step=0.1, batch_size=4, momentum=0.5), EQUAL),
    "FedBE": (algorithms.FedBE(0.1, local_steps=2, members=3, batch_size=4), EQUAL),
    "FedBE, Dirichlet": (algorithms.FedBE(0.1, local_steps=2, members=3, law="dirichlet"), EQUAL),
    "DGSGLD": (algorithms.DGSGLD(1e-3, coupling=(0.1, 0.2, 0.1, 0.3, 0.1, 0.2), local_steps=2, batch_size=4), EQUAL),
    "FSGLD": (algorithms.FSGLD.laplace(EQUAL, step_size=1e-3, local_steps=2, batch_size=4), EQUAL),
    "PSGLD": (algorithms.PSGLD(1e-3, local_steps=2, batch_size=4, damping=1e-2), WHOLE),
    "PFedAvg": (algorithms.PFedAvg(0.1, local_steps=2), REACTING),
    "SGLD": (algorithms.SGLD(1e-3, local_steps=2, batch_size=4), WHOLE),
    "MALA": (algorithms.MALA(1e-2, local_steps=2), WHOLE),
    "HMC": (algorithms.HMC(5e-2, leapfrog_steps=3, local_steps=2), WHOLE),
}
SINGLE = ("SGLD", "MALA", "HMC", "PSGLD")  # one machine


def scenario(name, rounds=6, problem=None, **more):
    algorithm, own = EVERY[name]
    more = {"replicas": 2, "seed": 3, "participation": part(name)} | more
    return fs.Scenario(problem=problem or own, algorithm=algorithm, budget=fs.Budget(rounds=rounds), **more)


def part(name):
    """Some of the clients, other ones in every round."""
    return participation.bernoulli(0.6) if name in SINGLE else participation.uniform(4)
