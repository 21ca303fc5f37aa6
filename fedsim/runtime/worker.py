"""Runs a batch of jobs where it stands: the one piece of code behind every runtime, inline or on a cluster."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.errors import ClientFailed, FedsimError, InvalidInput, NonFinite, shown
from fedsim.protocols import AlgorithmLike, Quadratic, as_algorithm
from fedsim.runtime.answers import all_locked, changed_in_place, client_answer, memory_answer, real
from fedsim.runtime.jobs import Batch, Encoded, JobsAtHand, Reply, Setting
from fedsim.runtime.many_rounds import SeededKeys

CACHED = 2**19  # numbers in a stack of parameters: larger ones would leave the cache between two operations


class Worker:
    """Holds an algorithm and a setting; `compute` is a pure function of the batch."""

    def __init__(self, algorithm: AlgorithmLike, setting: Setting) -> None:
        self.algorithm, self.role, self.setting = algorithm, as_algorithm(algorithm), setting
        self.kernel = self.role.fused(setting.problem, setting.backend)
        self.rounds = self.role.many_rounds(setting.problem, setting.backend)
        self.stacked = self.kernel is not None or self.role.batched

    def compute(self, batch: Batch) -> Reply:
        """Every job's reply, in the batch's order."""
        liked = self.setting.role.stack
        jobs = len(batch) if self.kernel else liked * max(1, CACHED // self.setting.problem.dim // liked)
        if self.stacked and len(batch) > jobs:
            reply = Reply.join([self._stacked(batch.part(slice(i, i + jobs))) for i in range(0, len(batch), jobs)])
        elif self.stacked:
            reply = self._stacked(batch)
        else:
            reply = Reply.join([self._single(batch.part(slice(i, i + 1))) for i in range(len(batch))])
        self._check_finite(batch, reply)
        return reply

    def iterate(
        self, replicas: Array, first: int, count: int, state: Arrays, memory: Arrays
    ) -> tuple[Arrays, Arrays]:  # fmt: skip
        """`count` rounds in which everybody answers: states (rounds or 1, replicas, ...), last one last, and memory."""
        assert self.rounds is not None
        keys = SeededKeys(self.setting.seed, self.setting.backend)
        return self.rounds(keys, replicas, first, count, state, memory)

    def _stacked(self, batch: Batch) -> Reply:
        job = JobsAtHand(self.setting, batch, single=False)
        message, memory = {name: m[batch.version] for name, m in batch.message.items()}, batch.memory
        if self.kernel is not None:  # our own, which changes nothing and answers as it must
            values, memory = self._call(self.kernel, job, message, memory, batch)
            return self._reply(values, memory, len(batch))
        answer = self._call(self.algorithm.client, job.locked(), all_locked(message), all_locked(memory), batch)
        values, memory = client_answer(self.who, answer)
        return self._reply(values, memory_answer(self.who, memory, batch.memory), len(batch))

    def _single(self, batch: Batch) -> Reply:
        job = JobsAtHand(self.setting, batch, single=True)
        message = {name: m[batch.version[0]].copy() for name, m in batch.message.items()}
        before = {name: m[0].copy() for name, m in batch.memory.items()}
        answer = self._call(self.algorithm.client, job, all_locked(message), all_locked(before), batch)
        values, memory = client_answer(self.who, answer)
        lifted = {
            name: Encoded(v.value[None], np.array([v.bits]))
            if isinstance(v, Encoded)
            else real(self.who, name, v, self.setting.dtype)[None]
            for name, v in values.items()
        }
        kept = memory_answer(self.who, memory, before)
        return self._reply(lifted, {name: m[None] for name, m in kept.items()}, 1)

    @property
    def who(self) -> str:
        return f"{type(self.algorithm).__name__}.client"

    def _call(self, body: Callable[..., Any], job: JobsAtHand, message: Arrays, memory: Arrays, batch: Batch) -> Any:
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # what diverges is reported once, as NonFinite
                return body(job, message, memory)
        except FedsimError:
            raise
        except BaseException as error:  # sys.exit() too: it would end a host, or the program, without a word
            if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                raise  # the user's own Ctrl-C, which only the main thread hears
            who = (
                f"client {batch.client[0]}" if len(batch) == 1 else f"clients {sorted(set(batch.client.tolist()))[:5]}"
            )
            if changed_in_place(error):
                what = "changed an array in place that it was handed; work on a copy: theta = theta - step"
            else:
                what = f"raised {type(error).__name__}: {shown(error, 300)}"
            at = f"round {batch.round + 1}, replica {batch.replica[0]}, seed {self.setting.seed}"
            raise ClientFailed(f"{self.who} {what} ({who}, {at})") from error

    def _reply(self, values: dict[str, Any], memory: Arrays, jobs: int) -> Reply:
        bits = np.zeros(jobs, np.int64)
        plain: Arrays = {}
        for name, v in values.items():
            if isinstance(v, Encoded):
                bits += v.bits
                plain[name] = v.value
            else:
                plain[name] = real(self.who, name, v, self.setting.dtype)
                if name in self.role.kept:  # it never travels
                    continue
                bits += 8 * plain[name].itemsize * math.prod(plain[name].shape[1:])
            if plain[name].shape[:1] != (jobs,):
                rows = f"{name} of shape {plain[name].shape} for {jobs} jobs"
                raise InvalidInput(f"{self.who} returned {rows}; a batched client returns one row for each job")
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


def advice(algorithm: AlgorithmLike, setting: Setting) -> str:
    """A step size to try: within the stability limit where the problem knows it, else a tenth."""
    eta = as_algorithm(algorithm).step_size
    problem: Any = setting.problem
    if isinstance(problem, Quadratic) and setting.problem.clients * setting.problem.dim**3 < 10**8:
        hessian = problem.quadratic()[0] / setting.weights[:, None, None]
        return f"try step_size <= {1 / (2 * np.linalg.eigvalsh(hessian).max()):.1g}"
    return f"try step_size <= {eta / 10:.1g}" if isinstance(eta, float) else "try smaller step sizes"
