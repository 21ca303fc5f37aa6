"""Losses and gradients of a `torch.nn.Module` at flat parameters: one job at a time, or many under `vmap`."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from fedsim.arrays import Array
from fedsim.errors import InvalidInput

if TYPE_CHECKING:
    import torch

ROWS = 64  # rows at once where each has a gradient of its own
CHUNK = 512  # rows at once in a job of its own
_QUIET, _inside, _before = threading.Lock(), 0, (False, True, 1)


@contextmanager
def quiet() -> Iterator[None]:
    """One torch thread and deterministic algorithms while anybody is inside; afterwards what was before."""
    global _inside, _before
    with _QUIET:
        if _inside == 0:
            fills = torch.utils.deterministic.fill_uninitialized_memory
            _before = (torch.are_deterministic_algorithms_enabled(), fills, torch.get_num_threads())
            torch.use_deterministic_algorithms(True)
            torch.utils.deterministic.fill_uninitialized_memory = False  # which costs time and hides nothing here
        _inside += 1
        if torch.get_num_threads() != 1:
            torch.set_num_threads(1)
    try:
        yield
    finally:
        with _QUIET:
            _inside -= 1
            if _inside == 0:
                torch.use_deterministic_algorithms(_before[0])
                torch.utils.deterministic.fill_uninitialized_memory = _before[1]
                torch.set_num_threads(_before[2])


class Maths:
    """A module and a criterion; every thread works on a copy of its own, for parameters are put into it."""

    def __init__(self, module: torch.nn.Module, criterion: Callable[..., Any]) -> None:
        check_module(module)
        self.module, self.criterion = module, criterion
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        self.names = [name for name, _ in named]
        self.shapes = [p.shape for _, p in named]
        self.counts = [p.numel() for _, p in named]
        self.dim = sum(self.counts)
        self.per_row = True  # the criterion averages over rows; `settle` finds out
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

    def settle(self, x: Tensor, y: Tensor) -> None:
        """Look at the criterion on a few rows: a mean or a sum of each row's own loss, and nothing drawn at random."""
        theta = torch.tensor(self.start(), dtype=x.dtype)
        with torch.no_grad():
            self._load(theta, x.dtype)
            out, again = (self._copy(x.dtype)(x) for _ in range(2))
            if not torch.equal(out, again):
                raise InvalidInput(
                    "Torch: the module gives other outputs at the second call; take out dropout and other random layers"
                )
            rows = torch.stack([self.criterion(out[i : i + 1], y[i : i + 1]).sum() for i in range(len(y))])
            whole = self.criterion(out, y).sum()
        if len(y) == 1 or torch.allclose(whole, rows.sum(), rtol=1e-4):
            self.per_row = False
        elif not torch.allclose(whole, rows.mean(), rtol=1e-4):
            raise InvalidInput(
                "Torch(loss): on several rows it is neither the mean nor the sum of each row's own loss; "
                "give one that is, such as torch.nn.CrossEntropyLoss(weight=..., reduction='sum')"
            )

    # --- One job ------------------------------------------------------------------------------------------

    def gradient(self, theta: Tensor, x: Tensor, y: Tensor, out: Tensor) -> Tensor:
        """Of the summed loss, into `out` (d,)."""
        module = self._load(theta, theta.dtype)
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
            return float(self._sum(self.criterion(self._load(theta, theta.dtype)(x), y), len(y)))

    def outputs(self, theta: Tensor, x: Tensor) -> Tensor:
        with torch.no_grad():
            return self._load(theta, theta.dtype)(x)

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
        return loss.sum() * rows if self.per_row else loss.sum()

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

    def _load(self, theta: Tensor, dtype: torch.dtype) -> Any:
        """This thread's module with the parameters `theta`, which it looks at and does not copy."""
        module = self._copy(dtype)
        for parameter, part in zip(self._local.parameters[dtype], self._named(theta).values(), strict=True):
            parameter.data = part
        return module


def check_module(module: torch.nn.Module) -> None:
    """Refuse what has no flat parameters, or a state beside them."""
    if not isinstance(module, torch.nn.Module):
        raise InvalidInput(f"Torch(module={module!r:.60}): give a torch.nn.Module")
    if not any(p.requires_grad for p in module.parameters()):
        raise InvalidInput(f"Torch({type(module).__name__}): no parameters to learn; give a module that has some")
    for name, part in module.named_modules():
        where = f"Torch: layer {name or type(module).__name__!r} ({type(part).__name__})"
        share = getattr(part, "dropout", 0.0)
        if isinstance(part, torch.nn.modules.dropout._DropoutNd) or (isinstance(share, float) and share > 0):
            raise InvalidInput(f"{where} draws at random, which no seed of a run decides; leave dropout out")
        held = next((n for n, _ in part.named_buffers(recurse=False)), None)
        if held is not None:
            raise InvalidInput(
                f"{where} holds the buffer {held!r}, which is neither learnt nor sent; use torch.nn.GroupNorm "
                "instead of batch norm, or a parameter with requires_grad=False"
            )
