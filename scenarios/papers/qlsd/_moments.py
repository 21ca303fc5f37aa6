"""Exact moments of QLSD, QLSD#, QLSD* and QLSD++ on quadratic potentials, and the constants of the theorems.

Row j of client i has U_ij(theta) = sum_c h_ijc (theta_c - y_ijc)^2 / 2. The quantiser keeps a coordinate with
probability 1/(1 + omega) and scales it up, so that E|C(v) - v|^2 = omega |v|^2 for every v, the equality of H2; QSGD's
own second moment is no polynomial. Coordinates then differ only in numbers, and second moments follow a linear map.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import _toy
import numpy as np

from fedsim.arrays import Array

T, Z, O, ONE, E = (
    0,
    1,
    2,
    3,
    4,
)  # theta - theta*, zeta - theta*, the diffusion - theta*, 1, first e_i - grad U_i(theta*)


@dataclass(frozen=True, eq=False)
class Clients:
    """Sums over the rows of each client: of h, its spread, and the gradients at theta* with their spread."""

    sizes: Array  # (b,) N_i
    batch: Array  # (b,) n_i
    H: Array  # (b, d) sum of h
    V: Array  # (b, d) sum of (h - mean h)^2
    G: Array  # (b, d) grad U_i(theta*)
    C: Array  # (b, d) sum of (h - mean h) g
    W: Array  # (b, d, d) sum of (g - mean g)(g - mean g)'
    top: float  # the largest h
    noise: float = 0.0  # variance of an additive gradient noise, of every client and coordinate

    @classmethod
    def of(cls, rows: list[Array], h: list[Array], batch: float | int) -> Clients:
        """`rows` are (N_i, d), `h` are (N_i, d), `batch` is n_i or the share n_i/N_i."""
        curvature = sum(own.sum(axis=0) for own in h)
        optimum = sum((own * x).sum(axis=0) for own, x in zip(h, rows, strict=True)) / curvature
        g = [own * (optimum - x) for own, x in zip(h, rows, strict=True)]
        centred = [(own - own.mean(axis=0), one - one.mean(axis=0)) for own, one in zip(h, g, strict=True)]
        sizes = np.array([len(x) for x in rows], np.float64)
        n = np.maximum(1, np.floor(sizes * batch)) if isinstance(batch, float) else np.full(len(rows), float(batch))
        return cls(
            sizes, np.minimum(n, sizes), np.array([own.sum(axis=0) for own in h]),
            np.array([(own**2).sum(axis=0) for own, _ in centred]), np.array([one.sum(axis=0) for one in g]),
            np.array([(own * one).sum(axis=0) for own, one in centred]),
            np.array([one.T @ one for _, one in centred]), max(float(own.max()) for own in h),
        )  # fmt: skip

    def repeated(self, times: float) -> Clients:
        """Return clients with every row so often, in batches of the same n_i."""
        sums = {name: times * getattr(self, name) for name in ("sizes", "H", "V", "G", "C", "W")}
        return replace(self, **sums)

    @property
    def dim(self) -> int:
        return int(self.H.shape[1])

    @property
    def curvature(self) -> Array:
        """Return the diagonal of U's Hessian; the posterior's variances are its inverse."""
        return self.H.sum(axis=0)

    @property
    def m(self) -> float:
        return float(self.curvature.min())

    @property
    def L(self) -> float:
        return float(self.curvature.max())

    @property
    def A(self) -> Array:
        """Return A_{n,N} of (S36)."""
        N, n = self.sizes, self.batch
        return N * (N - n) / (n * np.maximum(N - 1, 1e-300))


@dataclass(frozen=True)
class Chain:
    """One of the algorithms "qlsd" (full gradients and additive noise), "sharp", "star" and "plus"."""

    kind: str
    omega: Array | float = 0.0
    p: Array | float = 1.0
    weighting: str = "inverse"  # 1/p_i; "count": b/|A|, and for an empty A nothing; "nonempty": A is never empty
    alpha: float | None = None  # None: 1/(1 + the largest omega)
    refresh: int = 1
    memory: str = "active"  # alpha m_i, algorithm 2; "inverse": alpha m_i/p_i, (S45)

    def arrays(self, b: int) -> tuple[Array, Array]:
        return np.broadcast_to(self.omega, b).astype(float), np.broadcast_to(self.p, b).astype(float)

    @property
    def rate(self) -> float:
        return 1 / (1 + float(np.max(self.omega))) if self.alpha is None else self.alpha

    def draws(self, b: int) -> tuple[Array, ...]:
        """Return E a_i, E r_i, E a_i a_j, E a_i r_j and E r_i r_j: the factors of a message in theta and in e_i."""
        p = self.arrays(b)[1]
        both = np.outer(p, p) + np.diag(p * (1 - p))
        if self.weighting == "inverse":
            a = 1 / p
            r = a if self.memory == "inverse" else np.ones(b)
            return a * p, r * p, both * np.outer(a, a), both * np.outer(a, r), both * np.outer(r, r)
        sums = [0.0] * 5
        for active in product((0.0, 1.0), repeat=b):
            own = np.array(active)
            chance = float(np.prod(np.where(own > 0, p, 1 - p)))
            if not own.any():
                continue
            a = own * b / own.sum()
            for at, value in enumerate((a, own, np.outer(a, a), np.outer(a, own), np.outer(own, own))):
                sums[at] = sums[at] + chance * value
        scale = 1 / (1 - np.prod(1 - p)) if self.weighting == "nonempty" else 1.0
        return tuple(scale * np.asarray(one) for one in sums)

    # --- One step -----------------------------------------------------------------------------------------------

    def start(self, q: Clients, theta: Array) -> Array:
        """Return the second moments at iteration 0, (d, k, k): theta - theta* fixed, e_i = 0, the diffusion at pi."""
        size = E + (len(q.H) if self.kind == "plus" else 0)
        x = np.zeros((q.dim, size))
        x[:, T] = x[:, Z] = theta
        x[:, ONE] = 1
        if self.kind == "plus":
            x[:, E:] = -q.G.T
        S = x[:, :, None] * x[:, None, :]
        S[:, O, O] = 1 / q.curvature
        return S

    def batches(self, q: Clients, S: Array) -> Array:
        """Return the variance of a minibatch's gradient, (b, d)."""
        A = q.A[:, None]
        if self.kind == "qlsd":
            return np.full_like(q.H, q.noise)
        if self.kind == "star":
            return A * q.V * S[:, T, T]
        if self.kind == "plus":
            return A * q.V * (S[:, T, T] - 2 * S[:, T, Z] + S[:, Z, Z])
        W = np.einsum("bcc->bc", q.W)
        return A * (q.V * S[:, T, T] + 2 * q.C * S[:, T, ONE] + W * S[:, ONE, ONE])

    def step(self, q: Clients, S: Array, gamma: float, k: int, draws: tuple[Array, ...]) -> tuple[Array, Array]:
        """Return the second moments after step k, and the variance of the gradient estimate, (d,)."""
        b, size = len(q.H), S.shape[1]
        a, r, aa, ar, rr = draws
        omega, rate = self.arrays(b)[0], self.rate
        if self.kind == "plus" and k % self.refresh == 0:
            S = S.copy()
            S[:, Z] = S[:, T]
            S[:, :, Z] = S[:, :, T]
        v = np.zeros((q.dim, b, size))
        v[:, :, T] = q.H.T
        if self.kind == "plus":
            v[:, np.arange(b), E + np.arange(b)] = -1
        elif self.kind != "star":
            v[:, :, ONE] = q.G.T
        move = np.zeros((q.dim, size, size)) + np.eye(size)
        move[:, T] -= gamma * np.einsum("b,cbk->ck", a, v)
        if self.kind == "plus":
            move[:, T, E:] -= gamma
            move[:, E:] += rate * r[:, None] * v
        decay = np.exp(-gamma * q.curvature)
        move[:, O, O] = decay
        P = np.einsum("cbk,ckl,cel->cbe", v, S, v)
        extra = (omega[:, None] * np.einsum("cbb->bc", P) + (omega[:, None] + 1) * self.batches(q, S)).T  # (d, b)
        own = np.einsum("be,cbe->c", aa - np.outer(a, a), P) + extra @ np.diag(aa)
        new = move @ S @ move.transpose(0, 2, 1)
        new[:, T, T] += gamma**2 * own + 2 * gamma
        if self.kind == "plus":
            cross = np.einsum("be,cbe->ce", ar - np.outer(a, r), P) + extra * np.diag(ar)
            new[:, T, E:] -= gamma * rate * cross
            new[:, E:, T] -= gamma * rate * cross
            new[:, E:, E:] += rate**2 * ((rr - np.outer(r, r)) * P + extra[:, :, None] * np.diag(np.diag(rr)))
        spread = (1 - decay**2) / q.curvature
        new[:, O, O] += spread
        new[:, T, O] += np.sqrt(2 * gamma * spread)
        new[:, O, T] = new[:, T, O]
        return new, own

    def path(self, q: Clients, theta: Array, gamma: float, steps: int) -> Iterator[tuple[Array, Array]]:
        """Yield the second moments of iterations 0 to `steps`, and the variance of the next gradient."""
        S, draws = self.start(q, theta), self.draws(len(q.H))
        for k in range(steps + 1):
            new, own = self.step(q, S, gamma, k, draws)
            yield S, own
            S = new


def w2_between(S: Array, q: Clients) -> tuple[float, float]:
    """Return bounds of W2^2 to the posterior: by the moments, and by the coupling with the diffusion."""
    mean = S[:, T, ONE]
    sd = np.sqrt(np.maximum(S[:, T, T] - mean**2, 0))
    low = (mean**2 + (sd - q.curvature**-0.5) ** 2).sum()
    return float(low), float((S[:, T, T] - 2 * S[:, T, O] + S[:, O, O]).sum())


# --- Stationary laws of clients with one curvature in all coordinates -----------------------------------------------


def stationary(chain: Chain, q: Clients, gamma: float) -> Array:
    """Return the covariance of the stationary law, (d, d); infinite where the second moment has no limit."""
    if chain.kind == "plus":
        return _periodic(chain, q, gamma) * np.eye(q.dim)
    b = len(q.H)
    a, _, aa, _, _ = chain.draws(b)
    omega = chain.arrays(b)[0]
    H, V, own = q.H[:, 0], q.V[:, 0], np.diag(aa)
    mixed = aa - np.outer(a, a)
    keep = (1 - gamma * (a @ H)) ** 2 + gamma**2 * (H @ mixed @ H)
    thinned = gamma**2 * (own * omega) @ H**2
    noise = 2 * gamma * np.eye(q.dim)
    if chain.kind == "star":
        keep += gamma**2 * own @ (q.A * V)
        thinned += gamma**2 * (own * omega) @ (q.A * V)
    else:
        G = np.einsum("ic,jd,ij->cd", q.G, q.G, mixed)
        diagonal = (own * omega) @ q.G**2
        if chain.kind == "sharp":
            keep += gamma**2 * own @ (q.A * V)
            thinned += gamma**2 * (own * omega) @ (q.A * V)
            G += np.einsum("i,icd->cd", own * q.A, q.W)
            diagonal += (own * omega * q.A) @ np.einsum("icc->ic", q.W)
        else:
            diagonal += own @ (omega + 1) * q.noise
        noise += gamma**2 * (G + np.diag(diagonal))
    off = 1 - keep
    on = off - thinned
    if on <= 0 or off <= 0:
        return np.full((q.dim, q.dim), np.inf)
    eye = np.eye(q.dim, dtype=bool)
    return np.where(eye, noise / on, noise / off)


def _periodic(chain: Chain, q: Clients, gamma: float) -> float:
    """Return the variance of a coordinate of QLSD++ at its control points; coordinates are equal, without G."""
    b = len(q.H)
    size = E + b
    pairs = [(i, j) for i in range(size) for j in range(i, size) if i not in (O, ONE, Z) and j not in (O, ONE, Z)]
    one = Clients(q.sizes, q.batch, q.H[:, :1], q.V[:, :1], 0 * q.G[:, :1], q.C[:, :1], q.W[:, :1, :1], q.top)
    many = {name: np.repeat(getattr(one, name), len(pairs) + 1, axis=1) for name in ("H", "V", "G", "C")}
    wide = replace(one, **many, W=np.zeros((b, 1, 1)))
    S = np.zeros((len(pairs) + 1, size, size))
    for at, (i, j) in enumerate(pairs, 1):
        S[at, i, j] = S[at, j, i] = 1.0
    draws = chain.draws(b)
    for k in range(chain.refresh):
        S, _ = chain.step(wide, S, gamma, k, draws)
    found = np.array([[own[i, j] for i, j in pairs] for own in S])
    constant, linear = found[0], (found[1:] - found[0]).T
    if np.abs(np.linalg.eigvals(linear)).max() >= 1:
        return float("inf")
    return float(np.linalg.solve(np.eye(len(pairs)) - linear, constant)[0])


def w2_squared(covariance: Array, q: Clients) -> float:
    """Return W2^2 of the moments to the posterior N(theta*, I/m)."""
    if not np.isfinite(covariance).all():
        return float("inf")
    values = np.linalg.eigvalsh(covariance)
    return float(((np.sqrt(values) - q.m**-0.5) ** 2).sum())


@cache
def bias(chain: Chain, q: Clients, gamma: float) -> float:
    """Return the stationary W2^2."""
    return w2_squared(stationary(chain, q, gamma), q)


# --- The printed constants -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Constants:
    """M~ and B~* of HS5, for each algorithm as the paper takes them."""

    M: float
    B: float

    @classmethod
    def of(cls, chain: Chain, q: Clients) -> Constants:
        omega, p = chain.arrays(len(q.H))
        if chain.kind == "star":
            top = omega * q.sizes + (omega + 1) * (q.sizes * (1 - p) / p + q.A)
            return cls(q.top * float(top.max()), 0.0)
        A = q.A if chain.kind == "sharp" else np.zeros(len(q.H))
        M = (q.H + A[:, None] * q.V / q.H).max(axis=1)
        W = A * np.einsum("icc->i", q.W) + (q.noise * q.dim if chain.kind == "qlsd" else 0.0)
        local = (q.G**2).sum(axis=1) + W
        sigma2, B = float(W.sum()), len(q.H) * float(local.max())
        spread = B / len(q.H) * float(((1 - p + omega) / p).sum())
        return cls(2 * float((M * (1 + omega) / p).max()), 2 * (sigma2 + spread))


def limit(chain: Chain, q: Clients) -> float:
    """Return the largest step of the theorems: (S18), for QLSD++ (S66)."""
    m, L = q.m, q.L
    if chain.kind == "plus":
        k = plus_constants(chain, q)
        first = min(m**2 / (k["B"] + 3 * float(np.max(chain.omega)) * k["C"]), chain.rate / 3) / m
        spread = float((k["A"] * k["M"]).sum())
        second = (m / (16 * chain.refresh * k["top"] * k["worst"] * spread)) ** (1 / 3) if spread else np.inf
        return float(min(first, second, 1 / (10 * m)))
    return float(min(2 / (5 * (m + L)), 1 / (m + L + Constants.of(chain, q).M), 1 / (10 * m)))


def plus_constants(chain: Chain, q: Clients) -> dict[str, Array]:
    """Return B and C of (S48) and (S51), D of (S60) and their parts; M-bar_i is M-bar M_i, as in their proofs."""
    omega, p = chain.arrays(len(q.H))
    M, top, A = q.H.max(axis=1), q.top, q.A
    C = 2 * (A * top * M + M**2).sum()
    lost, kept = (omega + 1 - p) / p, (omega + 1) / p
    first = 2 * (M**2 * lost + kept * A * top * M).sum()
    D = first + 2 * top * (kept * A * M).sum() + 4 * C * lost.sum()
    return {"B": first + q.L**2, "C": C, "D": D, "M": M, "A": A, "top": top, "worst": kept.max(), "lost": lost}


def printed_B(chain: Chain, q: Clients, gamma: float) -> float:
    """Return the printed B at gamma-bar: (S31), (S35) or (S67)."""
    d, m, L = q.dim, q.m, q.L
    drift = (2 * d * L**2 / m) * (1 / m + 5 * gamma) * (1 + gamma * L**2 / (2 * m) + gamma**2 * L**2 / 12)
    if chain.kind == "plus":
        omega, p = chain.arrays(len(q.H))
        M = q.H.max(axis=1)
        rows = (M * (omega + 1) * (M + q.top * q.A) / p).sum()
        return float(drift + 96 * chain.refresh * d * rows / m**2)
    k = Constants.of(chain, q)
    return float(drift + 2 * k.B / m + 2 * L * k.M * (2 * d + gamma * k.B) / m**2)


def right_side(chain: Chain, q: Clients, theta: Array, gamma: float, steps: int) -> Array:
    """Return the printed bound of theorems S4 to S6 or S9 at iterations 0 to `steps`, from theta - theta* fixed."""
    k = np.arange(steps + 1)
    m, far = q.m, float((theta**2).sum())
    first = (1 - gamma * m / 2) ** k * (far + (1 / q.curvature).sum())
    bar = limit(chain, q)
    if chain.kind != "plus":
        last = gamma**2 * q.L * Constants.of(chain, q).M * (1 - gamma * m / 2) ** (k - 1.0) * k * far
        return np.asarray(first + gamma * printed_B(chain, q, bar) + last)
    c, apart = plus_constants(chain, q), float((q.G**2).sum())
    psi = far + 3 / chain.rate * c["lost"].max() * gamma**2 * apart
    second = 2 * gamma / m * (1 - gamma * m / 2) ** (k // chain.refresh) * c["D"] * psi
    third = 4 * gamma / m * c["lost"].sum() * (1 - chain.rate) ** k * apart
    return np.asarray(first + second + third + gamma * printed_B(chain, q, bar))


# --- Instances ------------------------------------------------------------------------------------------------------


def toy(spread: float = 3.0, batch: float | int = 0.1, unequal: float = 0.0) -> Clients:
    """Figure 1's Gaussian toy; with `unequal` its rows have precisions 1 + unequal and 1 - unequal in turn."""
    made = _toy.problem(spread=spread)
    rows = np.split(made.x, made.offsets[1:-1])
    h = [np.repeat((1 + unequal * (-1.0) ** np.arange(len(x)))[:, None], _toy.DIM, axis=1) for x in rows]
    return Clients.of(rows, h, batch)


def small(seed: int, clients: int = 4, dim: int = 3, batch: int = 2, spread: float = 1.0) -> Clients:
    """Random unbalanced rows with unequal curvatures, condition number about 4."""
    draw = np.random.default_rng(seed)
    sizes = draw.integers(3, 12, clients)
    scale = np.geomspace(1, 4, dim)
    h = [scale * draw.uniform(0.2, 1.8, (n, 1)) for n in sizes]
    rows = [spread * draw.normal(size=dim) + draw.normal(size=(n, dim)) for n in sizes]
    return Clients.of(rows, h, batch)
