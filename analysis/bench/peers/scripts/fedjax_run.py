"""FedJAX: its federated averaging over federated data in memory, jit backend."""

# ruff: noqa: E402 (settings come before what reads them)
from __future__ import annotations

import jax

for name in ("tree_map", "tree_leaves", "tree_flatten", "tree_unflatten", "tree_structure"):
    if not hasattr(jax, name):  # FedJAX calls names that JAX has since removed
        setattr(jax, name, getattr(jax.tree_util, name))

import fedjax
import jax.numpy as jnp
import numpy as np
from fedjax.algorithms import fed_avg
from workloads import Record


def main() -> None:
    record = Record()
    w, (x, y) = record.workload, record.load()
    data = fedjax.InMemoryFederatedData({i: {"x": x[w.rows(i)], "y": y[w.rows(i)]} for i in range(w.clients)})

    def loss(parameters, batch, rng):
        z = batch["x"] @ parameters[0]
        if w.kind == "linear":
            return ((z[:, 0] - batch["y"]) ** 2).mean()
        return -jnp.take_along_axis(jax.nn.log_softmax(z + parameters[1]), batch["y"][:, None], 1).mean()

    how = fedjax.ShuffleRepeatBatchHParams(batch_size=w.batch, num_steps=w.steps, num_epochs=None, drop_remainder=True)
    sgd = fedjax.optimizers.sgd
    algorithm = fed_avg.federated_averaging(jax.grad(loss), sgd(w.lr), sgd(1.0), how)
    sampler = fedjax.client_samplers.UniformGetClientSampler(data, w.cohort, seed=1)
    state, updates = algorithm.init([jnp.asarray(p) for p in w.start()]), 0
    record.begin()
    for _ in range(w.rounds):
        state, diagnostics = algorithm.apply(state, sampler.sample())
        jax.block_until_ready(state.params)
        updates += len(diagnostics)
        record.end()
    record.write([np.asarray(p) for p in state.params], updates)


if __name__ == "__main__":
    main()
