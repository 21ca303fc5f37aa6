"""The compiled loop over clients that asks when each is online has the bits of the rules in Python."""

from __future__ import annotations

import numpy as np
import pytest

from fedsim import devices, rng
from fedsim.errors import InvalidInput
from fedsim.kernels import cpu
from fedsim.rng import Draws, Stream

CLIENTS = np.arange(200)


def both(model, question, now_s):
    key = rng.keys(5, Stream.AVAILABILITY, client=CLIENTS, replica=3)
    return [getattr(model, question)(CLIENTS, now_s, Draws(key, source=source)) for source in (None, cpu)]


@pytest.mark.parametrize("question", ["next_available", "available_until"])
@pytest.mark.parametrize("on_s, off_s", [(3.0, 5.0), (500.0, 0.5), (0.5, 500.0), (1e-3, 1e-3)])
def test_the_compiled_loop_has_the_bits_of_the_rules(on_s, off_s, question):
    model = devices.markov(on_s, off_s=off_s)
    for now in (0.0, 1e-9, 7.3, 123456.789):
        plain, compiled = both(model, question, np.full(len(CLIENTS), now))
        assert plain.tobytes() == compiled.tobytes()
        plain, compiled = both(model, question, plain)  # at the very instants of change
        assert plain.tobytes() == compiled.tobytes()


def test_the_compiled_loop_takes_numbers_of_each_client():
    model = devices.markov(np.geomspace(0.1, 100.0, len(CLIENTS)), off_s=np.geomspace(50.0, 0.2, len(CLIENTS)))
    plain, compiled = both(model, "next_available", np.linspace(0.0, 1e4, len(CLIENTS)))
    assert plain.tobytes() == compiled.tobytes()


@pytest.mark.parametrize("question", ["next_available", "available_until"])
def test_the_compiled_loop_has_every_law(question):
    per_client = np.linspace(0.0, 1.0, len(CLIENTS))
    recorded = devices.intervals(
        np.tile([0.0, 3.0], 200), ends=np.tile([1.0, 5.0], 200), offsets=2 * np.arange(201), period_s=5.0
    )
    for model in (
        devices.diurnal(7.0, on_fraction=per_client),
        devices.diurnal(7.0, on_fraction=0.4, phase=per_client),
        recorded,
    ):
        plain, compiled = both(model, question, np.linspace(0.0, 100.0, len(CLIENTS)))
        assert plain.tobytes() == compiled.tobytes()


def test_a_time_beyond_all_counting_is_refused_compiled_too():
    key = rng.keys(5, Stream.AVAILABILITY, client=[0])
    with pytest.raises(InvalidInput, match="too late"):
        devices.markov(3.0, off_s=5.0).next_available(np.array([0]), np.array([np.inf]), Draws(key, source=cpu))
