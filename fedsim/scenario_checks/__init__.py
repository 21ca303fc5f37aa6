"""Checks of a scenario when it is made: parts that are valid by themselves and do not fit together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim import metrics as metric_catalogue
from fedsim import text
from fedsim.checks import check_choice
from fedsim.errors import InvalidInput
from fedsim.exchanges import Gossip
from fedsim.problems import weights_of
from fedsim.protocols.participation import WEIGHTINGS
from fedsim.runtime.aggregation import Weighing
from fedsim.scenario_checks.activity import check_activity
from fedsim.text import short_repr

if TYPE_CHECKING:
    from fedsim.protocols import Policy
    from fedsim.scenario import Scenario


def check_population(scenario: Scenario) -> None:
    """Refuse parts that are made for another number of clients."""
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
    """Refuse an algorithm that is wrong under the policy's weights, or with replies that arrive late."""
    policy, clients, algorithm = scenario.parts.policy, scenario.problem.clients, type(scenario.algorithm).__name__
    remembers = bool(scenario.parts.algorithm.memory(scenario.problem))
    p = weights_of(scenario.problem)
    equal = bool(np.ptp(p) < 1e-12)
    if policy.weigh is None:
        where = f"{type(policy.wrapped).__name__}: weighting={{!r}}"
        check_choice(where, policy.weighting, (None, *WEIGHTINGS), f"choose one of {', '.join(WEIGHTINGS)}")
    is_argument = "weighting" in getattr(policy.wrapped, "__dataclass_fields__", {})
    if is_argument and policy.weighting is not None:
        check_weighting(scenario)
    if scenario.parts.algorithm.sampler and policy.weighting == "scaled":
        raise InvalidInput(
            f"{call_of(policy)} with {algorithm}: its weights do not sum to one, so that they multiply a sample by a "
            "random factor; choose weighting='normalised', or with_replacement()"
        )
    if scenario.parts.algorithm.visits_by_weight:
        check_visits(scenario, equal)
    if scenario.parts.algorithm.weighted and not equal and policy.weighting in (None, "uniform"):
        raise InvalidInput(
            f"{call_of(policy)} averages with 1/{policy.size or 'received'}, which is biased here because the "
            "clients' weights differ; choose weighting='normalised', or with_replacement()"
        )
    if scenario.parts.algorithm.weigh is not None:  # on all clients: refuses a policy that its weights do not fit
        weighing, ones = Weighing(policy, scenario.parts.algorithm, p, None, 1, 1), np.ones(clients, np.int64)
        weighing.weights(np.arange(clients), ones, np.array([0, clients]))
    if policy.asynchronous and policy.replies > clients and remembers:
        raise InvalidInput(
            f"participation.buffered({policy.replies}): clients of {algorithm} have memory, so each waits until its "
            f"reply is aggregated, and only {clients} exist; use at most {clients}"
        )
    if policy.discount is not None and remembers:
        raise InvalidInput(
            f"participation.buffered(discount=...): the server of {algorithm} adds up its clients' memory, which a "
            "discount would falsify; leave it out"
        )
    sites = scenario.sites
    check_activity(
        scenario.parts.algorithm, scenario.problem, policy, scenario.parts.devices, sites.share(p), sites.size
    )


def check_weighting(scenario: Scenario) -> None:
    """Refuse a `weighting` argument that the server does not use."""
    algorithm, name = scenario.parts.algorithm, type(scenario.algorithm).__name__
    policy = call_of(scenario.parts.policy)
    if algorithm.own_weights:
        raise InvalidInput(f"{policy} with {name}: its server does not use the policy's weights; leave weighting out")
    if algorithm.objective == "scaled":
        raise InvalidInput(
            f"{policy} with {name}(objective='scaled'): its server averages with 1/M and does not use the policy's "
            "weights; leave weighting out, or choose objective='mean'"
        )


def check_visits(scenario: Scenario, equal: bool) -> None:
    """Refuse visits that are not to client c with probability p_c, for algorithms that follow one client a round.

    Lost visits keep these probabilities only where all clients lose equally many, and either one client is visited at
    a time or all weights are equal (`equal`).
    """
    policy, devices, name = scenario.parts.policy, scenario.parts.devices, type(scenario.algorithm).__name__
    rule = f"{name} must visit client c with probability p_c"
    by_weight = policy.always or policy.weighting == "multiplicity" or (equal and policy.weighting is None)
    if not policy.waits or not by_weight:
        raise InvalidInput(f"{rule}, and {call_of(policy)} visits others; use with_replacement(1)")
    if devices is None or (devices.reliable and devices.always_available):
        return
    lost = devices.dropout_of(np.arange(scenario.problem.clients))
    same = devices.always_available and lost is not None and np.ptp(lost) == 0
    if not same or not (equal or policy.size == 1):
        raise InvalidInput(
            f"{rule}, which devices that go offline or lose visits do not keep; use devices that are always available "
            "and have one dropout for all, with with_replacement(1)"
        )


def call_of(policy: Policy) -> str:
    """Return a policy as the call of its factory: participation.uniform(10)."""
    return f"participation.{text.policy(policy.wrapped)}"


def check_broadcast_to(scenario: Scenario) -> None:
    """Refuse broadcasts to the selected clients alone if a message refers to earlier broadcasts."""
    earlier = set(scenario.parts.algorithm.known) - set(scenario.parts.algorithm.beforehand)
    if earlier and not scenario.broadcasts_to_all:
        raise InvalidInput(
            f"broadcast_to='selected': {type(scenario.algorithm).__name__} does not send {', '.join(sorted(earlier))}, "
            "which clients have from earlier broadcasts, and those not selected would have missed it; set "
            "broadcast_to='all'"
        )


def check_metrics(scenario: Scenario) -> None:
    """Refuse two metrics for one column."""
    columns = [column for metric in scenario.metrics for column in metric_catalogue.resolve(metric).columns]
    if twice := [column for column in dict.fromkeys(columns) if columns.count(column) > 1]:
        raise InvalidInput(
            f"two metrics fill the column {twice[0]!r}; leave one out, or give it another name= if it has one"
        )


def check_budget(scenario: Scenario) -> None:
    """Refuse a budget for what is not measured, and one that never ends the run."""
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
