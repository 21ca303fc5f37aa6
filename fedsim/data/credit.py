"""GiveMeSomeCredit as Perdomo, Zrnic, Mendler-Duenner and Hardt (ICML 2020) prepare it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedsim import rng
from fedsim.arrays import Array
from fedsim.checks import floats_of
from fedsim.errors import CorruptData

if TYPE_CHECKING:
    import pandas as pd

LABEL = "SeriousDlqin2yrs"
OTHERS = 10_000  # rows without a default that are kept: the first so many


def prepare(frame: pd.DataFrame) -> tuple[Array, Array]:
    """Rows (n, 11) with an intercept last, and labels, 1 for a default, in a fixed random order.

    Rows with a gap are dropped, features are standardised over all rows that remain, then all defaults and the first
    10,000 others are kept: 18,357 of them. (The order is ours; theirs is NumPy's shuffle with seed 0.)
    """
    if LABEL not in frame.columns or frame.shape[1] != 12:
        raise CorruptData(f"credit: the table must have 12 columns, one of them {LABEL}; this is another file")
    frame = frame.drop(columns=frame.columns[0]).dropna()
    y, x = (floats_of(part.to_numpy()) for part in (frame.pop(LABEL), frame))
    if x is None or y is None or not np.isfinite(x).all() or not np.isin(y, (0, 1)).all():
        raise CorruptData("credit: the table must hold finite numbers, and labels 0 and 1; this is another file")
    if not len(x) or (np.ptp(x, axis=0) == 0).any():
        raise CorruptData("credit: the table has a column without two different numbers; this is another file")
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    kept = np.concatenate([np.flatnonzero(y == 1), np.flatnonzero(y == 0)[:OTHERS]])
    kept = kept[np.argsort(rng.uniform(rng.keys(0, rng.Stream.DATA), len(kept))[0], kind="stable")]
    return np.column_stack([x[kept], np.ones(len(kept))]), y[kept].astype(np.uint8)
