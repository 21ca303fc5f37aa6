"""What policies, devices and codecs promise."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsim import rng
from fedsim.budget import Budget
from fedsim.devices import lognormal
from fedsim.errors import InvalidInput
from fedsim.protocols import Codec, DevicesLike, PolicyLike, ProblemLike, as_devices, as_policy
from fedsim.results import Result
from fedsim.running import run
from fedsim.scenario import Scenario
from fedsim.testing.promises import JOBS, Promises
from fedsim.topologies import star


def check_policy(policy: PolicyLike, problem: ProblemLike) -> list[str]:
    from fedsim.algorithms import FALD

    def scenario(replicas: int | range, **parts: Any) -> Scenario:
        return Scenario(
            problem=problem, algorithm=FALD(step_size=1e-3), budget=Budget(rounds=4), replicas=replicas,
            participation=policy, seed=2, **parts,
        )  # fmt: skip

    whole, again, one = run(scenario(3)), run(scenario(3)), run(scenario(range(2, 3)))
    promise = Promises(policy)
    promise(
        "replay is exact", whole.fingerprint == again.fingerprint,
        "replay is not exact: the same scenario ran twice and differed; draw from rng, keep nothing between calls",
    )  # fmt: skip
    alone = whole.rounds[whole.rounds.replica == 2].reset_index(drop=True).equals(one.rounds)
    promise(
        "a replica alone is the replica among others", alone,
        "a replica alone is not the replica among others: replica 2 of 3 has other rounds when it runs by itself",
    )  # fmt: skip
    if as_policy(policy).batched:  # on the compiled clock `select` serves all replicas in one call
        away = {"network": star(problem.clients, 1e5, 1e5, 0.01), "devices": lognormal(0.1, 1.0, dropout=0.2)}
        slow, quick = run(scenario(3, **away), clock="simpy"), _compiled(scenario(3, **away))
        columns = ["closed_s", "selected", "arrived", "dropped", "late", "uplink_bits"]
        promise(
            "both clocks give the same rounds", quick is None or quick.rounds[columns].equals(slow.rounds[columns]),
            "rounds differ between clocks: `select` of all replicas in one call, or `waits`, disagrees with what "
            "`select` and `close` answer for one replica; mend them, or leave `batched` and `waits` out",
        )  # fmt: skip
    return promise.kept


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

    def draws(chosen: slice) -> rng.Draws:
        return rng.Draws(rng.keys(4, rng.Stream.COMPUTE, client=np.atleast_1d(clients[chosen])))

    whole = devices.compute_s(clients, work, now, draws(slice(None)))
    ones = [devices.compute_s(clients[i : i + 1], work[:1], now[:1], draws(slice(i, i + 1)))[0] for i in range(JOBS)]
    promise = Promises(own)
    bad = np.flatnonzero(~(np.isfinite(whole) & (np.asarray(whole) >= 0)))
    promise(
        "compute times are finite and not negative", not len(bad),
        f"a compute time is {np.asarray(whole)[bad[:1]]}; they must be finite and not negative",
    )  # fmt: skip
    promise(
        "a visit does not depend on its neighbours", np.array_equal(whole, ones),
        "a visit depends on its neighbours: asked alone, a client takes another time than in company",
    )  # fmt: skip
    if not devices.reliable:
        phase, far = map(np.asarray, devices.drop(clients, now, draws(slice(None))))
        fits = phase.shape == far.shape == clients.shape and bool(((far >= 0) & (far <= 1)).all())
        fits = fits and set(phase.tolist()) <= {0, 1, 2, 3}
        promise(
            "visits break off in a phase from 0 to 3, at a fraction of it", fits,
            f"drop gave the phases {phase[:3]} and the fractions {far[:3]}; give one of each per visit, phases 0 "
            "(none), 1 (before), 2 (compute) or 3 (upload), and fractions from 0 to 1",
        )  # fmt: skip
    if not devices.always_available:
        on_s = np.asarray(devices.next_available(clients, now, draws(slice(None))))
        promise(
            "nobody comes on in the past", on_s.shape == now.shape and bool((on_s >= now).all()),
            f"next_available gave {on_s[:3]} at 0 s; give now_s for whoever is on, else when it comes on",
        )  # fmt: skip
    return promise.kept


def check_codec(codec: Codec) -> list[str]:
    values = rng.normal(rng.keys(6, rng.Stream.USER, client=np.arange(5)), 13)
    key = rng.keys(6, rng.Stream.CODEC, client=np.arange(5))
    decoded, bits = codec.quantise(values, key)
    wire = [codec.encode(v, k) for v, k in zip(values, key, strict=True)]
    promise = Promises(codec)
    promise(
        "the batch's values are those that the bytes decode to",
        all(np.array_equal(codec.decode(w, 13), d) for w, d in zip(wire, decoded, strict=True)),
        "the batch's values are not those that the bytes decode to: quantise and decode(encode) disagree",
    )
    promise(
        "bits count the bytes, less padding",
        all(0 <= 8 * len(w) - b < 8 for w, b in zip(wire, bits, strict=True)),
        f"bits do not count the bytes: {[8 * len(w) for w in wire]} were sent, {np.asarray(bits).tolist()} counted",
    )
    return promise.kept
