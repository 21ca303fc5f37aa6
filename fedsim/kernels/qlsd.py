# mypy: allow-untyped-defs, disable-error-code="import-untyped,attr-defined,untyped-decorator"
"""The gradients that QLSD's clients compress, compiled: minibatches are drawn and summed up in one pass.

Jobs are visited client by client, so that a client's rows are fetched once and its jobs' random words fill the
lanes of the vector units together. What a job yields does not depend on the jobs beside it.

    rows      (clients,) rows of a minibatch; None: all of the client's
    key       uint32 (jobs, 4) keys of the minibatches; None without them
    control   (jobs, d): the gradient of the same rows at this point is subtracted; None: it is not
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.kernels.draws import below, fill_words
from fedsim.kernels.elementary import exp32, exp64, f32, jit, u32

Array = npt.NDArray[Any]
LANES = 64  # jobs of a client whose random words are made together,
WORDS = 16384  # as long as these stay in the first-level cache
TILE = 64  # rows whose linear predictors are held at once


# --- Minibatches -----------------------------------------------------------------------------------


@jit
def _group(client, order, begin, lanes):
    """Where the jobs of order[begin]'s client end, or `lanes` of them."""
    c, end = client[order[begin]], begin
    while end < len(order) and end - begin < lanes and client[order[end]] == c:
        end += 1
    return end


@jit
def _words(key, jobs, blocks, lane, words):
    """Random words of the first `blocks` blocks of every job: words[4 b + i, j] is word i of block b of job j."""
    n = len(jobs)
    for j in range(n):
        k = key[jobs[j]]
        lane[0, j], lane[1, j], lane[2, j], lane[3, j] = k[0], k[1], k[2], k[3]
    for b in range(blocks):
        lane[4, :n] = u32(b)
        w = words[4 * b : 4 * b + 4]
        fill_words(lane[4, :n], u32(0), lane[0], lane[1], lane[2], lane[3], w[0], w[1], w[2], w[3])


@jit
def _choose(words, j, population, place, out):
    """The same choice as `draws.choose`, from words that are there. `place` is 0, 1, 2, ... before and after."""
    size = len(out)
    for r in range(size):
        at = 2 * r
        target = r + np.int64(below(words[at, j], words[at + 1, j], population - r))
        place[r], place[target] = place[target], place[r]
        out[r] = place[r]
    for r in range(size):
        place[out[r]] = out[r]
        place[r] = r


@jit
def _widest(client, offsets, rows):
    """The largest minibatch and the largest client of a batch."""
    most, largest = 0, 0
    for c in client:
        most = max(most, rows[c])
        largest = max(largest, offsets[c + 1] - offsets[c])
    return most, largest


# --- Gaussian means --------------------------------------------------------------------------------


@jit
def _add_rows(x, chosen, total):
    """Rows one after the other; four at a time, so that the total is fetched and stored less often."""
    d, whole = len(total), len(chosen) // 4 * 4
    total[:] = 0
    for r in range(0, whole, 4):
        a, b, c, e = x[chosen[r]], x[chosen[r + 1]], x[chosen[r + 2]], x[chosen[r + 3]]
        for i in range(d):
            total[i] = total[i] + a[i] + b[i] + c[i] + e[i]
    for r in range(whole, len(chosen)):
        a = x[chosen[r]]
        for i in range(d):
            total[i] += a[i]


@jit
def _precise(diagonal, precision, c, scale, total, out):
    """out = scale P_c total; a diagonal P is given by its diagonal, and there may be one P for all."""
    d = len(total)
    if len(diagonal):
        p = diagonal[c if len(diagonal) > 1 else 0]
        for i in range(d):
            out[i] = scale * (p[i] * total[i])
        return
    full = precision[c if len(precision) > 1 else 0]
    out[:] = 0
    for k in range(d):  # P is symmetric: its rows are its columns
        row, t = full[k], total[k]
        for i in range(d):
            out[i] += row[i] * t
    for i in range(d):
        out[i] *= scale


@jit
def _gaussian(theta, x, offsets, diagonal, precision, client, order, rows, key, out):
    jobs, d = theta.shape
    cast = theta.dtype.type
    most, largest = _widest(client, offsets, rows)
    lanes = max(1, min(LANES, WORDS // (2 * most + 2)))
    lane, words = np.empty((5, lanes), np.uint32), np.empty((2 * most + 2, lanes), np.uint32)
    place, chosen, total = np.arange(largest), np.empty(most, np.int64), np.empty(d, theta.dtype)
    begin = 0
    while begin < jobs:
        end = _group(client, order, begin, lanes)
        c = client[order[begin]]
        own, m = x[offsets[c] : offsets[c + 1]], rows[c]
        count, scale = cast(m), cast(len(own) / m)
        _words(key, order[begin:end], (m + 1) // 2, lane, words)
        for j in range(end - begin):
            job = order[begin + j]
            _choose(words, j, len(own), place, chosen[:m])
            _add_rows(own, chosen[:m], total)
            t = theta[job]
            for i in range(d):
                total[i] = count * t[i] - total[i]
            _precise(diagonal, precision, c, scale, total, out[job])
        begin = end


@jit
def _gaussian_whole(theta, control, sums, sizes, diagonal, precision, client, out):
    """Of all rows; with a control point the data drop out of the difference, and so does any minibatch."""
    jobs, d = theta.shape
    one, total = theta.dtype.type(1), np.empty(d, theta.dtype)
    for job in range(jobs):
        c = client[job]
        t, count = theta[job], theta.dtype.type(sizes[c])
        if len(control):
            z = control[job]
            for i in range(d):
                total[i] = count * (t[i] - z[i])
        else:
            s = sums[c]
            for i in range(d):
                total[i] = count * t[i] - s[i]
        _precise(diagonal, precision, c, one, total, out[job])


def gaussian_gradients(
    theta: Array, control: Array | None, x: Array, offsets: Array, sums: Array, diagonal: Array, precision: Array,
    client: Array, rows: Array | None, key: Array | None,
) -> Array:  # fmt: skip
    """(n / m) sum of P (theta - x_row), the prior left out.

    `sums` (clients, d) are of all rows; P is `diagonal` (1 or clients, d), or, if that is empty, `precision` (1 or
    clients, d, d).
    """
    theta = np.ascontiguousarray(theta)
    out = np.empty_like(theta)
    if rows is None or control is not None:
        at = theta[:0] if control is None else np.ascontiguousarray(control)
        _gaussian_whole(theta, at, sums, np.diff(offsets), diagonal, precision, client, out)
    else:
        _gaussian(theta, x, offsets, diagonal, precision, client, by_client(client), rows, key, out)
    return out


# --- Logistic regression ---------------------------------------------------------------------------


@jit
def _predictors(x, chosen, t, z):
    """Linear predictors of the chosen rows, each in four partial sums."""
    d = len(t)
    for r in range(len(chosen)):
        row = x[chosen[r]]
        a0, a1, a2, a3 = z.dtype.type(0), z.dtype.type(0), z.dtype.type(0), z.dtype.type(0)
        for i in range(0, d - 3, 4):
            a0 += row[i] * t[i]
            a1 += row[i + 1] * t[i + 1]
            a2 += row[i + 2] * t[i + 2]
            a3 += row[i + 3] * t[i + 3]
        for i in range(d - d % 4, d):
            a0 += row[i] * t[i]
        z[r] = (a0 + a1) + (a2 + a3)


@jit
def _sigmoid64(z):
    for r in range(len(z)):
        z[r] = 1.0 / (1.0 + exp64(-z[r]))


@jit
def _sigmoid32(z):
    for r in range(len(z)):
        z[r] = f32(1) / (f32(1) + exp32(-z[r]))


@jit
def _probabilities(x, chosen, t, z):
    _predictors(x, chosen, t, z)
    if z.itemsize == 4:
        _sigmoid32(z.view(np.float32))
    else:
        _sigmoid64(z.view(np.float64))


@jit
def _add_residuals(x, y, chosen, t, control, z, w, g):
    """g += sum over the chosen rows of (p(x t) - y) x, or of (p(x t) - p(x control)) x."""
    for begin in range(0, len(chosen), TILE):
        tile = chosen[begin : begin + TILE]
        n = len(tile)
        _probabilities(x, tile, t, z[:n])
        if len(control):
            _probabilities(x, tile, control, w[:n])
        else:
            for r in range(n):
                w[r] = y[tile[r]]
        for r in range(n):
            row, residual = x[tile[r]], z[r] - w[r]
            for i in range(len(g)):
                g[i] += residual * row[i]


@jit
def _logistic(theta, control, x, y, offsets, client, order, rows, key, out):
    jobs, d = theta.shape
    cast = theta.dtype.type
    most, largest = _widest(client, offsets, rows)
    lanes = max(1, min(LANES, WORDS // (2 * most + 2)))
    lane, words = np.empty((5, lanes), np.uint32), np.empty((2 * most + 2, lanes), np.uint32)
    place, chosen = np.arange(largest), np.empty(most, np.int64)
    z, w = np.empty(TILE, theta.dtype), np.empty(TILE, theta.dtype)
    begin = 0
    while begin < jobs:
        end = _group(client, order, begin, lanes)
        c = client[order[begin]]
        own, labels, m = x[offsets[c] : offsets[c + 1]], y[offsets[c] : offsets[c + 1]], rows[c]
        scale = cast(len(own) / m)
        if len(key):
            _words(key, order[begin:end], (m + 1) // 2, lane, words)
        for j in range(end - begin):
            job = order[begin + j]
            g = out[job]
            g[:] = 0
            if len(key):
                _choose(words, j, len(own), place, chosen[:m])
            at = control[job] if len(control) else theta[0, :0]
            _add_residuals(own, labels, chosen[:m] if len(key) else place[:m], theta[job], at, z, w, g)
            for i in range(d):
                g[i] *= scale
        begin = end


def logistic_gradients(
    theta: Array, control: Array | None, x: Array, y: Array, offsets: Array, client: Array, rows: Array | None,
    key: Array | None,
) -> Array:  # fmt: skip
    """(n / m) sum of (p(x_row theta) - y_row) x_row, the prior left out."""
    theta = np.ascontiguousarray(theta)
    out = np.empty_like(theta)
    at = theta[:0] if control is None else np.ascontiguousarray(control)
    count = np.diff(offsets) if rows is None else rows
    drawn = np.empty((0, 4), np.uint32) if rows is None or key is None else key
    _logistic(theta, at, x, y, offsets, client, by_client(client), count, drawn, out)
    return out


def by_client(client: Array) -> Array:
    """The jobs in the order of their clients."""
    return np.argsort(client, kind="stable")
