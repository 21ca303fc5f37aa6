"""W5 and W6, the papers' toys, as what somebody would write instead of using a simulator: constants and NumPy forms.

W5: QLSD, 20 clients, d = 50, 10 to 199 points each, minibatches of a tenth, QSGD with 16 levels, 30 replicas.
W6: FA-LD, 50 clients, d = 2, 100 local steps, 300 replicas.
Standard library and NumPy alone, so that a peer's environment can import it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

LEVELS, STEP = 16, 1e-4  # of W5
_draw = np.random.default_rng(0)
SIZES = _draw.integers(10, 200, 20)
POINTS = [(_draw.standard_normal((n, 50)) + 3 * _draw.standard_normal(50)).astype(np.float32) for n in SIZES]
ROWS = SIZES // 10

COVARIANCE = np.array([[5.0, -2.0], [-2.0, 1.0]])  # of W6
CENTRES = np.random.default_rng(0).standard_normal((50, 2)).astype(np.float32)
LOCAL_STEP, LOCAL_STEPS = 1e-3, 100  # a step on the client's own potential, already divided by its weight
W5_REPLICAS, W6_REPLICAS = 30, 300


def numpy_qlsd(rounds: int) -> np.ndarray:
    """One replica, as anyone would write it."""
    draw, theta = np.random.default_rng(1), np.zeros(50, np.float32)
    for _ in range(rounds):
        total = np.zeros(50, np.float32)
        for x, m in zip(POINTS, ROWS, strict=True):
            h = len(x) / m * (theta - x[draw.choice(len(x), m, replace=False)]).sum(axis=0)
            norm = np.linalg.norm(h)
            ratio = LEVELS * np.abs(h) / norm
            low = np.floor(ratio)
            total += norm * np.sign(h) * (low + (draw.random(50) < ratio - low)) / LEVELS
        theta = theta - np.float32(STEP) * total + np.float32(np.sqrt(2 * STEP)) * draw.standard_normal(50, np.float32)
    return theta[None]


def numpy_fald(rounds: int) -> np.ndarray:
    """All replicas and clients as one array."""
    draw, precision = np.random.default_rng(1), np.linalg.inv(COVARIANCE).astype(np.float32)
    theta, amplitude = np.zeros((W6_REPLICAS, 1, 2), np.float32), np.float32(np.sqrt(2 * LOCAL_STEP))
    for _ in range(rounds):
        t = np.repeat(theta, 50, axis=1)
        for _ in range(LOCAL_STEPS):
            noise = draw.standard_normal(t.shape, np.float32)
            t = t - np.float32(LOCAL_STEP) * ((t - CENTRES) @ precision) + amplitude * noise
        theta = t.mean(axis=1, keepdims=True)
    return theta[:, 0]


def timed(run: Callable[[int], np.ndarray], rounds: int, unit: float, repeats: int = 3) -> dict[str, object]:
    """The least seconds of a unit of work after a first call, and where the replicas ended up on average.

    With no repeats the first call counts: nothing of it is compiled.
    """
    seconds = []
    for _ in range(1 + repeats):
        began = time.perf_counter()
        theta = np.asarray(run(rounds))
        seconds.append(time.perf_counter() - began)
    least = min(seconds[1:] or seconds)
    return {"seconds": least / (rounds * unit), "mean": theta.mean(axis=0).tolist(), "replicas": len(theta)}


UNITS = {"W5": float(W5_REPLICAS), "W6": float(W6_REPLICAS * 50 * LOCAL_STEPS)}  # replica rounds; client steps
