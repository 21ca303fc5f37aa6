"""How fast the QLSD toy problem runs, whole runs through `fs.run` against scripts for this problem alone.

    python -m analysis.bench.algorithms [ROUNDS] [--profile]

20 clients, d = 50, 10 to 199 points each, minibatches of a tenth, QSGD with 16 levels, 30 replicas, one core. fedsim
also keeps every replica's clock on a star network and counts the bits both ways, which the scripts do not. All are
timed in turn, best of several, so that a busy machine slows both sides of a ratio. With JAX installed its jitted,
batched form, on all cores, is timed as well. `--profile` shows where a round's time goes.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import fedsim as fs
from analysis.bench.timing import best
from fedsim.algorithms import QLSD, QLSDPlusPlus, QLSDStar
from fedsim.codecs import QSGD, Identity

CLIENTS, DIM, LEVELS, REPLICAS, STEP = 20, 50, 16, 30, 1e-4
GENERATOR = np.random.default_rng(0)
SIZES = GENERATOR.integers(10, 200, CLIENTS)
DATA = [GENERATOR.standard_normal((n, DIM)) + 3 * GENERATOR.standard_normal(DIM) for n in SIZES]
ROWS = tuple(int(n) // 10 for n in SIZES)


def scenario(algorithm: Any, rounds: int, dtype: str = "float64") -> fs.Scenario:
    return fs.Scenario(
        problem=fs.problems.GaussianMean([x.astype(dtype) for x in DATA], np.eye(DIM)),
        algorithm=algorithm,
        network=fs.topologies.star(clients=CLIENTS, uplink_bps=1e6, downlink_bps=1e7, latency_s=0.02),
        budget=fs.Budget(rounds=rounds),
        replicas=REPLICAS, seed=1, dtype=dtype, record=fs.Record(every=1000, rounds_every=1000),
    )  # fmt: skip


def numpy_script(rounds: int) -> None:
    """One replica, as anyone would write it."""
    draw, theta = np.random.default_rng(1), np.zeros(DIM)
    for _ in range(rounds):
        total = np.zeros(DIM)
        for x, m in zip(DATA, ROWS, strict=True):
            batch = x[draw.choice(len(x), m, replace=False)]
            h = len(x) / m * (theta - batch).sum(axis=0)
            norm = np.linalg.norm(h)
            ratio = LEVELS * np.abs(h) / norm
            low = np.floor(ratio)
            total += norm * np.sign(h) * (low + (draw.random(DIM) < ratio - low)) / LEVELS
        theta = theta - STEP * total + np.sqrt(2 * STEP) * draw.standard_normal(DIM)


def jax_script(rounds: int) -> Callable[[], Any]:
    """All replicas at once, jitted; rows are drawn with replacement, which is cheaper."""
    import jax
    import jax.numpy as jnp

    table = np.zeros((CLIENTS, SIZES.max(), DIM), np.float32)
    for i, x in enumerate(DATA):
        table[i, : len(x)] = x
    data, n, m, most = jnp.asarray(table), jnp.asarray(SIZES), jnp.asarray(ROWS), max(ROWS)
    keep = (jnp.arange(most)[None] < m[:, None])[None, :, :, None]

    @jax.jit
    def run(theta: Any, key: Any) -> Any:
        def step(k: Any, theta: Any) -> Any:
            keys = jax.random.split(jax.random.fold_in(key, k), 3)
            chosen = jax.random.randint(keys[0], (REPLICAS, CLIENTS, most), 0, n[None, :, None])
            rows = jax.vmap(lambda c: jax.vmap(lambda x, i: x[i])(data, c))(chosen)
            h = n[None, :, None] * theta[:, None] - (n / m)[None, :, None] * (rows * keep).sum(2)
            norm = jnp.linalg.norm(h, axis=-1, keepdims=True)
            ratio = LEVELS * jnp.abs(h) / norm
            low = jnp.floor(ratio)
            up = jax.random.uniform(keys[1], h.shape) < ratio - low
            noise = jnp.sqrt(2 * STEP) * jax.random.normal(keys[2], theta.shape)
            return theta - STEP * (norm * jnp.sign(h) * (low + up) / LEVELS).sum(1) + noise

        return jax.lax.fori_loop(0, rounds, step, theta)

    key = jax.random.key(0, impl="unsafe_rbg")
    return lambda: run(jnp.zeros((REPLICAS, DIM)), key).block_until_ready()


def main() -> None:
    given = [a for a in sys.argv[1:] if not a.startswith("--")]
    rounds, few = int(given[0]) if given else 1000, 20
    algorithms = {
        "QLSD#, QSGD(16)": QLSD(STEP, batch_size=ROWS, codec=QSGD(LEVELS)),
        "QLSD*, QSGD(16)": QLSDStar(STEP, optimum=None, batch_size=ROWS, codec=QSGD(LEVELS)),
        "QLSD++, QSGD(16)": QLSDPlusPlus(
            STEP, refresh_every=100, memory_rate=None, batch_size=ROWS, codec=QSGD(LEVELS)
        ),
        "LSD#": QLSD(STEP, batch_size=ROWS, codec=Identity()),
    }
    runtime = fs.Inline(threads=1)

    def timed(algorithm: Any, dtype: str = "float64") -> Callable[[], Any]:
        whole = scenario(algorithm, rounds, dtype)
        return lambda: fs.run(whole, runtime=runtime)

    functions = {name: timed(a) for name, a in algorithms.items()}
    functions["QLSD#, float32"] = timed(algorithms["QLSD#, QSGD(16)"], "float32")
    functions["NumPy script"] = lambda: numpy_script(few)
    try:
        functions["JAX script"] = jax_script(rounds)
    except ImportError:
        print("JAX is not installed: its script is left out")
    with threadpool_limits(1):
        seconds = dict(zip(functions, best(*functions.values(), rounds=5), strict=True))
    micro = {n: 1e6 * s / (few if n == "NumPy script" else rounds * REPLICAS) for n, s in seconds.items()}
    for name, each in micro.items():
        print(f"{name:20}{each:9.1f} us per iteration and replica{micro['NumPy script'] / each:8.1f} x NumPy")
    if "--profile" in sys.argv:
        with cProfile.Profile() as profile:
            functions["QLSD#, QSGD(16)"]()
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    main()
