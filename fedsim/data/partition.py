"""Partitions of rows over clients: each function returns a list of index arrays, one per client.

All are pure functions of the labels and the seed, with the same bits on every machine. Arguments are those of
flwr-datasets: its `num_partitions` is `clients`, its `num_classes_per_partition` is `classes_per_client`, its
`num_shards_per_partition` is `shards_per_client`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedsim import rng
from fedsim.arrays import Array
from fedsim.checks import as_float_array, check_bool, check_choice, check_int, check_positive
from fedsim.data.distribution import labels_of
from fedsim.errors import InvalidInput
from fedsim.kernels import reference
from fedsim.rng.elementary import log64
from fedsim.text import short_str

MIN_CONCENTRATION = 1e-100  # shares are computed from its inverse
DRAWS = 10  # of Dirichlet shares, before clients with too few rows get rows of others
MODES = ("random", "deterministic", "first-deterministic")


def iid(y: npt.ArrayLike, clients: int, seed: int = 0) -> list[Array]:
    """Assign rows at random, in equal numbers up to one."""
    n, clients = _rows("iid", y, clients)
    return [np.sort(part) for part in np.array_split(_shuffled(np.arange(n), seed, 0), clients)]


def dirichlet(
    y: npt.ArrayLike,
    clients: int,
    alpha: npt.ArrayLike,
    seed: int = 0,
    min_partition_size: int = 1,
    self_balancing: bool = False,
) -> list[Array]:
    """Split every class in proportions from Dirichlet(alpha), alpha one number or one per client.

    With `self_balancing`, clients that have their equal share of rows get no more. Proportions with fewer than
    `min_partition_size` rows for a client are drawn again; after ten draws rows move from the largest
    clients to the smallest.
    """
    (labels, members), clients = _classes("dirichlet", y, clients)
    n = sum(map(len, members))
    least = check_int("dirichlet(min_partition_size={})", min_partition_size, least=0)
    if least * clients > n:
        raise InvalidInput(
            f"dirichlet(min_partition_size={least}): {clients} clients share {n} rows; use a smaller number"
        )
    concentration = as_float_array(alpha)
    self_balancing = check_bool("dirichlet(self_balancing={})", self_balancing)
    if (
        concentration is None
        or concentration.shape not in ((), (clients,))
        or not np.all((concentration >= MIN_CONCENTRATION) & np.isfinite(concentration))
    ):
        given = f"dirichlet(alpha={short_str(alpha, 40)})"
        raise InvalidInput(
            f"{given}: give a positive number of at least {MIN_CONCENTRATION:g}, or one for each of {clients} clients"
        )
    members = [_shuffled(rows, seed, 1 + k) for k, rows in zip(labels, members, strict=True)]
    for draw in range(DRAWS):
        held: list[list[Array]] = [[] for _ in range(clients)]
        counts = np.zeros(clients, np.int64)
        for k, rows in zip(labels, members, strict=True):
            key = rng.keys(seed, rng.Stream.DATA, client=np.arange(clients), round=1 + k, visit=draw)
            logs = log_gamma_draws(key, np.broadcast_to(concentration, (clients,)))
            share = reference.exp(logs - logs.max())
            open_ = counts * clients < n if self_balancing else np.ones(clients, bool)
            share = np.where(open_, share, 0.0) if np.any(share[open_] > 0) else open_.astype(float)
            for c, part in enumerate(_cut(rows, share)):
                held[c].append(part)
                counts[c] += len(part)
        if counts.min() >= least:
            break
    return _topped_up([np.concatenate(parts) for parts in held], least)


def pathological(
    y: npt.ArrayLike, clients: int, classes_per_client: int = 2, seed: int = 0, class_assignment_mode: str = "random"
) -> list[Array]:
    """Assign `classes_per_client` classes to every client; clients with the same class share its rows equally.

    Classes are "random", "deterministic" (client c has c, c + 1, ... modulo the classes) or "first-deterministic" (the
    first is c, the others are random). With "random", a class without a client replaces one with several.
    """
    (labels, members), clients = _classes("pathological", y, clients)
    each, m = check_int("pathological(classes_per_client={})", classes_per_client), len(labels)
    if each > m:
        raise InvalidInput(f"pathological(classes_per_client={each}): there are {m} classes; use at most {m}")
    if each * clients < m:
        need = -(-m // clients)
        raise InvalidInput(
            f"pathological: {clients} clients with {each} classes each cannot cover {m} classes; set "
            f"classes_per_client={need}"
        )
    check_choice("pathological(class_assignment_mode={!r})", class_assignment_mode, MODES)
    has = _assigned(clients, m, each, seed, class_assignment_mode)
    held: list[list[Array]] = [[] for _ in range(clients)]
    for k, rows in enumerate(members):
        holders = np.flatnonzero(has[:, k])
        if len(rows) < len(holders):
            raise InvalidInput(
                f"pathological: class {labels[k]} has {len(rows)} rows for {len(holders)} clients; use fewer clients"
            )
        for c, part in zip(holders, np.array_split(_shuffled(rows, seed, 1 + k), len(holders)), strict=True):
            held[c].append(part)
    return [np.sort(np.concatenate(parts)) for parts in held]


def _assigned(clients: int, classes: int, each: int, seed: int, mode: str) -> Array:
    """Return which client has which class, bool (clients, classes)."""
    has = np.zeros((clients, classes), bool)
    client = np.arange(clients)[:, None]
    if mode == "deterministic":
        np.put_along_axis(has, (client + np.arange(each)) % classes, True, axis=1)
    else:
        keys = rng.keys(seed, rng.Stream.DATA, client=np.arange(clients))
        fixed = int(mode == "first-deterministic")
        drawn = rng.choice(keys, classes - fixed, each - fixed)
        if fixed:
            drawn = np.concatenate([client % classes, (client + 1 + drawn) % classes], axis=1)
        np.put_along_axis(has, drawn, True, axis=1)
    for missing in np.flatnonzero(~has.any(axis=0)):
        most = int(np.argmax(has.sum(axis=0)))
        giver = int(np.argmax(has[:, most]))
        has[giver, most], has[giver, missing] = False, True
    return has


def shards(y: npt.ArrayLike, clients: int, shards_per_client: int = 2, seed: int = 0) -> list[Array]:
    """Sort rows by label, cut them into equal shards, and assign shards at random (McMahan et al. 2017)."""
    n, clients = _rows("shards", y, clients)
    each = check_int("shards(shards_per_client={})", shards_per_client)
    if clients * each > n:
        raise InvalidInput(f"shards: {clients} clients with {each} shards each need more than {n} rows; use fewer")
    pieces = np.array_split(np.argsort(labels_of("shards", y), kind="stable"), clients * each)
    order = _shuffled(np.arange(len(pieces)), seed, 0)
    return [np.sort(np.concatenate([pieces[i] for i in order[c * each : (c + 1) * each]])) for c in range(clients)]


def quantity(
    y: npt.ArrayLike, clients: int, sigma: float = 1.0, seed: int = 0, min_partition_size: int = 1
) -> list[Array]:
    """Assign rows at random in numbers proportional to lognormal(0, sigma) draws."""
    n, clients = _rows("quantity", y, clients)
    sigma = check_positive("quantity(sigma={})", sigma, zero=True)
    least = check_int("quantity(min_partition_size={})", min_partition_size, least=0)
    if least * clients > n:
        raise InvalidInput(
            f"quantity(min_partition_size={least}): {clients} clients share {n} rows; use a smaller number"
        )
    logs = sigma * rng.normal(rng.keys(seed, rng.Stream.DATA, round=1, client=np.arange(clients)), 1)[:, 0]
    return _topped_up(_cut(_shuffled(np.arange(n), seed, 0), reference.exp(logs - logs.max())), least)


def dominant(
    y: npt.ArrayLike, clients: int, share: float = 0.4, rest: float = 0.01, seed: int = 0, leftover: str = "deal"
) -> list[Array]:
    """Give client c the fraction `share` of class c modulo the classes and `rest` of others (QLSD, figure S4).

    The paper's 20 clients, 40 % and 1 % leave out 2 % of every class. leftover="deal" assigns all rows in the same
    proportions, "drop" leaves the rows without a client.
    """
    (_, members), clients = _classes("dominant", y, clients)
    share, rest = check_positive("dominant(share={})", share), check_positive("dominant(rest={})", rest, zero=True)
    check_choice("dominant(leftover={!r})", leftover, ("deal", "drop"))
    held: list[list[Array]] = [[] for _ in range(clients)]
    for k, rows in enumerate(members):
        part = np.where(np.arange(clients) % len(members) == k, share, rest)
        total = np.cumsum(part)[-1]
        if leftover == "drop":
            if total > 1 + 1e-9:
                raise InvalidInput(
                    f"dominant: {clients} clients would have {100 * total:.0f} % of class {k}; lower share or rest, or "
                    "leave leftover='deal'"
                )
            part = np.append(part, max(0.0, 1 - total))
        elif total == 0:
            raise InvalidInput(f"dominant(rest=0): no client gets class {k}; use at least {len(members)} clients")
        for c, piece in enumerate(_cut(_shuffled(rows, seed, 1 + k), part)[:clients]):
            held[c].append(piece)
    return _topped_up([np.concatenate(parts) for parts in held], 1)


def natural(ids: npt.ArrayLike) -> list[Array]:
    """Make one client per distinct id (a writer, a user, a device), in the order of ids."""
    _, place = np.unique(labels_of("natural", ids, "ids"), return_inverse=True)
    order = np.argsort(place, kind="stable")
    return np.split(order, np.cumsum(np.bincount(place))[:-1])


# --- Shared by all partitions -----------------------------------------------------------------------------


def _rows(name: str, y: npt.ArrayLike, clients: int) -> tuple[int, int]:
    labels = labels_of(name, y)
    clients = check_int(f"{name}(clients={{}})", clients)
    if clients > len(labels):
        raise InvalidInput(f"{name}(clients={clients}): there are {len(labels)} rows; use at most {len(labels)}")
    return len(labels), clients


def _classes(name: str, y: npt.ArrayLike, clients: int) -> tuple[tuple[list[int], list[Array]], int]:
    """Return the numbers of the classes and the rows of each."""
    _, clients = _rows(name, y, clients)
    names, place = np.unique(labels_of(name, y), return_inverse=True)
    members = [np.flatnonzero(place == k) for k in range(len(names))]
    return (list(range(len(names))), members), clients


def _shuffled(rows: Array, seed: int, number: int) -> Array:
    key = rng.keys(seed, rng.Stream.DATA, replica=1 + number)
    return rows[np.argsort(rng.uniform(key, len(rows))[0], kind="stable")]


def _cut(rows: Array, share: Array) -> list[Array]:
    """Return `rows` in consecutive pieces in proportion to `share`."""
    ends = np.cumsum(np.asarray(share, np.float64))
    cuts = np.floor(ends[:-1] / ends[-1] * len(rows) + 0.5).astype(np.int64)
    return np.split(rows, cuts)


def _topped_up(parts: list[Array], least: int) -> list[Array]:
    """Move rows, one at a time, from the largest client to the smallest until all have `least`."""
    counts = np.array([len(p) for p in parts])
    rows = [p.tolist() for p in parts] if counts.min() < least else []
    while rows and counts.min() < least:
        smallest, largest = int(np.argmin(counts)), int(np.argmax(counts))
        rows[smallest].append(rows[largest].pop())
        counts[smallest] += 1
        counts[largest] -= 1
    return [np.sort(np.asarray(p, np.int64)) for p in (rows or parts)]


def log_gamma_draws(key: Array, shape: Array) -> Array:
    """Return the logarithm of one Gamma(shape, 1) variate per key: Marsaglia and Tsang (2000), by rejection.

    G(a) = G(a + 1) U^(1/a) in logarithms, so that no share underflows for a shape below 1.
    """
    lifted = shape + 1.0  # always above 1, where the method is valid
    d = lifted - 1 / 3
    c = 1 / np.sqrt(9 * d)
    out = np.full(len(key), np.nan)
    waiting, step = np.arange(len(key)), 0
    while len(waiting):
        x = rng.normal(key[waiting], 1, 0, call=2 * step + 1)[:, 0]
        u = rng.uniform(key[waiting], 2, 2 * step + 2)[:, 0]
        v = 1 + c[waiting] * x
        v = v * v * v
        right = 0.5 * x * x + d[waiting] * (1 - v + log64(np.where(v > 0, v, 1.0)))
        good = (v > 0) & (log64(u) < right)
        at = waiting[good]
        out[at] = log64(d[at]) + log64(v[good])
        waiting, step = waiting[~good], step + 1
    return np.asarray(out + log64(rng.uniform(key, 2, 0)[:, 0]) / shape)
