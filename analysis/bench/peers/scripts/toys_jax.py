"""W5 and W6 in JAX: all replicas at once, jitted, on all cores. W5 draws rows with replacement, which is cheaper."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import toys


def qlsd(rounds):
    table = np.zeros((20, int(toys.SIZES.max()), 50), np.float32)
    for row, x in zip(table, toys.POINTS, strict=True):
        row[: len(x)] = x
    data, n, m = jnp.asarray(table), jnp.asarray(toys.SIZES), jnp.asarray(toys.ROWS)
    most, replicas = int(toys.ROWS.max()), toys.W5_REPLICAS
    keep = (jnp.arange(most)[None] < m[:, None])[None, :, :, None]

    @jax.jit
    def run(theta, key):
        def step(k, theta):
            keys = jax.random.split(jax.random.fold_in(key, k), 3)
            chosen = jax.random.randint(keys[0], (replicas, 20, most), 0, n[None, :, None])
            rows = jax.vmap(lambda c: jax.vmap(lambda x, i: x[i])(data, c))(chosen)
            h = n[None, :, None] * theta[:, None] - (n / m)[None, :, None] * (rows * keep).sum(2)
            norm = jnp.linalg.norm(h, axis=-1, keepdims=True)
            ratio = toys.LEVELS * jnp.abs(h) / norm
            low = jnp.floor(ratio)
            sent = norm * jnp.sign(h) * (low + (jax.random.uniform(keys[1], h.shape) < ratio - low)) / toys.LEVELS
            noise = jnp.sqrt(2 * toys.STEP) * jax.random.normal(keys[2], theta.shape)
            return theta - toys.STEP * sent.sum(1) + noise

        return jax.lax.fori_loop(0, rounds, step, theta)

    return lambda _: run(jnp.zeros((replicas, 50)), jax.random.key(0, impl="unsafe_rbg")).block_until_ready()


def fald(rounds):
    precision, centres = jnp.asarray(np.linalg.inv(toys.COVARIANCE), jnp.float32), jnp.asarray(toys.CENTRES)

    @jax.jit
    def run(theta, key):
        def one_round(r, theta):
            t = jnp.broadcast_to(theta[:, None, :], (toys.W6_REPLICAS, 50, 2))

            def step(k, t):
                noise = jax.random.normal(jax.random.fold_in(jax.random.fold_in(key, r), k), t.shape, jnp.float32)
                return t - toys.LOCAL_STEP * ((t - centres) @ precision) + np.sqrt(2 * toys.LOCAL_STEP) * noise

            return jax.lax.fori_loop(0, toys.LOCAL_STEPS, step, t).mean(1)

        return jax.lax.fori_loop(0, rounds, one_round, theta)

    return lambda _: run(jnp.zeros((toys.W6_REPLICAS, 2)), jax.random.key(0)).block_until_ready()


if __name__ == "__main__":
    timings = {"W5": toys.timed(qlsd(200), 200, toys.UNITS["W5"]), "W6": toys.timed(fald(100), 100, toys.UNITS["W6"])}
    print(json.dumps(timings))
