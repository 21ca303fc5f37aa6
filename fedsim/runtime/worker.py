"""Runs a batch of jobs where it stands: the one piece of code behind every runtime, inline or on a cluster."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.errors import ClientFailed, FedsimError, NonFinite
from fedsim.runtime.jobs import Batch, Encoded, Job, Reply, Setting

Array = npt.NDArray[Any]
CACHED = 2**19  # numbers in a stack of parameters: larger ones would leave the cache between two operations


class Worker:
    """Holds an algorithm and a setting; `compute` is a pure function of the batch."""

    def __init__(self, algorithm: Any, setting: Setting) -> None:
        self.algorithm, self.setting = algorithm, setting
        fused = getattr(algorithm, "fused", None)
        self.kernel: Callable[..., Any] | None = fused(setting.problem, setting.backend) if fused else None
        rounds = getattr(algorithm, "fused_rounds", None)
        self.rounds: Callable[..., Any] | None = rounds(setting.problem, setting.backend) if rounds else None
        self.stacked = self.kernel is not None or getattr(algorithm, "batched", False)

    def compute(self, batch: Batch) -> Reply:
        """Every job's reply, in the batch's order."""
        jobs = len(batch) if self.kernel else max(1, CACHED // self.setting.problem.dim)
        if self.stacked and len(batch) > jobs:
            reply = Reply.join([self._stacked(batch.part(slice(i, i + jobs))) for i in range(0, len(batch), jobs)])
        elif self.stacked:
            reply = self._stacked(batch)
        else:
            reply = Reply.join([self._single(batch.part(slice(i, i + 1))) for i in range(len(batch))])
        self._check_finite(batch, reply)
        return reply

    def _stacked(self, batch: Batch) -> Reply:
        job = Job(self.setting, batch, single=False)
        message = {name: m[batch.version] for name, m in batch.message.items()}
        body = self.kernel or self.algorithm.client
        values, memory = self._call(body, job, message, batch.memory, batch)
        return self._reply(values, memory, len(batch))

    def _single(self, batch: Batch) -> Reply:
        job = Job(self.setting, batch, single=True)
        message = {name: m[batch.version[0]].copy() for name, m in batch.message.items()}
        memory = {name: m[0].copy() for name, m in batch.memory.items()}
        values, memory = self._call(self.algorithm.client, job, message, memory, batch)
        lifted = {
            name: Encoded(v.value[None], np.array([v.bits])) if isinstance(v, Encoded) else np.asarray(v)[None]
            for name, v in values.items()
        }
        return self._reply(lifted, {name: np.asarray(m)[None] for name, m in memory.items()}, 1)

    def _call(self, body: Any, job: Job, message: Any, memory: Any, batch: Batch) -> tuple[Any, Any]:
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # what diverges is reported once, as NonFinite
                return body(job, message, memory)  # type: ignore[no-any-return]
        except FedsimError:
            raise
        except Exception as error:
            who = (
                f"client {batch.client[0]}" if len(batch) == 1 else f"clients {sorted(set(batch.client.tolist()))[:5]}"
            )
            raise ClientFailed(
                f"{type(self.algorithm).__name__}.client raised {type(error).__name__}: {error} "
                f"({who}, round {batch.round + 1}, replica {batch.replica[0]}, seed {self.setting.seed})"
            ) from error

    def _reply(self, values: dict[str, Any], memory: dict[str, Array], jobs: int) -> Reply:
        bits = np.zeros(jobs, np.int64)
        plain: dict[str, Array] = {}
        for name, v in values.items():
            if isinstance(v, Encoded):
                bits += v.bits
                plain[name] = v.value
            else:
                plain[name] = np.asarray(v, self.setting.dtype)
                bits += 8 * plain[name].itemsize * math.prod(plain[name].shape[1:])
        return Reply(plain, bits, memory)

    def _check_finite(self, batch: Batch, reply: Reply) -> None:
        for name, v in reply.values.items():
            if np.isfinite(v).all():
                continue
            row = int(np.argmin(np.isfinite(v).reshape(len(v), -1).all(axis=1)))
            raise NonFinite(
                f"{name} of client {batch.client[row]} is not finite in round {batch.round + 1} "
                f"(replica {batch.replica[row]}, seed {self.setting.seed}); {advice(self.algorithm, self.setting)}"
            )


def advice(algorithm: Any, setting: Setting) -> str:
    """A step size to try: within the stability limit where the problem knows it, else a tenth."""
    eta = getattr(algorithm, "step_size", None)
    problem = setting.problem
    if hasattr(problem, "quadratic") and problem.clients * problem.dim**3 < 10**8:
        hessian = problem.quadratic()[0] / setting.weights[:, None, None]
        return f"try step_size <= {1 / (2 * np.linalg.eigvalsh(hessian).max()):.1g}"
    return f"try step_size <= {eta / 10:.1g}" if isinstance(eta, float) else "try smaller step sizes"
