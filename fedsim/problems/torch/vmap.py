"""Gradients of many small jobs at once: blocks of a fixed size under `vmap`, each job's bits its own.

A job's bits must not depend on its neighbours or on how many there are. So blocks are padded to one of a few sizes, and
blocks of a shape are used only after jobs got the same bits in all sizes, in other places and next to other jobs.
Where they do not, or vmap refuses a layer, jobs are computed one by one.

`vmap` and `grad` take a millisecond per call for any network. A shape that is used often is therefore recorded once, as
a graph of tensor operations, and replayed; the recording must give the same bits.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from fedsim.problems.torch.gradients import Maths

SIZES = (32, 8, 2)  # jobs of a block
NUMBERS = 2**21  # parameters in a block at most: larger jobs use the processor fully by themselves
ROWS = 64  # rows of a job in a block at most, for the same reason
PAD = 4  # rows of a job are padded to a multiple of this
OFTEN = 50  # uses of a shape before it is recorded
_recording = threading.Lock()  # of all blocks: while torch records, it changes torch.nn.Module itself

Shape = tuple[torch.dtype, int, bool]  # rows, and whether some of them are padding
Gradients = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


class Blocks:
    """Blocks of jobs of one network: which shapes are exact, and their recordings."""

    def __init__(self, maths: Maths) -> None:
        self.maths = maths
        convolves = any(isinstance(m, torch.nn.modules.conv._ConvNd) for m in maths.module.modules())
        usable = [size for size in SIZES if size * maths.dim <= NUMBERS]
        self.sizes = () if convolves else tuple(usable)  # under vmap a convolution becomes a slow grouped one
        self.exact: dict[Shape, bool] = {}
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._uses: Counter[tuple[Shape, int]] = Counter()
        self._recorded: dict[tuple[Shape, int], Gradients] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_lock", "_uses", "_recorded")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def size(self, jobs: int) -> int:
        """Return the size of the next block of `jobs` jobs: the largest that is at least half full."""
        return next((size for size in self.sizes if size <= 2 * jobs), self.sizes[-1])

    def gradients(self, theta: Tensor, x: Tensor, y: Tensor, present: Tensor | None) -> Tensor | None:
        """Return the gradients of a block of jobs, (size, d); None where blocks of this shape are not exact."""
        shape = (theta.dtype, x.shape[1], present is not None)
        with self._lock:
            if shape not in self.exact:
                self.exact[shape] = self._is_exact(theta, x, y, present)
            if not self.exact[shape]:
                return None
            use = (shape, len(theta))
            self._uses[use] += 1
            if self._uses[use] == OFTEN:
                self._recorded[use] = self._record(theta, x, y, present)
            compute = self._recorded.get(use, self.maths.stacked)
        return compute(theta, x, y, present)

    def _record(self, theta: Tensor, x: Tensor, y: Tensor, present: Tensor | None) -> Gradients:
        """Return a recording of this block's shape, if it gives the same bits."""

        def stacked(theta: Tensor, x: Tensor, y: Tensor, present: Tensor | None) -> Tensor:
            return self.maths.stacked(theta, x, y, present)  # torch records only plain functions

        try:
            with _recording:
                graph: Gradients = make_fx(stacked)(theta, x, y, present)
        except Exception:  # a layer that cannot be recorded may raise anything
            return stacked

        def repeat(theta: Tensor, x: Tensor, y: Tensor, present: Tensor | None) -> Tensor:
            with torch.no_grad():
                return graph(theta, x, y, present)

        other = theta.flip(0), x.flip(0), y.flip(0), None if present is None else present.flip(0)
        same = all(torch.equal(repeat(*jobs), stacked(*jobs)) for jobs in ((theta, x, y, present), other))
        return repeat if same else stacked

    def _is_exact(self, theta: Tensor, x: Tensor, y: Tensor, present: Tensor | None) -> bool:
        """Return True if bits are equal in blocks of all sizes, in other places, and next to other jobs."""
        large = self.sizes[0]
        fill = torch.arange(large) % len(theta)
        theta, x, y = theta[fill], x[fill], y[fill]
        shift = torch.linspace(-1, 1, theta.numel(), dtype=theta.dtype).reshape(theta.shape)
        jobs = theta + 0.01 * shift.flip(1)  # padded blocks repeat a job; all must differ here
        if present is not None:
            present = present[fill]

        def at(places: Tensor) -> Tensor:
            return self.maths.stacked(jobs[places], x[places], y[places], None if present is None else present[places])

        try:
            expected = at(torch.arange(large))
            for places in (
                *(torch.roll(torch.arange(large), turn) for turn in (1, 7, 19)),
                torch.full((large,), min(5, large - 1)),  # the same job everywhere
                *(torch.arange(size) + first for size in self.sizes for first in (0, large - size)),
            ):
                if not torch.equal(at(places), expected[places]):
                    return False
        except RuntimeError:  # a layer that vmap refuses
            return False
        return True
