"""The weight of each reply in an average: one function per policy, one per exchange.

p are the clients' weights among those of the site (n_c over the site's rows), n the number of the site's clients.
"""

from __future__ import annotations

import math
from itertools import combinations, product

import networkx as nx
import numpy as np

from oracles.draws import Address

# --- Policies: what `mean` of a sampler uses ------------------------------------------------------------------------


def by_p(p: np.ndarray) -> np.ndarray:
    """full, bernoulli, first, deadline, buffered, uniform normalised: p_c over the received."""
    return p / p.sum()


def by_count(received: int) -> np.ndarray:
    """uniform: the same for all that were received."""
    return np.full(received, 1 / received)


def by_draws(multiplicity: np.ndarray) -> np.ndarray:
    """with_replacement: how often each was drawn."""
    return multiplicity / multiplicity.sum()


def scaled(p: np.ndarray, n: int) -> np.ndarray:
    """uniform scaled: p_c N / received, unbiased though its sum is not 1."""
    return p * n / len(p)


def policy_weights(
    rule: str, policy: str, received: list[Address], p: np.ndarray, multiplicity: np.ndarray
) -> np.ndarray:
    """`rule` is the algorithm's: "policy" (samplers), "sizes" (FedAvg family), "equal" (its scaled objective),
    "scheme" (P-FedAvg), "total" (QLSD: the sum over the received, scaled up to all clients)."""
    who = [a.client for a in received]
    n = int((p > 0).sum())
    if rule == "total":
        return np.full(len(who), n / len(who))
    if rule == "equal":
        return by_count(len(who))
    if policy == "with_replacement":
        return by_draws(multiplicity[who])
    if policy == "uniform" and rule == "policy":
        return by_count(len(who))
    if policy == "uniform scaled" or (policy == "uniform" and rule == "scheme"):
        return scaled(p[who], n)
    return by_p(p[who])


def chances(policy: str, asked: dict[str, int], sizes: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """A client's chance to be selected by its own edge, which has n_e clients and rows; 1 where all are asked."""
    n_e = np.bincount(groups)[groups]
    share = sizes / np.bincount(groups, sizes)[groups]
    if policy == "with_replacement":
        return 1 - (1 - share) ** asked["with_replacement"]
    if policy == "uniform":
        return asked["uniform"] / n_e
    return np.full(len(sizes), 0.6 if policy == "bernoulli" else 1.0)


def cohorts(
    policy: str, asked: dict[str, int], sizes: np.ndarray, groups: np.ndarray
) -> list[tuple[float, np.ndarray]]:
    """Every cohort that the edges may select in a round under uniform or with_replacement: its chance, a mask."""
    found = [(1.0, np.zeros(len(sizes), bool))]
    for edge in range(groups.max() + 1):
        own = np.flatnonzero(groups == edge).tolist()
        share = dict(zip(own, sizes[own] / sizes[own].sum(), strict=True))
        if policy == "uniform":
            subsets = list(combinations(own, asked["uniform"]))
            drawn = [(1 / len(subsets), subset) for subset in subsets]
        else:
            draws = product(own, repeat=asked["with_replacement"])
            drawn = [(math.prod(share[c] for c in draw), draw) for draw in draws]
        clients = np.arange(len(sizes))
        found = [(p * q, mask | np.isin(clients, some)) for p, mask in found for q, some in drawn]
    return found


# --- Exchanges -------------------------------------------------------------------------------------------------------


def in_group(p: np.ndarray, groups: np.ndarray, group: int) -> np.ndarray:
    """Tiers: p_c renormalised in the group, zero outside."""
    own = np.where(groups == group, p, 0.0)
    return own / own.sum()


def of_groups(p: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Tiers: what the cloud averages by."""
    return np.array([p[groups == g].sum() for g in range(groups.max() + 1)])


def metropolis(graph: nx.Graph) -> np.ndarray:
    """Gossip: 1 / (1 + max(deg_i, deg_j)), the rest on the diagonal."""
    w = np.zeros((len(graph), len(graph)))
    for i, j in graph.edges:
        w[i, j] = w[j, i] = 1 / (1 + max(graph.degree[i], graph.degree[j]))
    return w + np.diag(1 - w.sum(axis=1))


def stationary(w: np.ndarray) -> np.ndarray:
    """pi with pi W = pi, by the linear system."""
    n = len(w)
    a = np.vstack([w.T - np.eye(n), np.ones(n)])
    return np.linalg.lstsq(a, np.append(np.zeros(n), 1.0), rcond=None)[0]


def mixing_row(w: np.ndarray, site: int, received: list[int]) -> np.ndarray:
    """Gossip: W's row over the received, the own reply among them; what is missing is the site's own."""
    row = np.where(np.isin(np.arange(len(w)), received), w[site], 0.0)
    row[site] += 1 - row.sum()
    return row[received]
