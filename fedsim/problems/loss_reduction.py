"""The reduction of a user's loss over rows, mean or sum: an argument, or determined by a few evaluations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsim import rng
from fedsim.arrays import Array
from fedsim.checks import check_choice
from fedsim.errors import InvalidInput

ROWS = 32  # rows spread evenly, and as many of different labels
NEAR = 3  # points to try that are close to the start
CLOSE = 1e-4  # of the rows' absolute losses


def rows_to_try(y: Array) -> Array:
    """Return a few row numbers, at least two: evenly spread ones, and rows of different labels, which may be rare."""
    spread = np.arange(0, len(y), -(-len(y) // ROWS))
    labels = np.unique(y.reshape(len(y), -1).sum(axis=1), return_index=True)[1]
    found = np.union1d(spread, labels[:: -(-len(labels) // ROWS)])
    return np.resize(found, max(2, len(found)))


def points_to_try(start: Array) -> list[Array]:
    """Return parameters around the start, where a loss is rarely zero on all rows even if it is zero at the start."""
    shift = rng.normal(rng.keys(0, rng.Stream.START), len(start))[0]
    return [start, start + 0.1 * shift, start - 0.1 * shift, start + shift]


def decide(name: str, given: str | None, tries: Sequence[tuple[Array, float]]) -> str:
    """Return "mean" or "sum", given the rows' own losses (rows,) and the loss of all of them at every point."""
    check_choice(f"{name}(reduction={{!r}})", given, (None, "mean", "sum"))
    if not _finite(*tries[0]):
        raise InvalidInput(f"{name}(loss): it is not finite at the initial parameters; change them")
    finite = [(rows, total) for rows, total in tries if _finite(rows, total)]
    fits = [kind for kind in ("mean", "sum") if all(_fits(kind, rows, total) for rows, total in finite)]
    if not fits:
        raise InvalidInput(
            f"{name}(loss): on several rows it is neither the mean nor the sum of each row's own loss; weight rows "
            "within a sum, as torch.nn.CrossEntropyLoss(weight=..., reduction='sum') does, and regularise by "
            "prior_precision"
        )
    if given is None and len(fits) == 2:
        raise InvalidInput(
            f"{name}(loss): on {len(tries[0][0])} rows at {len(finite)} points it equals both the mean and the sum of "
            "the rows' own losses, as zero does; set reduction='mean' or reduction='sum'"
        )
    if given is not None and given not in fits:
        raise InvalidInput(
            f"{name}(reduction={given!r}): on {len(tries[0][0])} rows the loss is the {fits[0]} of the rows' own; "
            f"write reduction={fits[0]!r}"
        )
    return given or fits[0]


def _finite(rows: Array, total: float) -> bool:
    return bool(np.isfinite(rows).all() and np.isfinite(total))


def _fits(kind: str, rows: Array, total: float) -> bool:
    combined, scale = (getattr(part, kind)() for part in (rows, np.abs(rows)))
    return bool(abs(total - combined) <= CLOSE * scale)
