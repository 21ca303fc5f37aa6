"""What a scenario refuses when it is made: parts that are right by themselves and do not fit together."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim import metrics as metric_catalogue
from fedsim.checks import check_choice
from fedsim.errors import InvalidInput
from fedsim.exchanges import Gossip
from fedsim.problems import weights_of
from fedsim.protocols.participation import WEIGHTINGS
from fedsim.runtime.aggregation import Weighing
from fedsim.scenario_checks.chances import check_activity
from fedsim.text import short_repr

if TYPE_CHECKING:
    from fedsim.protocols import Policy
    from fedsim.scenario import Scenario


def check_population(scenario: Scenario) -> None:
    """Whether all parts know of the same clients."""
    parts, clients = scenario.parts, scenario.problem.clients
    if parts.devices is not None:
        parts.devices.check(clients)
    if parts.network is not None and parts.network.clients != clients:
        raise InvalidInput(f"the network has {parts.network.clients} clients, the problem {clients}; make them agree")
    if parts.network is not None and not parts.network.has_server and not isinstance(scenario.exchange, Gossip):
        raise InvalidInput(
            "the network has no server: mark its node with role='server', name it with fs.Network(server=...), or "
            "let clients gossip"
        )
    parts.policy.check(clients)
    sizes: Any = parts.algorithm.batch_size
    if np.ndim(sizes) == 1 and len(sizes) != clients:
        raise InvalidInput(f"{len(sizes)} batch sizes for {clients} clients; give one number or one per client")


def check_participation(scenario: Scenario) -> None:
    """Whether the algorithm is right under the policy's weights, and under replies that come late."""
    policy, clients, algorithm = scenario.parts.policy, scenario.problem.clients, type(scenario.algorithm).__name__
    remembers = bool(scenario.parts.algorithm.memory(scenario.problem))
    p = weights_of(scenario.problem)
    equal = bool(np.ptp(p) < 1e-12)
    if policy.weigh is None:
        where = f"{type(policy.wrapped).__name__}: weighting={{!r}}"
        check_choice(where, policy.weighting, (None, *WEIGHTINGS), f"choose one of {', '.join(WEIGHTINGS)}")
    asked = "weighting" in getattr(
        policy.wrapped, "__dataclass_fields__", {}
    )  # of its caller, not declared by its class
    if asked and policy.weighting is not None:
        check_weighting(scenario)
    if scenario.parts.algorithm.sampler and policy.weighting == "scaled":
        raise InvalidInput(
            f"{written(policy)} with {algorithm}: its weights do not sum to one, so that they multiply a sample by a "
            "random factor; choose weighting='normalised', or with_replacement()"
        )
    if scenario.parts.algorithm.visits_by_weight:
        check_visits(scenario, equal)
    if scenario.parts.algorithm.weighted and not equal and policy.weighting in (None, "uniform"):
        raise InvalidInput(
            f"{written(policy)} averages with 1/{policy.size or 'received'}, which is biased here because the "
            "clients' weights differ; choose weighting='normalised', or with_replacement()"
        )
    if scenario.parts.algorithm.weigh is not None:  # on all clients: refuses a policy that its weights do not fit
        weighing, ones = Weighing(policy, scenario.parts.algorithm, p, None, 1, 1), np.ones(clients, np.int64)
        weighing.weights(np.arange(clients), ones, np.array([0, clients]))
    if policy.asynchronous and policy.replies > clients and remembers:
        raise InvalidInput(
            f"participation.buffered({policy.replies}): clients of {algorithm} remember, so each waits until its reply "
            f"is aggregated, and only {clients} exist; ask for at most {clients}"
        )
    if policy.discount is not None and remembers:
        raise InvalidInput(
            f"participation.buffered(discount=...): {algorithm} adds up what its clients remember, which a "
            "discount would falsify; leave it out"
        )
    sites = scenario.sites
    check_activity(
        scenario.parts.algorithm, scenario.problem, policy, scenario.parts.devices, sites.share(p), sites.size
    )


def check_weighting(scenario: Scenario) -> None:
    """Whether the server uses the weights that the policy was asked for."""
    algorithm, name = scenario.parts.algorithm, type(scenario.algorithm).__name__
    asked = written(scenario.parts.policy)
    if algorithm.own_weights:
        raise InvalidInput(f"{asked} with {name}: its server does not use the policy's weights; leave weighting out")
    if algorithm.objective == "scaled":
        raise InvalidInput(
            f"{asked} with {name}(objective='scaled'): its server averages with 1/M and does not use the policy's "
            "weights; leave weighting out, or choose objective='mean'"
        )


def check_visits(scenario: Scenario, equal: bool) -> None:
    """Whether a round's visit is to client c with probability p_c, for algorithms that follow one client a round.

    Lost visits leave that so only where all clients lose as many, and either one is visited at a time or all weigh the
    same; `equal` says the latter.
    """
    policy, devices, name = scenario.parts.policy, scenario.parts.devices, type(scenario.algorithm).__name__
    rule = f"{name} must visit client c with probability p_c"
    by_weight = policy.always or policy.weighting == "multiplicity" or (equal and policy.weighting is None)
    if not policy.waits or not by_weight:
        raise InvalidInput(f"{rule}, and {written(policy)} visits others; use with_replacement(1)")
    if devices is None or (devices.reliable and devices.always_available):
        return
    lost = devices.dropout_of(np.arange(scenario.problem.clients))
    alike = devices.always_available and lost is not None and np.ptp(lost) == 0
    if not alike or not (equal or policy.size == 1):
        raise InvalidInput(
            f"{rule}, which devices that go offline or lose visits do not keep; use devices that are always available "
            "and have one dropout for all, with with_replacement(1)"
        )


def written(policy: Policy) -> str:
    """A policy as its factory is called, without arguments left at None."""
    own = policy.wrapped
    name = re.sub("(?<=[a-z])(?=[A-Z])", "_", type(own).__name__).lower()
    given = [(n, v) for n in getattr(own, "__dataclass_fields__", {}) if (v := getattr(own, n)) is not None]
    said = [
        short_repr(v) if i == 0 else f"{'of' if n == 'size' else n}={short_repr(v)}" for i, (n, v) in enumerate(given)
    ]
    return f"participation.{name}({', '.join(said)})"


def check_broadcast_to(scenario: Scenario) -> None:
    """What is known from an earlier broadcast must have reached everybody; what was so beforehand need not."""
    heard = set(scenario.parts.algorithm.known) - set(scenario.parts.algorithm.beforehand)
    if heard and not scenario.broadcasts_to_all:
        raise InvalidInput(
            f"broadcast_to='selected': {type(scenario.algorithm).__name__} does not send "
            f"{', '.join(sorted(heard))}, which "
            "clients know from earlier broadcasts, and those not selected would have missed it; set broadcast_to='all'"
        )


def check_metrics(scenario: Scenario) -> None:
    """Whether every column has one metric."""
    columns = [column for metric in scenario.metrics for column in metric_catalogue.resolve(metric).columns]
    if twice := [column for column in dict.fromkeys(columns) if columns.count(column) > 1]:
        raise InvalidInput(
            f"two metrics fill the column {twice[0]!r}; leave one out, or give it another name= if it has one"
        )


def check_budget(scenario: Scenario) -> None:
    """Whether what it limits is measured, and something ends the run."""
    b = scenario.budget
    columns = {column for m in scenario.metrics for column in metric_catalogue.resolve(m).columns}
    if b.epsilon is not None and "epsilon" not in columns:
        raise InvalidInput(
            "Budget(epsilon=...): add metrics=(fs.privacy.spent(delta=1e-5),) so that it is accounted for"
        )
    if b.target is not None and b.target.metric not in columns:
        name = short_repr(b.target.metric)
        raise InvalidInput(f"Budget(target on {name}): add metrics=({name},) so that it is evaluated")
    counts_bits = any(x is not None for x in (b.uplink_bits, b.downlink_bits, b.backhaul_bits, b.total_bits))
    takes_time = scenario.network is not None or scenario.devices is not None
    if b.rounds is None and not counts_bits and not (takes_time and b.seconds is not None):
        raise InvalidInput("this scenario could run for ever: rounds take no time; add rounds= to the Budget")
