"""Compiled local descent, for the algorithms of the FedAvg family on `NeuralNetwork`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedsim.algorithms.arguments import rows_per_batch
from fedsim.algorithms.local import Descent
from fedsim.arrays import Array
from fedsim.problems.network import NeuralNetwork
from fedsim.protocols import Backend, JobOfKernel, ProblemLike
from fedsim.schedules import steps_of

Descend = Callable[[JobOfKernel, Array, Array], Array]  # job, x (jobs, d) and scale (jobs, 1) to y (jobs, d)


def descent(problem: ProblemLike, backend: Backend, how: Descent) -> Descend | None:
    """`local.descend` for plain steps on small batches; None where there is no kernel for them."""
    if backend.name != "cpu" or type(problem) is not NeuralNetwork or how.momentum or how.weight_decay:
        return None
    if how.batch_size is None or np.ndim(how.local_steps):
        return None
    from fedsim.kernels import network_descent

    everybody = np.arange(problem.clients)
    if rows_per_batch(how.batch_size, problem.sizes, everybody).max() > network_descent.TILE:
        return None
    network: NeuralNetwork = problem

    def run(job: JobOfKernel, x: Array, scale: Array) -> Array:
        dtype, sizes = x.dtype, network.sizes[job.client]
        counts = rows_per_batch(how.batch_size, sizes, job.client)
        columns = [np.zeros(0, dtype) if c is None else c.astype(dtype) for c in (network.scale, network.shift)]
        steps = steps_of(how.step_size, job.round, int(how.local_steps))
        y = np.array(x)
        network_descent.descend(
            y, network.x, network.y, network.offsets, job.client, job.rows_key, sizes, counts, network.layers,
            *columns, (dtype.type(network.share) * counts).astype(dtype), (sizes / counts).astype(dtype),
            np.stack([eta * scale[:, 0] for eta in steps]),
        )  # fmt: skip
        return y

    return run
