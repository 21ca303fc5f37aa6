"""Losses and gradients of a `torch.nn.Module` at flat parameters: one job at a time, or many under `vmap`."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from fedsim.arrays import Array

if TYPE_CHECKING:
    import torch

ROWS = 64  # rows at once where each has a gradient of its own
CHUNK = 512  # rows at once in a job of its own
_lock = threading.Lock()


class _Held:
    """A setting of the whole process, changed when the first thread enters and restored when the last one leaves."""

    def __init__(self, change: Callable[[], Callable[[], None]]) -> None:
        self._change, self._inside = change, 0

    def __enter__(self) -> None:
        with _lock:
            if self._inside == 0:
                self._restore = self._change()
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with _lock:
            self._inside -= 1
            if self._inside == 0:
                self._restore()


def _to_one_thread() -> Callable[[], None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # even if it is 1: the number above is OpenMP's, the MKL inside torch has its own
    return partial(torch.set_num_threads, before)


def _to_deterministic() -> Callable[[], None]:
    before = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory

    def restore() -> None:
        torch.use_deterministic_algorithms(before[0])
        torch.utils.deterministic.fill_uninitialized_memory = before[1]

    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # which costs time and hides nothing here
    return restore


one_thread, _deterministic = _Held(_to_one_thread), _Held(_to_deterministic)


@contextmanager
def quiet() -> Iterator[None]:
    """Compute on one torch thread and with deterministic algorithms alone; restore the user's settings afterwards."""
    with one_thread, _deterministic:
        if torch.get_num_threads() != 1:  # OpenMP's number, which every thread has of its own
            torch.set_num_threads(1)
        yield


class Maths:
    """A module and a criterion; every thread works on a copy of its own, for parameters are put into it."""

    def __init__(self, module: torch.nn.Module, criterion: Callable[..., Any]) -> None:
        self.module, self.criterion = module, criterion
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        self.names = [name for name, _ in named]
        self.shapes = [p.shape for _, p in named]
        self.counts = [p.numel() for _, p in named]
        self.dim = sum(self.counts)
        self.averages = True  # the criterion averages over rows
        self._local = threading.local()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_local"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._local = threading.local()

    def start(self) -> Array:
        """The module's own parameters, flat."""
        own = dict(self.module.named_parameters())
        flat = torch.cat([own[name].detach().reshape(-1) for name in self.names])
        return np.asarray(flat.to(torch.float64).cpu().numpy())

    # --- One job ------------------------------------------------------------------------------------------

    def gradient(self, theta: Tensor, x: Tensor, y: Tensor, out: Tensor) -> Tensor:
        """Of the summed loss, into `out` (d,)."""
        module = self.module_at(theta)
        parameters = self._local.parameters[theta.dtype]
        for at in range(0, len(x), CHUNK):
            part = y[at : at + CHUNK]
            loss = self._sum(self.criterion(module(x[at : at + CHUNK]), part), len(part))
            grads = [g.reshape(-1) for g in torch.autograd.grad(loss, parameters, materialize_grads=True)]
            if at == 0:
                torch.cat(grads, out=out)
            else:
                out += torch.cat(grads)
        return out

    def clipped(self, theta: Tensor, x: Tensor, y: Tensor, clip: float, pull: Tensor) -> Tensor:
        """The sum over rows of each row's gradient plus `pull`, scaled down to norm `clip`."""
        total = torch.zeros_like(theta)
        for at in range(0, len(x), ROWS):
            each = self._each(theta, x[at : at + ROWS], y[at : at + ROWS]) + pull
            norms = each.square().sum(dim=1).sqrt()
            total += (each * (clip / norms.clamp(min=clip))[:, None]).sum(dim=0)
        return total

    def loss(self, theta: Tensor, x: Tensor, y: Tensor) -> float:
        """Summed over the rows."""
        with torch.no_grad():
            return float(self._sum(self.criterion(self.module_at(theta)(x), y), len(y)))

    def outputs(self, theta: Tensor, x: Tensor) -> Tensor:
        with torch.no_grad():
            return self.module_at(theta)(x)

    # --- Many jobs or rows under vmap ---------------------------------------------------------------------

    def stacked(self, theta: Tensor, x: Tensor, y: Tensor, present: Tensor | None) -> Tensor:
        """The gradients of many jobs with equally many rows, (jobs, d); rows that are not `present` count nothing."""
        module = self._copy(theta.dtype)

        def one(t: Tensor, x: Tensor, y: Tensor, present: Tensor | None) -> Tensor:
            out = functional_call(module, self._named(t), (x,))
            if present is None:
                return self._sum(self.criterion(out, y), y.shape[0])
            rows = vmap(lambda o, label: self.criterion(o[None], label[None]).sum())(out, y)
            return (rows * present).sum()

        return vmap(grad(one), in_dims=(0, 0, 0, None if present is None else 0))(theta, x, y, present)

    def _each(self, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Every row's own gradient, (rows, d)."""
        module = self._copy(theta.dtype)

        def one(t: Tensor, x: Tensor, y: Tensor) -> Tensor:
            out = functional_call(module, self._named(t), (x[None],))
            return self.criterion(out, y[None]).sum()

        try:
            return vmap(grad(one), in_dims=(None, 0, 0))(theta, x, y)
        except RuntimeError:  # a layer that vmap refuses
            each = torch.empty(len(y), len(theta), dtype=theta.dtype)
            for i in range(len(y)):
                self.gradient(theta, x[i : i + 1], y[i : i + 1], each[i])
            return each

    # --- Parameters ---------------------------------------------------------------------------------------

    def _sum(self, loss: Tensor, rows: int) -> Tensor:
        return loss.sum() * rows if self.averages else loss.sum()

    def _named(self, theta: Tensor) -> dict[str, Tensor]:
        parts = theta.split(self.counts)
        return {name: part.view(shape) for name, part, shape in zip(self.names, parts, self.shapes, strict=True)}

    def _copy(self, dtype: torch.dtype) -> Any:
        """This thread's module of the dtype."""
        if not hasattr(self._local, "modules"):
            self._local.modules, self._local.parameters = {}, {}
        if dtype not in self._local.modules:
            module = copy.deepcopy(self.module).to(dtype)
            own = dict(module.named_parameters())
            self._local.modules[dtype], self._local.parameters[dtype] = module, [own[name] for name in self.names]
        return self._local.modules[dtype]

    def module_at(self, theta: Tensor) -> Any:
        """This thread's module with the parameters `theta`, which it looks at and does not copy."""
        module = self._copy(theta.dtype)
        for parameter, part in zip(self._local.parameters[theta.dtype], self._named(theta).values(), strict=True):
            parameter.data = part
        return module
