"""The contracts of policies, devices, codecs and networks."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np

from fedsim import rng
from fedsim.algorithms import FALD
from fedsim.arrays import Array
from fedsim.budget import Budget
from fedsim.devices import lognormal
from fedsim.errors import FedsimError, InvalidInput
from fedsim.network.finishing import finish_times
from fedsim.network.varying import Varying
from fedsim.protocols import (
    AlgorithmLike,
    Codec,
    DevicesLike,
    NetworkLike,
    NetworkModel,
    PolicyLike,
    ProblemLike,
    as_devices,
    as_network,
    as_policy,
)
from fedsim.results import Result
from fedsim.running import run
from fedsim.scenario import Scenario
from fedsim.testing.contract import JOBS, Contract
from fedsim.testing.small_problems import ReportsLoss, small_problem
from fedsim.topologies import star

POPULATIONS = (7, 28, 112, 448)  # clients among which a policy is tested: the first of which it selects only some


def check_policy(policy: PolicyLike, given: ProblemLike | None = None) -> list[str]:
    problem, algorithm = _suited(policy, given)

    def scenario(replicas: int | range, **parts: Any) -> Scenario:
        return _scenario_of(policy, problem, algorithm, replicas, **parts)

    full_run, again, one = run(scenario(3)), run(scenario(3)), run(scenario(range(2, 3)))
    require = Contract(policy)
    require(
        "replay is exact", full_run.fingerprint == again.fingerprint,
        "replay is not exact: the same scenario ran twice and differed; draw from rng, store nothing between calls",
    )  # fmt: skip
    alone = full_run.rounds[full_run.rounds.replica == 2].reset_index(drop=True).equals(one.rounds)
    require(
        "a replica alone is the replica among others", alone,
        "a replica alone is not the replica among others: replica 2 of 3 has other rounds when it runs by itself",
    )  # fmt: skip
    if as_policy(policy).batched:  # on the compiled clock `select` serves all replicas in one call
        away = {
            "network": star(problem.clients, uplink_bps=1e5, downlink_bps=1e5, latency_s=0.01),
            "devices": lognormal(0.1, sigma=1.0, dropout=0.2),
        }
        slow, quick = run(scenario(3, **away), clock="simpy"), _compiled(scenario(3, **away))
        columns = ["closed_s", "selected", "arrived", "dropped", "late", "uplink_bits"]
        require(
            "both clocks give the same rounds", quick is None or quick.rounds[columns].equals(slow.rounds[columns]),
            "rounds differ between clocks: `select` of all replicas in one call, or `waits`, disagrees with what "
            "`select` and `close` return for one replica; correct them, or omit `batched` and `waits`",
        )  # fmt: skip
    return require.held


def _scenario_of(
    policy: PolicyLike, problem: ProblemLike, algorithm: AlgorithmLike, replicas: int | range, **parts: Any
) -> Scenario:  # fmt: skip
    return Scenario(
        problem=problem, algorithm=algorithm, budget=Budget(rounds=4), replicas=replicas, participation=policy,
        seed=2, **parts,
    )  # fmt: skip


def _suited(policy: PolicyLike, given: ProblemLike | None) -> tuple[ProblemLike, AlgorithmLike]:
    """Return a problem of which the policy does not select all clients, so that its choices show, and an algorithm.

    The algorithm reports losses if the policy reads them.
    """
    problems = (small_problem(clients) for clients in POPULATIONS) if given is None else iter([given])
    algorithm: AlgorithmLike = FALD(step_size=1e-3)
    failure: FedsimError | None = None
    for problem in problems:
        try:
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                selected = run(_scenario_of(policy, problem, algorithm, 1)).rounds.selected
        except FedsimError as error:  # it selects more clients than there are
            failure = error
            continue
        if any("view.last" in str(one.message) for one in told):
            algorithm = ReportsLoss()
        failure = None
        if selected.max() < problem.clients:
            break
    if failure is not None:
        raise failure
    return problem, algorithm


def _compiled(scenario: Scenario) -> Result | None:
    """Run a scenario on the compiled clock; return None where that clock cannot serve it."""
    try:
        return run(scenario, clock="compiled")
    except InvalidInput as error:
        if "cannot serve" in str(error):
            return None
        raise


def check_devices(own: DevicesLike) -> list[str]:
    clients, work, now, devices = np.arange(JOBS), np.ones(JOBS), np.zeros(JOBS), as_devices(own)
    bare: Any = own  # its answers are not checked on the way

    def draws(chosen: slice) -> rng.Draws:
        return rng.Draws(rng.keys(4, rng.Stream.COMPUTE, client=np.atleast_1d(clients[chosen])))

    def answers(at_s: Array) -> list[Any]:
        """Return what the devices answer about visits at these times, whatever was asked before."""
        names = ["drop"] * (not devices.reliable) + ["next_available", "available_until"] * (
            not devices.always_available
        )
        found = [np.asarray(bare.compute_s(clients, work, at_s, draws(slice(None))))]
        return found + [np.asarray(getattr(bare, name)(clients, at_s, draws(slice(None)))) for name in names]

    require = Contract(own)
    first, later, again, later_again = (answers(at_s) for at_s in (now, now + 1e6, now, now + 1e6))
    batch = first[0]
    bad = np.flatnonzero(~(np.isfinite(batch) & (batch >= 0)))
    require(
        "compute times are finite and not negative", not len(bad),
        f"a compute time is {batch[bad[:1]]}; they must be finite and not negative",
    )  # fmt: skip
    require(
        "replay is exact", all(map(np.array_equal, first + later, again + later_again)),
        "replay is not exact: the same visits asked twice gave other answers; draw from rng, store nothing between "
        "calls",
    )  # fmt: skip
    ones = [bare.compute_s(clients[i : i + 1], work[:1], now[:1], draws(slice(i, i + 1)))[0] for i in range(JOBS)]
    require(
        "a visit does not depend on its neighbours", np.array_equal(batch, ones),
        "a visit depends on its neighbours: the compute time of a client alone differs from that in a batch",
    )  # fmt: skip
    if not devices.reliable:
        phase, far = map(np.asarray, bare.drop(clients, now, draws(slice(None))))
        fits = phase.shape == far.shape == clients.shape and bool(((far >= 0) & (far <= 1)).all())
        fits = fits and set(phase.tolist()) <= {0, 1, 2, 3}
        require(
            "visits drop out in a phase from 0 to 3, at a fraction of it", fits,
            f"drop gave the phases {phase[:3]} and the fractions {far[:3]}; give one of each per visit, phases 0 "
            "(none), 1 (before), 2 (compute) or 3 (upload), and fractions from 0 to 1",
        )  # fmt: skip
    if not devices.always_available:
        on_s = np.asarray(bare.next_available(clients, now, draws(slice(None))))
        require(
            "no client comes online in the past", on_s.shape == now.shape and bool((on_s >= now).all()),
            f"next_available gave {on_s[:3]} at 0 s; return now_s for online clients, else when they come online",
        )  # fmt: skip
    return require.held


def check_codec(codec: Codec) -> list[str]:
    values = rng.normal(rng.keys(6, rng.Stream.USER, client=np.arange(5)), 13)
    key = rng.keys(6, rng.Stream.CODEC, client=np.arange(5))
    decoded, bits = codec.quantise(values, key)
    wire = [codec.encode(v, k) for v, k in zip(values, key, strict=True)]
    require = Contract(codec)
    require(
        "the batch's values are those that the bytes decode to",
        all(np.array_equal(codec.decode(w, 13), d) for w, d in zip(wire, decoded, strict=True)),
        "the batch's values are not those that the bytes decode to: quantise and decode(encode) disagree",
    )
    require(
        "bits count the bytes without padding",
        all(0 <= 8 * len(w) - b < 8 for w, b in zip(wire, bits, strict=True)),
        f"bits do not count the bytes: {[8 * len(w) for w in wire]} were sent, {np.asarray(bits).tolist()} counted",
    )
    return require.held


FEW = 50  # clients whose routes are tested, spread over all of them
BITS = 1e6


def check_network(network: NetworkLike) -> list[str]:
    require = Contract(network)
    for text, holds in promises(as_network(network)).items():
        require(text, holds, f"this does not hold: {text}")
    return require.held


def promises(network: NetworkModel) -> dict[str, bool]:
    """Return every requirement, and whether it holds for this network."""
    n = network.clients
    held: dict[str, bool] = {"it has at least one client": n >= 1}
    for upward, way in ((True, "up"), (False, "down")):
        delay, factor, least = (
            np.asarray(ask(upward), float) for ask in (network.delay_s, network.loss_factor, network.bottleneck_bps)
        )
        shaped = delay.shape == factor.shape == least.shape == (n,)
        held[f"delay_s, loss_factor and bottleneck_bps {way} are one number per client"] = shaped
        if not shaped:
            return held
        held[f"latencies {way} are finite and not negative"] = bool(np.isfinite(delay).all() and (delay >= 0).all())
        held[f"loss only lengthens transfers {way}"] = bool(np.isfinite(factor).all() and (factor >= 1).all())
        held[f"every route {way} has a bandwidth above zero"] = bool((least > 0).all())
        held[f"repeated calls give the same {way}"] = np.array_equal(least, network.bottleneck_bps(upward))
        if network.contended or network.varying:
            held |= _routes(network, upward, way, least)
    return held


def _routes(network: NetworkModel, upward: bool, way: str, least: Array) -> dict[str, bool]:
    capacities = np.asarray(network.capacities_bps, float)
    asked = np.unique(np.linspace(0, network.clients - 1, min(FEW, network.clients)).astype(int))
    routes = [np.asarray(network.route(int(c), upward), int) for c in asked]
    known = all(((links >= 0) & (links < len(capacities))).all() for links in routes)
    held = {f"routes {way} use links that capacities_bps has": bool(known)}
    if not known:
        return held
    narrow = np.array([capacities[links].min(initial=np.inf) for links in routes])
    held[f"bottleneck_bps {way} is the least capacity on the route"] = np.array_equal(narrow, least[asked])
    given = [network.varying.get(link, bps) for link, bps in enumerate(capacities.tolist())]
    ends = [float(finish_times(given, [links.tolist()], [BITS], [0.0])[0]) if len(links) else 0.0 for links in routes]
    steady = np.array([not any(int(link) in network.varying for link in links) for links in routes], bool)
    alone = np.allclose(np.array(ends)[steady], (BITS / narrow)[steady])
    held[f"a transfer alone {way} takes its bits over the bottleneck"] = bool(alone)
    passed = [_passed(links.tolist(), given, end) for links, end in zip(routes, ends, strict=True) if len(links)]
    varied = np.array([end > 0 for end, links in zip(ends, routes, strict=True) if len(links)], bool)
    held[f"a transfer alone {way} ends when its bits have passed, also where bandwidths vary"] = bool(
        np.allclose(np.array(passed)[varied], BITS)
    )
    return held


def _passed(links: list[int], given: list[Any], end_s: float) -> float:
    """Return the bits that the slowest of these links transfers until a time, summed over the steps."""
    changes = {0.0, end_s}
    for link in links:
        if isinstance(given[link], Varying):
            changes |= {time for time, _ in itertools.takewhile(lambda step: step[0] < end_s, given[link].steps(0.0))}
    total = 0.0
    for begin, end in itertools.pairwise(sorted(changes)):
        widths = [given[k].at(begin) if isinstance(given[k], Varying) else given[k] for k in links]
        total += min(widths) * (end - begin)
    return total
