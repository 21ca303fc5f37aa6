"""Losses and gradients of a `torch.nn.Module` at flat parameters, and checks that they are sums over rows."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from fedsim.arrays import Array
from fedsim.checks import call_function
from fedsim.errors import InvalidInput
from fedsim.problems import loss_reduction

ROWS = 64  # rows per call where each has its own gradient
CHUNK = 512  # rows per call of one job
CLOSE = 1e-5  # of the largest output: a row alone and among others
_lock = threading.Lock()


class _ProcessSetting:
    """A process-wide setting, changed when the first thread enters and restored when the last one exits."""

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
    torch.set_num_threads(1)  # even if it is 1: the MKL inside torch has a number of its own
    return partial(torch.set_num_threads, before)


def _to_deterministic() -> Callable[[], None]:
    before = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory

    def restore() -> None:
        torch.use_deterministic_algorithms(before[0])
        torch.utils.deterministic.fill_uninitialized_memory = before[1]

    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = (
        False  # it takes time; all memory is written before it is read
    )
    return restore


one_thread, _deterministic = _ProcessSetting(_to_one_thread), _ProcessSetting(_to_deterministic)


@contextmanager
def quiet() -> Iterator[None]:
    """Hold torch to one thread and deterministic algorithms; restore the user's settings afterwards."""
    with one_thread, _deterministic:
        if torch.get_num_threads() != 1:  # OpenMP has a number per thread
            torch.set_num_threads(1)
        yield


class Maths:
    """A module and a criterion; every thread has a copy, whose parameters are replaced."""

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
        """Return the module's own parameters, flat."""
        own = dict(self.module.named_parameters())
        flat = torch.cat([own[name].detach().reshape(-1) for name in self.names])
        return np.asarray(flat.to(torch.float64).cpu().numpy())

    # --- One job ------------------------------------------------------------------------------------------

    def gradient(self, theta: Tensor, x: Tensor, y: Tensor, out: Tensor) -> Tensor:
        """Write the gradient of the summed loss into `out` (d,)."""
        module = self.module_at(theta)
        parameters = self._local.parameters[theta.dtype]
        for at in range(0, len(x), CHUNK):
            part = y[at : at + CHUNK]
            loss = self._sum(self.loss_of(_outputs(module, x[at : at + CHUNK]), part, slope=True), len(part))
            grads = [g.reshape(-1) for g in torch.autograd.grad(loss, parameters, materialize_grads=True)]
            if at == 0:
                torch.cat(grads, out=out)
            else:
                out += torch.cat(grads)
        return out

    def clipped(self, theta: Tensor, x: Tensor, y: Tensor, clip: float, pull: Tensor) -> Tensor:
        """Return the sum over rows of each row's gradient plus `pull`, scaled down to norm `clip`."""
        total = torch.zeros_like(theta)
        for at in range(0, len(x), ROWS):
            each = self._each(theta, x[at : at + ROWS], y[at : at + ROWS]) + pull
            norms = each.square().sum(dim=1).sqrt()
            total += (each * (clip / norms.clamp(min=clip))[:, None]).sum(dim=0)
        return total

    def loss(self, theta: Tensor, x: Tensor, y: Tensor) -> float:
        """Return the loss summed over the rows."""
        with torch.no_grad():
            return float(self._sum(self.loss_of(_outputs(self.module_at(theta), x), y), len(y)))

    def outputs(self, theta: Tensor, x: Tensor) -> Tensor:
        with torch.no_grad():
            return _outputs(self.module_at(theta), x)

    # --- Many jobs or rows under vmap ---------------------------------------------------------------------

    def stacked(self, theta: Tensor, x: Tensor, y: Tensor, present: Tensor | None) -> Tensor:
        """Return gradients (jobs, d) of jobs with equally many rows; rows that are not `present` have weight 0."""
        module = self._copy(theta.dtype)

        def one(t: Tensor, x: Tensor, y: Tensor, present: Tensor | None) -> Tensor:
            out = functional_call(module, self._named(t), (x,))
            if present is None:
                return self._sum(self.criterion(out, y), y.shape[0])
            rows = vmap(lambda o, label: self.criterion(o[None], label[None]).sum())(out, y)
            return (rows * present).sum()

        return vmap(grad(one), in_dims=(0, 0, 0, None if present is None else 0))(theta, x, y, present)

    def _each(self, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return every row's own gradient, (rows, d)."""
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

    def loss_of(self, out: Tensor, y: Tensor, slope: bool = False) -> Tensor:
        """Return the criterion's loss; refuse one without a value, or without a slope where that is needed."""
        loss = call_function("Torch(loss)", self.criterion, out, y)
        if not isinstance(loss, Tensor) or not loss.is_floating_point():
            kind = loss.dtype if isinstance(loss, Tensor) else type(loss).__name__
            raise InvalidInput(f"Torch(loss): it returns {kind}, which has no gradient; return a floating-point tensor")
        if slope and not loss.requires_grad:
            raise InvalidInput(
                "Torch(loss): it is detached from the parameters, so every gradient would be zero; take detach(), "
                ".data, .item() and torch.no_grad() out of the module and the loss"
            )
        return loss

    # --- Parameters ---------------------------------------------------------------------------------------

    def _sum(self, loss: Tensor, rows: int) -> Tensor:
        return loss.sum() * rows if self.averages else loss.sum()

    def _named(self, theta: Tensor) -> dict[str, Tensor]:
        parts = theta.split(self.counts)
        return {name: part.view(shape) for name, part, shape in zip(self.names, parts, self.shapes, strict=True)}

    def _copy(self, dtype: torch.dtype) -> Any:
        """Return this thread's module of the dtype."""
        if not hasattr(self._local, "modules"):
            self._local.modules, self._local.parameters = {}, {}
        if dtype not in self._local.modules:
            module = copy.deepcopy(self.module).to(dtype)
            own = dict(module.named_parameters())
            self._local.modules[dtype], self._local.parameters[dtype] = module, [own[name] for name in self.names]
        return self._local.modules[dtype]

    def module_at(self, theta: Tensor) -> Any:
        """Return this thread's module with the parameters `theta`, which are not copied."""
        module = self._copy(theta.dtype)
        for parameter, part in zip(self._local.parameters[theta.dtype], self._named(theta).values(), strict=True):
            parameter.data = part
        return module


def _outputs(module: Callable[[Tensor], object], x: Tensor) -> Tensor:
    """Return the module's outputs; refuse anything but a tensor of numbers with a gradient."""
    where = "Torch(module)" if len(x) > 1 else "Torch(module) on one row"
    out = call_function(where, module, x)
    if not isinstance(out, Tensor) or not out.is_floating_point():
        kind = out.dtype if isinstance(out, Tensor) else type(out).__name__
        raise InvalidInput(f"{where}: it returns {kind}; return one floating-point tensor, a row for each row")
    return out


# --- Checks of the user's module and loss ---------------------------------------------------------------


def check_rows(maths: Maths, reduction: str | None, x: Tensor, y: Tensor) -> str:
    """Return whether the loss is the "mean" or the "sum" over rows; refuse a module or a loss that mixes rows."""
    tries = []
    for number, point in enumerate(loss_reduction.points_to_try(maths.start())):
        theta = torch.tensor(point, dtype=x.dtype)
        if number == 0:
            _check_outputs(maths, theta, x)
            _check_slope(maths, theta, x, y)
        out = maths.outputs(theta, x)
        if number < loss_reduction.NEAR:
            _check_alone(maths, theta, x, out)
        with torch.no_grad():
            each = [float(maths.loss_of(out[i : i + 1], y[i : i + 1]).sum()) for i in range(len(y))]
            tries.append((np.array(each), float(maths.loss_of(out, y).sum())))
    return loss_reduction.decide("Torch", reduction, tries)


def _check_outputs(maths: Maths, theta: Tensor, x: Tensor) -> None:
    first, again = maths.outputs(theta, x), maths.outputs(theta, x)
    if first.shape != again.shape or not torch.allclose(first, again, rtol=0, atol=0, equal_nan=True):
        raise InvalidInput(
            "Torch: the module gives other outputs at the second call; take out dropout and other random layers"
        )


def _check_slope(maths: Maths, theta: Tensor, x: Tensor, y: Tensor) -> None:
    """Refuse a loss that is detached from the parameters."""
    with torch.enable_grad():
        maths.loss_of(_outputs(maths.module_at(theta), x), y, slope=True)


def _check_alone(maths: Maths, theta: Tensor, x: Tensor, out: Tensor) -> None:
    """Refuse a module whose outputs for a row depend on the other rows: minibatches would change its gradient."""
    for i in (0, len(x) // 2, len(x) - 1):
        alone = maths.outputs(theta, x[i : i + 1])
        among = out[i : i + 1]
        if alone.shape != among.shape:
            raise InvalidInput(
                f"Torch: the module's outputs have shape {tuple(alone.shape)} for one row and {tuple(out.shape)} for "
                f"{len(x)} rows; keep the rows as the first axis"
            )
        gap, scale = float((alone - among).abs().max()), float(out.abs().max())
        if gap > CLOSE * scale:
            raise InvalidInput(
                f"Torch: a row's outputs depend on the other rows (off by {gap:.2g} of {scale:.2g} where it is alone), "
                "as after x - x.mean(0) or batch norm; treat every row by itself, with torch.nn.LayerNorm or GroupNorm"
            )


def check_module(module: torch.nn.Module) -> None:
    """Refuse a module without parameters, or with a state besides them."""
    if not isinstance(module, torch.nn.Module):
        raise InvalidInput(f"Torch(module={module!r:.60}): give a torch.nn.Module")
    if not any(p.requires_grad for p in module.parameters()):
        raise InvalidInput(f"Torch({type(module).__name__}): no parameters to learn; give a module that has some")
    for name, parameter in module.named_parameters():
        if parameter.is_complex():
            raise InvalidInput(
                f"Torch: parameter {name!r} is complex ({parameter.dtype}), and theta is real; keep its real and "
                "imaginary parts as two parameters"
            )
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            raise InvalidInput(
                f"Torch: parameter {name!r} has a hook, which gradients of clients do not call; remove it, and change "
                "the loss instead"
            )
    for name, part in module.named_modules():
        where = f"Torch: layer {name or type(module).__name__!r} ({type(part).__name__})"
        share = getattr(part, "dropout", 0.0)
        if isinstance(part, torch.nn.modules.dropout._DropoutNd) or (isinstance(share, float) and share > 0):
            raise InvalidInput(f"{where} draws random numbers that do not depend on the run's seed; leave dropout out")
        held = next((n for n, _ in part.named_buffers(recurse=False)), None)
        if held is not None:
            raise InvalidInput(
                f"{where} holds the buffer {held!r}, which is neither learned nor sent; use torch.nn.GroupNorm "
                "instead of batch norm, or a parameter with requires_grad=False"
            )
