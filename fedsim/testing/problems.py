"""The contract of problems: gradients are sums over rows, and slopes of potentials and loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedsim import kernels, rng
from fedsim.arrays import Array
from fedsim.problems import weights_of
from fedsim.protocols import (
    HasLoss,
    HasPotential,
    HasShards,
    Potentials,
    ProblemLike,
    Rows,
    as_problem,
    potentials_of,
    potentials_one_by_one,
)
from fedsim.testing.contract import JOBS, Contract

STEPS = (1e-3, 1e-4, 1e-5, 1e-6)  # of finite differences: the best one depends on the loss
CLOSE = 1e-3  # relative difference of slopes, for single precision and kinks


def check_problem(problem: ProblemLike) -> list[str]:
    require = Contract(problem)
    _batches(problem, require)
    _rows(problem, require)
    _potentials(problem, require)
    _shards(problem, require)
    _loss(problem, require)
    return require.held


def _batches(problem: ProblemLike, require: Contract) -> None:
    """Check that batched and single gradients agree, and that no bit depends on other jobs of the batch."""
    theta, clients = _points(problem.dim, JOBS), np.arange(JOBS) % problem.clients
    cpu, start = kernels.backend("cpu"), np.arange(JOBS + 1)
    rows = (np.arange(JOBS) % problem.sizes[clients], start)
    for chosen, text in ((None, "full"), (rows, "minibatch")):
        full = cpu.gradients(problem, theta, clients, chosen)
        loop = kernels.backend("numpy").gradients(problem, theta, clients, chosen)
        agree = full.shape == theta.shape and np.allclose(full, loop, rtol=1e-9, atol=1e-9 * np.abs(loop).max())
        require(f"batched and single {text} gradients agree", agree, f"batched and single {text} gradients disagree")
        alone = [cpu.gradients(problem, theta[i : i + 1], clients[i : i + 1], _row(chosen, i))[0] for i in range(JOBS)]
        require(
            f"a {text} gradient does not depend on its neighbours", np.array_equal(full, alone),
            f"a {text} gradient's bits depend on its neighbours in the batch",
        )  # fmt: skip


def _row(rows: Rows, job: int) -> Rows:
    """Return the minibatch of one job, given minibatches of one row each."""
    return None if rows is None else (rows[0][job : job + 1], np.arange(2))


def _rows(problem: ProblemLike, require: Contract) -> None:
    """Check that gradients over even and odd rows add up to the full gradient."""
    backend = kernels.backend("numpy")
    for client in np.flatnonzero(np.asarray(problem.sizes) > 1)[:4]:
        theta, size = _points(problem.dim, 1), int(problem.sizes[client])
        one = np.array([client])
        full = backend.gradients(problem, theta, one, None)[0]
        parts = [np.arange(first, size, 2) for first in (0, 1)]
        even, odd = (backend.gradients(problem, theta, one, (p, np.array([0, len(p)])))[0] for p in parts)
        gap, scale = np.abs(even + odd - full).max(), np.abs(full).max()
        why = "it ignores rows" if np.allclose(even, full) else "it must be the plain sum over the given rows"
        require(
            f"client {client}'s gradients over parts of its rows add up", bool(gap <= CLOSE * scale),
            f"gradient(theta, {client}, rows) over the even and the odd rows does not add up to gradient(theta, "
            f"{client}): off by {gap:.2g} of {scale:.2g}; {why}",
        )  # fmt: skip


def _potentials(problem: ProblemLike, require: Contract) -> None:
    """Check that the slope of a client's potential is its gradient, over all or some rows."""
    if not isinstance(problem, HasPotential):
        return
    potentials, backend = potentials_of(problem), kernels.backend("numpy")
    theta, clients = _points(problem.dim, JOBS), np.arange(JOBS) % problem.clients
    some = (np.zeros(JOBS, np.int64), np.arange(JOBS + 1))  # every client's first row
    for rows, text in ((None, "full"), (some, "minibatch")):
        at_once = potentials(theta, clients, rows)
        alone = potentials_one_by_one(problem, theta, clients, rows)
        agree = at_once.shape == (JOBS,) and np.allclose(at_once, alone, rtol=1e-9, atol=1e-9 * np.abs(alone).max())
        require(f"batched and single {text} potentials agree", agree, f"batched and single {text} potentials disagree")
        each = [potentials(theta[i : i + 1], clients[i : i + 1], _row(rows, i))[0] for i in range(JOBS)]
        require(
            f"a {text} potential does not depend on its neighbours", np.array_equal(at_once, each),
            f"a {text} potential's bits depend on its neighbours in the batch",
        )  # fmt: skip
    points = _points(problem.dim, 2, stream=1)
    total = _gradients(problem, points)[0]
    for client in np.unique([0, problem.clients // 2, problem.clients - 1]):
        for size, of in ((0, "all its rows"), ((int(problem.sizes[client]) + 1) // 2, "some of its rows")):
            slope, function = np.empty_like(points), _of_client(potentials, client, size)
            for i, point in enumerate(points):
                chosen = (np.arange(size), np.array([0, size])) if size else None
                slope[i] = backend.gradients(problem, point[None], np.array([client]), chosen)[0]
            gap, of_total = (min(_difference(function, points, s, 1.0, h)[0] for h in STEPS) for s in (slope, total))
            why = f"its slope is off by {gap:.2g} of the gradient"
            if of_total <= CLOSE:
                why = "it is the sum over all clients; take the client's own rows and share of the prior alone"
            require(
                f"client {client}'s potential has the slope of its gradient over {of}", gap <= CLOSE,
                f"client {client}'s potential does not have the slope of its gradient over {of}: {why}",
            )  # fmt: skip


def _of_client(potentials: Potentials, client: int, size: int) -> Callable[[Array], Array]:
    """Return a client's potential over its first rows, or all, as a function of many points."""

    def function(points: Array) -> Array:
        n = len(points)
        rows = (np.tile(np.arange(size), n), size * np.arange(n + 1)) if size else None
        return potentials(points, np.full(n, client), rows)

    return function


def _shards(problem: ProblemLike, require: Contract) -> None:
    """Check that a shard gives its clients' gradients and potentials."""
    if not isinstance(problem, HasShards):
        return
    theta = _points(problem.dim, 1)
    for client in np.unique([0, problem.clients - 1]):
        one, backend = np.array([client]), kernels.backend("cpu")
        part = problem.shard(one)
        found = [[backend.gradients(p, theta, one, None)] for p in (problem, part)]
        if isinstance(problem, HasPotential):
            for p, values in zip((problem, part), found, strict=True):
                values.append(potentials_of(p)(theta, one, None))
        same = all(np.array_equal(a, b) for a, b in zip(*found, strict=True))
        require(
            f"client {client}'s shard is enough for its gradient and potential", same,
            f"client {client}'s gradient or potential on shard([{client}]) differs from that on the full problem",
        )  # fmt: skip


def _loss(problem: ProblemLike, require: Contract) -> None:
    """Check that the slope of the loss is the sum of the gradients, up to a factor."""
    if isinstance(problem, HasLoss):
        points = _points(problem.dim, 2, stream=1)
        total, weighted = _gradients(problem, points)
        prior = getattr(problem, "prior_precision", 0.0) * points  # a loss may omit it
        slopes = [total, total - prior] + ([weighted] if as_problem(problem).weights is not None else [])
        _follows("loss", problem.loss, points, slopes, require)


def _follows(
    name: str, function: Callable[[Array], Any], points: Array, slopes: list[Array], require: Contract
) -> None:  # fmt: skip
    """Check that differences of `function` are one of these slopes times a positive number."""
    value = np.asarray(function(points))
    require(
        f"{name}(theta) is one number for each row of theta", value.shape == (len(points),),
        f"{name}(theta) has shape {value.shape} for theta {points.shape}; it must be ({len(points)},)",
    )  # fmt: skip
    found = [_difference(function, points, slope, None, h) for slope in slopes for h in STEPS]
    gap, times = min(found, key=lambda pair: pair[0])
    flat = "it is flat or falls where they rise"
    how = flat if gap == np.inf else f"at best it is {times:.3g} times that, and then off by {gap:.2g} of it"
    require(
        f"{name} has the slope of the clients' gradients", gap <= CLOSE,
        f"{name} does not have the slope of the clients' gradients: its slope is not their sum times "
        f"a number; {how}",
    )  # fmt: skip


def _difference(
    function: Callable[[Array], Any], points: Array, slope: Array, factor: float | None, h: float
) -> tuple[float, float]:
    """Return the relative gap between differences and slopes, and the factor between them."""
    count, dim = points.shape
    size = np.linalg.norm(slope, axis=1)  # (points,)
    if not (np.isfinite(size).all() and size.all()):
        return np.inf, 0.0
    random = _points(dim, 3, stream=2)
    ways = np.stack([np.vstack([g / s, random / np.linalg.norm(random, axis=1, keepdims=True)]) for g, s in
                     zip(slope, size, strict=True)])  # (points, 4, d)  # fmt: skip
    ends = points[:, None, None] + h * np.array([1.0, -1.0])[:, None] * ways[:, :, None]  # (points, 4, 2, d)
    values = np.asarray(function(ends.reshape(-1, dim)), np.float64).reshape(count, 4, 2)
    rise = (values[..., 0] - values[..., 1]) / (2 * h)
    predicted = np.einsum("pwd,pd->pw", ways, slope)
    times = float((rise * predicted).sum() / (predicted**2).sum()) if factor is None else factor
    if not times > 0:
        return np.inf, times
    gap = float((np.abs(rise - times * predicted) / (times * size[:, None])).max())
    return (gap if np.isfinite(gap) else np.inf), times


def _gradients(problem: ProblemLike, points: Array) -> tuple[Array, Array]:
    """Return the sum of all clients' gradients, and sum_c p_c gradient_c / n_c, at every point."""
    backend, chunk = kernels.backend("numpy"), max(1, (1 << 22) // problem.dim)
    total, weighted = np.zeros_like(points), np.zeros_like(points)
    share = weights_of(problem) / problem.sizes
    for i, theta in enumerate(points):
        for first in range(0, problem.clients, chunk):
            clients = np.arange(first, min(first + chunk, problem.clients))
            each = backend.gradients(problem, np.repeat(theta[None], len(clients), 0), clients, None)
            total[i] += each.sum(axis=0)
            weighted[i] += share[clients] @ each
    return total, weighted


def _points(dim: int, count: int, stream: int = 0) -> Array:
    return rng.normal(rng.keys(1, rng.Stream.USER, client=np.arange(count), round=stream), dim)
