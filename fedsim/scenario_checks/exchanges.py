"""Checks of the exchange: parts of a scenario that do not work over tiers or gossip."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedsim.errors import InvalidInput
from fedsim.exchanges import Gossip, TiersExchange
from fedsim.protocols import as_problem
from fedsim.rules.closing import WHEN_ALL_ENDED, Closing, counts_replies
from fedsim.rules.selection import ALL
from fedsim.scenario_checks import call_of

if TYPE_CHECKING:
    from fedsim.protocols import Policy
    from fedsim.scenario import Scenario


def check_graph(scenario: Scenario) -> None:
    """Refuse a gossip graph whose nodes are not the clients."""
    exchange, clients = scenario.exchange, as_problem(scenario.problem).clients
    if isinstance(exchange, Gossip) and exchange.sites != clients:
        raise InvalidInput(
            f"exchanges.gossip(graph): {exchange.sites} nodes for {clients} clients; give every client a node"
        )


def check_exchange(scenario: Scenario) -> None:
    """Refuse parts that do not work over the scenario's exchange."""
    if isinstance(scenario.exchange, Gossip):
        _check_gossip(scenario, scenario.exchange)
        return
    algorithm = scenario.parts.algorithm
    name = type(scenario.algorithm).__name__
    if algorithm.needs_gossip:
        raise InvalidInput(f"{name} has no server step: run it with exchange=fs.exchanges.gossip(graph)")
    if isinstance(scenario.exchange, TiersExchange):
        _check_tiers(scenario, scenario.exchange, name)


def _check_tiers(scenario: Scenario, exchange: TiersExchange, name: str) -> None:
    policy, algorithm = scenario.parts.policy, scenario.parts.algorithm
    if policy.asynchronous:
        raise InvalidInput(
            "participation.buffered over tiers: edges need synchronous rounds; use full(), uniform() or first()"
        )
    least = int(scenario.sites.size.min())
    size = None if policy.weighting == "multiplicity" else policy.size  # repeats count there
    for asked in (size, policy.at_least, policy.replies if policy.replies > 1 else None):
        if asked is not None and asked > least:
            raise InvalidInput(
                f"{call_of(policy)} selects {asked} clients at every edge, and an edge has only {least}; "
                f"use at most {least}"
            )
    if algorithm.sums:
        if exchange.every != 1:
            raise InvalidInput(
                f"exchanges.tiers(every={exchange.every}): {name} keeps its model at the cloud and needs every "
                "message there; set every=1"
            )
        most = int(scenario.sites.size.max())
        rule = closing_rule(policy)
        per_edge = policy.size is not None or (rule is not None and counts_replies(rule))
        if algorithm.activity is None and per_edge and most > least:
            raise InvalidInput(
                f"{call_of(policy)} over tiers with {name}: each edge selects the same number of its {least} to "
                f"{most} clients, so that those of small edges are received more often and count more; make edges of "
                "equal size, use full() or bernoulli(p), or QLSD(weighting='inverse', activity=...)"
            )
        return
    if not algorithm.averages and algorithm.merge is None:
        raise InvalidInput(
            f"{name} over tiers: an average of its edges' models is not what a star makes of the same replies; use "
            "a star, FALD or FedAvg"
        )
    edges, clients = scenario.sites.weights, np.bincount(scenario.sites.site_of)
    share = clients / clients.sum()
    if algorithm.objective == "scaled" and np.abs(edges - share).max() > 1e-12:
        e = int(np.argmax(np.abs(edges - share)))
        raise InvalidInput(
            f"{name}(objective='scaled') over tiers: edge {e} has {share[e]:.3g} of the clients and {edges[e]:.3g} of "
            "their weight, so that an average with 1/M there would count weights twice; choose objective='mean'"
        )
    state = algorithm.init(scenario.problem, np.array(scenario.start))
    if set(state) != {"theta"} and algorithm.merge is None:
        more = ", ".join(sorted(set(state) - {"theta"}))
        raise InvalidInput(
            f"{name} over tiers: its servers have {more} besides theta, and it has no rule for a cloud to merge "
            "them; give it merge(states, weights), or use FALD or FedAvg"
        )
    if policy.history and "loss" in algorithm.local_only and exchange.every > 1:
        raise InvalidInput(
            f"{type(policy.wrapped).__name__} reads losses, which are not available in time where edges run "
            "ahead of each other; set every=1"
        )


def _check_gossip(scenario: Scenario, exchange: Gossip) -> None:
    policy = scenario.parts.policy
    name = type(scenario.algorithm).__name__
    if not scenario.parts.algorithm.any_mixing and np.ptp(exchange.weights) > 1e-12:
        raise InvalidInput(
            f"{name} over gossip: the mixing counts client {int(np.argmax(exchange.weights))} more than others, and "
            f"{name} does not divide by job.weight; give a doubly stochastic mixing, or set any_mixing = True "
            "on a class that divides"
        )
    rule = closing_rule(policy)
    if rule is None:
        raise InvalidInput(
            f"{call_of(policy)} over gossip: no client is selected there; use full(), first(k) "
            "or deadline(seconds), which close a site's round over its neighbours"
        )
    if policy.size is not None or policy.at_least is not None:
        raise InvalidInput(
            f"{call_of(policy)} over gossip: a site waits for its neighbours; leave of= and at_least= out"
        )
    if scenario.broadcast_to is not None:
        raise InvalidInput(
            f"broadcast_to={scenario.broadcast_to!r} over gossip: nothing is broadcast there; leave it out"
        )
    devices = scenario.parts.devices
    losses = devices is not None and not (devices.reliable and devices.always_available)
    if scenario.parts.algorithm.lossless and (losses or rule.code != WHEN_ALL_ENDED):
        raise InvalidInput(
            f"{name} is wrong where a message is lost: use full() and devices that neither drop out nor go offline"
        )


def closing_rule(policy: Policy) -> Closing | None:
    """Return the rule by which a policy closes a round over all clients; None if it selects some of them."""
    columns = policy.to_columns()
    if columns is None or policy.asynchronous:
        return None
    selects = columns.selection != ALL and columns.closing.code == WHEN_ALL_ENDED
    return None if selects else columns.closing
