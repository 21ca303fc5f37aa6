"""Scalar draws have the addresses and the bits of `fedsim.rng`, and the laws of availability those of the devices."""

from __future__ import annotations

import numpy as np
import pytest

import fedsim as fs
from fedsim import rng
from fedsim.kernels import cpu
from fedsim.kernels.reference import exp as exp_reference
from fedsim.rng.elementary import log64
from fedsim.rules import availability, draws
from fedsim.rules.availability import OnlineLaw
from fedsim.rules.draws import Key

SEEDS = (0, 1, 12345678901234567890, 2**64 - 1)
ADDRESSES = [(0, 0, 0, 0), (3, 2**32 - 1, 7, 1), (2**32 - 1, 5, 2**31, 2**24 - 1)]  # replica, client, round, visit


def keys(seed, stream, replica, client, round, visit):
    reference = rng.keys(seed, stream, replica=replica, client=client, round=round, visit=visit)
    ours = draws.key_of(seed & 0xFFFFFFFF, seed >> 32, int(stream), replica, client, round, visit)
    assert ours == tuple(reference[0].tolist())
    return reference, ours


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("address", ADDRESSES)
def test_scalar_draws_have_the_bits_of_rng(seed, address) -> None:
    for stream in (rng.Stream.SELECT, rng.Stream.COMPUTE, rng.Stream.TIE):
        reference, ours = keys(seed, stream, *address)
        for step in (0, 1, 9):
            assert draws.uniform(ours, step) == rng.uniform(reference, 1, step)[0, 0]
            lanes = rng.uniform(reference, 7, step)[0]
            assert [draws.uniform_at(ours, lane, step) for lane in range(7)] == lanes.tolist()
            for below in (1, 2, 1000, 2**31 - 1):
                drawn = rng.integers(reference, 5, below, step)[0]
                assert [draws.index_below(ours, lane, step, below) for lane in range(5)] == drawn.tolist()
        assert draws.normal(ours) == rng.normal(reference, 1)[0, 0]


def test_the_elementary_functions_have_the_bits_of_the_reference() -> None:
    u = rng.uniform(rng.keys(1, rng.Stream.USER), 3000)[0]
    assert [draws.log(x) for x in u.tolist()] == log64(u).tolist()
    x = np.concatenate([(u - 0.5) * 1500.0, (u - 0.5) * 2.0, [0.0, -0.0, np.inf, -np.inf]])
    assert [draws.exp(v) for v in x.tolist()] == exp_reference(x).tolist()


@pytest.mark.parametrize(
    ("law", "formula"),
    [
        (fs.devices.lognormal_slowdown(0.7), lambda rng: exp_reference(0.7 * rng.normal())),
        (fs.devices.pareto_slowdown(1.6), lambda rng: exp_reference(-log64(rng.uniform()) / 1.6)),
        (fs.devices.bimodal_slowdown(0.3, slow_factor=5.0), lambda rng: np.where(rng.uniform() < 0.3, 5.0, 1.0)),
    ],
)
@pytest.mark.parametrize("source", [None, cpu], ids=["plain", "compiled"])
def test_slowdowns_of_many_visits_have_the_bits_of_numpy(law, formula, source) -> None:
    key = rng.keys(5, rng.Stream.COMPUTE, client=np.arange(200), round=4)
    assert law.factor(rng.Draws(key, source=source)).tobytes() == formula(rng.Draws(key)).tobytes()


@pytest.mark.parametrize("dropout", [0.3, {"before": 0.1, "compute": 0.2, "upload": np.linspace(0.0, 0.7, 200)}])
def test_phases_of_many_dropouts_are_those_of_one(dropout) -> None:
    devices, clients = fs.devices.constant(1.0, dropout=dropout), np.arange(200)
    key = rng.keys(5, rng.Stream.DROPOUT, client=clients)
    plain, compiled = (devices.drop(clients, np.zeros(200), rng.Draws(key, source=source)) for source in (None, cpu))
    shares = dropout if isinstance(dropout, dict) else {"compute": dropout}
    upto = np.cumsum([np.broadcast_to(shares.get(name, 0.0), 200) for name in ("before", "compute", "upload")], axis=0)
    expected = (np.argmax(rng.Draws(key).uniform() < upto, axis=0) + 1) * (rng.Draws(key).uniform() < upto[2])
    assert set(expected.tolist()) >= ({0, 1, 2, 3} if isinstance(dropout, dict) else {0, 2})
    for phase, fraction in (plain, compiled):
        assert phase.tolist() == expected.tolist()
        assert fraction.tobytes() == plain[1].tobytes()


PERIODIC = fs.devices.intervals(
    [0.0, 2.0, 5.0, 0.5, 2.0], ends=[0.6, 3.0, 6.0, 1.0, 2.5], offsets=[0, 3, 5], period_s=6.0
)
ONCE = fs.devices.intervals([0.0, 2.0, 5.0, 0.5, 2.0], ends=[0.6, 3.0, 6.0, 1.0, 2.5], offsets=[0, 3, 5])


@pytest.mark.parametrize(
    ("law", "columns"),
    [
        (fs.devices.markov(on_s=1.3, off_s=0.7), lambda c: OnlineLaw(availability.MARKOV, 1.3, 0.7)),
        (fs.devices.markov(on_s=0.01, off_s=5.0), lambda c: OnlineLaw(availability.MARKOV, 0.01, 5.0)),
        (fs.devices.diurnal(2.0, on_fraction=0.4), lambda c: OnlineLaw(availability.DIURNAL, 0.4, np.nan, 2.0)),
        (fs.devices.diurnal(0.7, on_fraction=0.4, phase=0.3), lambda c: OnlineLaw(availability.DIURNAL, 0.4, 0.3, 0.7)),
        (fs.devices.diurnal(0.7, on_fraction=1.0, phase=0.3), lambda c: OnlineLaw(availability.DIURNAL, 1.0, 0.3, 0.7)),
        (PERIODIC, lambda c: OnlineLaw(availability.INTERVALS, 0.0, 0.0, 6.0, *((0, 3) if c == 0 else (3, 5)))),
        (ONCE, lambda c: OnlineLaw(availability.INTERVALS, 0.0, 0.0, np.inf, *((0, 3) if c == 0 else (3, 5)))),
    ],
)  # fmt: skip
def test_availability_has_the_bits_of_the_devices(law, columns) -> None:
    starts, ends = getattr(law, "starts", np.zeros(1)), getattr(law, "ends", np.zeros(1))
    times = [0.0, 0.5, 0.6, 1.0, 2.0, 2.25, 5.0, 5.999999999999999, 6.0, 6.5, 12.0, 47.3, 599.4, 600.0]
    for client in range(2):
        reference, ours = keys(9, rng.Stream.AVAILABILITY, 2, client, 0, 0)
        for now_s in times:
            who, when = np.array([client]), np.array([now_s])
            arguments = now_s, columns(client), Key(*ours), starts, ends
            assert availability.online_s(*arguments) == law.next_available(who, when, rng.Draws(reference))[0]
            assert availability.offline_s(*arguments) == law.available_until(who, when, rng.Draws(reference))[0]
