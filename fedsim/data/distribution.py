"""Labels per client, as a table and as a picture, and checks of partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.checks import as_array
from fedsim.errors import InvalidInput
from fedsim.text import short_repr


def labels_of(name: str, y: object, what: str = "labels") -> Array:
    """Return one label per row, numbers or strings, as an array (n,)."""
    labels = as_array(y)
    if labels is None and not isinstance(y, range | str | bytes):
        try:
            words = np.asarray(y)
        except Exception:  # a user's own conversion may raise anything
            words = np.zeros(0)
        if words.dtype.kind == "U" or (words.dtype.kind == "O" and all(isinstance(w, str) for w in words.flat)):
            labels = words.astype(np.str_)
    if labels is None:
        raise InvalidInput(f"{name}: {what} {short_repr(y, 40)} are neither numbers nor strings; give one per row")
    if labels.ndim != 1 or not len(labels):
        raise InvalidInput(f"{name}: {what} have shape {labels.shape}; give one per row")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InvalidInput(f"{name}: {what} contain a NaN or an infinity; give finite labels")
    return labels


def check(parts: Sequence[Any], rows: int) -> list[Array]:
    """Return `parts` as index arrays; every row has at most one client, every client at least one row."""
    parts = parts if isinstance(parts, list | tuple | np.ndarray) else ()
    try:
        arrays = [np.asarray(p, np.int64) for p in parts if np.asarray(p).dtype.kind in "iu"]
    except (TypeError, ValueError):
        arrays = []
    if not arrays or len(arrays) != len(parts) or any(a.ndim != 1 for a in arrays):
        raise InvalidInput("shards: give a list of arrays of row numbers, one per client, as fs.data.iid(...) does")
    for c, indices in enumerate(arrays):
        if not len(indices):
            raise InvalidInput(f"shards[{c}] is empty; leave the client out or give it at least one row")
        if indices.min() < 0 or indices.max() >= rows:
            raise InvalidInput(f"shards[{c}] has row {indices.max()}; rows are numbered 0 to {rows - 1}")
    times = np.bincount(np.concatenate(arrays), minlength=rows)
    if times.max() > 1:
        raise InvalidInput(f"shards: row {int(np.argmax(times))} has {times.max()} clients; assign every row to one")
    return arrays


def label_counts(y: npt.ArrayLike, shards: Sequence[Any]) -> Any:
    """Return a pandas table with the number of rows of each client (row) and label (column), and their sum."""
    import pandas as pd

    y = labels_of("label_counts", y)
    parts = check(shards, len(y))
    labels, place = np.unique(y, return_inverse=True)
    counts = np.stack([np.bincount(place[rows], minlength=len(labels)) for rows in parts])
    frame = pd.DataFrame(counts, columns=pd.Index(labels.tolist(), name="label"))
    frame["rows"] = counts.sum(axis=1)
    frame.index.name = "client"
    return frame


def draw_label_counts(y: npt.ArrayLike, shards: Sequence[Any]) -> Any:
    """Return a matplotlib figure with a bar per client and a colour per label."""
    from matplotlib.figure import Figure

    counts = label_counts(y, shards)
    labels = [c for c in counts.columns if c != "rows"]
    figure = Figure(figsize=(min(16, 4 + 0.12 * len(counts)), 4), layout="constrained")
    axes = figure.subplots()
    below = np.zeros(len(counts))
    colours = _colours(len(labels))
    for label, colour in zip(labels, colours, strict=True):
        axes.bar(counts.index, counts[label], 0.9, bottom=below, color=colour, label=str(label))
        below += counts[label].to_numpy()
    axes.margins(x=0.01)
    axes.set_xlabel("client")
    axes.set_ylabel("rows")
    axes.spines[["top", "right"]].set_visible(False)
    if len(labels) <= 20:
        axes.legend(title="label", frameon=False, loc="upper left", bbox_to_anchor=(1, 1), fontsize=8)
    return figure


def _colours(count: int) -> list[Any]:
    from matplotlib import colormaps

    if count <= 10:
        return list(colormaps["tab10"].colors[:count])  # type: ignore[attr-defined]
    return list(colormaps["viridis"](np.linspace(0, 1, count)))
