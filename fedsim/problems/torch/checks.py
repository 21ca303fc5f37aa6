"""What a module and a loss must be like for a client's gradient to be the sum over its rows; all else is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedsim.checks import call_function
from fedsim.errors import InvalidInput
from fedsim.problems import reductions

if TYPE_CHECKING:
    from fedsim.problems.torch.gradients import Maths

CLOSE = 1e-5  # of the largest output: a row alone and among others


def check_rows(maths: Maths, reduction: str | None, x: Tensor, y: Tensor) -> str:
    """Return whether the loss is the "mean" or the "sum" over rows; refuse a module or a loss that mixes rows."""
    tries = []
    for number, point in enumerate(reductions.points_to_try(maths.start())):
        theta = torch.tensor(point, dtype=x.dtype)
        if number == 0:
            _check_outputs(maths, theta, x)
            _check_slope(maths, theta, x, y)
        out = maths.outputs(theta, x)
        if number < reductions.NEAR:
            _check_alone(maths, theta, x, out)
        with torch.no_grad():
            each = [float(maths.criterion(out[i : i + 1], y[i : i + 1]).sum()) for i in range(len(y))]
            tries.append((np.array(each), float(maths.criterion(out, y).sum())))
    return reductions.decide("Torch", reduction, tries)


def _check_outputs(maths: Maths, theta: Tensor, x: Tensor) -> None:
    first = call_function("Torch(module)", maths.outputs, theta, x)
    if not torch.allclose(first, maths.outputs(theta, x), rtol=0, atol=0, equal_nan=True):
        raise InvalidInput(
            "Torch: the module gives other outputs at the second call; take out dropout and other random layers"
        )


def _check_slope(maths: Maths, theta: Tensor, x: Tensor, y: Tensor) -> None:
    """Refuse a loss that autograd cannot follow back to the parameters."""
    with torch.enable_grad():
        loss = call_function("Torch(loss)", lambda: maths.criterion(maths.module_at(theta)(x), y))
    if not isinstance(loss, Tensor) or not loss.is_floating_point():
        kind = loss.dtype if isinstance(loss, Tensor) else type(loss).__name__
        raise InvalidInput(f"Torch(loss): it returns {kind}, which has no gradient; return a floating-point tensor")
    if not loss.requires_grad:
        raise InvalidInput(
            "Torch(loss): it is detached from the parameters, so every gradient would be zero; take detach(), .data, "
            ".item() and torch.no_grad() out of the module and the loss"
        )


def _check_alone(maths: Maths, theta: Tensor, x: Tensor, out: Tensor) -> None:
    """Refuse a module whose outputs for a row depend on the other rows: minibatches would change its gradient."""
    for i in (0, len(x) // 2, len(x) - 1):
        alone = call_function("Torch(module) on one row", maths.outputs, theta, x[i : i + 1])
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
    """Refuse what has no flat parameters, or a state beside them."""
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
            raise InvalidInput(f"{where} draws at random, which no seed of a run decides; leave dropout out")
        held = next((n for n, _ in part.named_buffers(recurse=False)), None)
        if held is not None:
            raise InvalidInput(
                f"{where} holds the buffer {held!r}, which is neither learnt nor sent; use torch.nn.GroupNorm "
                "instead of batch norm, or a parameter with requires_grad=False"
            )
