"""What policies, devices and codecs promise."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsim import rng
from fedsim.budget import Budget
from fedsim.protocols import Codec, ProblemLike
from fedsim.running import run
from fedsim.scenario import Scenario
from fedsim.testing.promises import JOBS, Promises


def check_policy(policy: Any, problem: ProblemLike) -> list[str]:
    from fedsim.algorithms import FALD

    def scenario(replicas: Any) -> Scenario:
        return Scenario(
            problem=problem, algorithm=FALD(step_size=1e-3), budget=Budget(rounds=4), replicas=replicas,
            participation=policy, seed=2,
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
    return promise.kept


def check_devices(devices: Any) -> list[str]:
    clients, work, now = np.arange(JOBS), np.ones(JOBS), np.zeros(JOBS)

    def draws(chosen: Any) -> rng.Draws:
        return rng.Draws(rng.keys(4, rng.Stream.COMPUTE, client=np.atleast_1d(clients[chosen])))

    whole = devices.compute_s(clients, work, now, draws(slice(None)))
    ones = [devices.compute_s(clients[i : i + 1], work[:1], now[:1], draws(slice(i, i + 1)))[0] for i in range(JOBS)]
    promise = Promises(devices)
    bad = np.flatnonzero(~(np.isfinite(whole) & (np.asarray(whole) >= 0)))
    promise(
        "compute times are finite and not negative", not len(bad),
        f"a compute time is {np.asarray(whole)[bad[:1]]}; they must be finite and not negative",
    )  # fmt: skip
    promise(
        "a visit does not depend on its neighbours", np.array_equal(whole, ones),
        "a visit depends on its neighbours: asked alone, a client takes another time than in company",
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
