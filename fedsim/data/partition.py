"""Gamma variates, as the shares of a Dirichlet law need them, from keyed draws and exactly rounded arithmetic.

Who holds which rows: each function gives a list of index arrays, one per client, and every row to exactly one.

All are pure functions of the labels and the seed, in arithmetic that is the same on every machine. Arguments are those
of flwr-datasets where it has them: its `num_partitions` is `clients`, its `num_classes_per_partition` is
`classes_per_client`, its `num_shards_per_partition` is `shards_per_client`.
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


def log_gamma_draws(key: Array, shape: Array) -> Array:
    """The logarithm of one Gamma(shape, 1) variate per key: Marsaglia and Tsang (2000), retried until accepted.

    A shape below 1 goes through G(a) = G(a + 1) U^(1/a), in logarithms, so that no share underflows.
    """
    lifted = shape + 1.0  # above 1 always, so that one rule does for all
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


SMALLEST = 1e-100  # of a concentration: shares are computed from its inverse
DRAWS = 10  # of Dirichlet shares, before the poorest clients are topped up
MODES = ("random", "deterministic", "first-deterministic")


def iid(y: npt.ArrayLike, clients: int, seed: int = 0) -> list[Array]:
    """Rows dealt at random, as evenly as can be."""
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
    """Every class is dealt in shares from Dirichlet(alpha), alpha one number or one per client.

    `self_balancing` gives no more of a class to clients that have their even share already. Shares that leave somebody
    with fewer than `min_partition_size` rows are drawn again; after ten draws the richest give to the poorest.
    """
    (labels, members), clients = _classes("dirichlet", y, clients)
    n = sum(map(len, members))
    least = check_int("dirichlet(min_partition_size={})", min_partition_size, least=0)
    if least * clients > n:
        raise InvalidInput(f"dirichlet(min_partition_size={least}): {clients} clients share {n} rows; ask for fewer")
    concentration = as_float_array(alpha)
    self_balancing = check_bool("dirichlet(self_balancing={})", self_balancing)
    if (
        concentration is None
        or concentration.shape not in ((), (clients,))
        or not np.all((concentration >= SMALLEST) & np.isfinite(concentration))
    ):
        given = f"dirichlet(alpha={short_str(alpha, 40)})"
        raise InvalidInput(
            f"{given}: give a positive number of at least {SMALLEST:g}, or one for each of {clients} clients"
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
    """Every client has rows of so many classes; those that have a class in common share its rows evenly.

    Classes are "random", "deterministic" (client c has c, c + 1, ... modulo the classes) or "first-deterministic" (the
    first so, the others at random). With "random" a class that nobody drew takes the place of one that several did.
    """
    (labels, members), clients = _classes("pathological", y, clients)
    each, m = check_int("pathological(classes_per_client={})", classes_per_client), len(labels)
    if each > m:
        raise InvalidInput(f"pathological(classes_per_client={each}): there are {m} classes; ask for at most {m}")
    if each * clients < m:
        need = -(-m // clients)
        raise InvalidInput(
            f"pathological: {clients} clients with {each} classes each leave out some of {m}; ask for "
            f"classes_per_client={need}"
        )
    check_choice("pathological(class_assignment_mode={!r})", class_assignment_mode, MODES)
    has = _assigned(clients, m, each, seed, class_assignment_mode)
    held: list[list[Array]] = [[] for _ in range(clients)]
    for k, rows in enumerate(members):
        takers = np.flatnonzero(has[:, k])
        if len(rows) < len(takers):
            raise InvalidInput(
                f"pathological: class {labels[k]} has {len(rows)} rows for {len(takers)} clients; ask for fewer clients"
            )
        for c, part in zip(takers, np.array_split(_shuffled(rows, seed, 1 + k), len(takers)), strict=True):
            held[c].append(part)
    return [np.sort(np.concatenate(parts)) for parts in held]


def _assigned(clients: int, classes: int, each: int, seed: int, mode: str) -> Array:
    """Which client has which class, bool (clients, classes)."""
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
    """Rows sorted by label and cut into equal shards, so many of them dealt to every client (McMahan et al. 2017)."""
    n, clients = _rows("shards", y, clients)
    each = check_int("shards(shards_per_client={})", shards_per_client)
    if clients * each > n:
        raise InvalidInput(f"shards: {clients} clients with {each} shards each need more than {n} rows; ask for fewer")
    pieces = np.array_split(np.argsort(labels_of("shards", y), kind="stable"), clients * each)
    order = _shuffled(np.arange(len(pieces)), seed, 0)
    return [np.sort(np.concatenate([pieces[i] for i in order[c * each : (c + 1) * each]])) for c in range(clients)]


def quantity(
    y: npt.ArrayLike, clients: int, sigma: float = 1.0, seed: int = 0, min_partition_size: int = 1
) -> list[Array]:
    """Rows at random in unequal amounts, in proportion to lognormal(0, sigma) draws."""
    n, clients = _rows("quantity", y, clients)
    sigma = check_positive("quantity(sigma={})", sigma, zero=True)
    least = check_int("quantity(min_partition_size={})", min_partition_size, least=0)
    if least * clients > n:
        raise InvalidInput(f"quantity(min_partition_size={least}): {clients} clients share {n} rows; ask for fewer")
    logs = sigma * rng.normal(rng.keys(seed, rng.Stream.DATA, round=1, client=np.arange(clients)), 1)[:, 0]
    return _topped_up(_cut(_shuffled(np.arange(n), seed, 0), reference.exp(logs - logs.max())), least)


def dominant(
    y: npt.ArrayLike, clients: int, share: float = 0.4, rest: float = 0.01, seed: int = 0, leftover: str = "deal"
) -> list[Array]:
    """Client c has `share` of all rows of class c modulo the classes and `rest` of every other (QLSD, figure S4).

    The paper's 20 clients, 40 % and 1 % leave 2 % of every class to nobody. "deal" gives all rows out, in these
    proportions to each other; "drop" keeps to the letter, and then not every row has a client.
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
            raise InvalidInput(f"dominant(rest=0): nobody gets class {k}; have at least {len(members)} clients")
        for c, own in enumerate(_cut(_shuffled(rows, seed, 1 + k), part)[:clients]):
            held[c].append(own)
    return _topped_up([np.concatenate(parts) for parts in held], 1)


def natural(ids: npt.ArrayLike) -> list[Array]:
    """One client per distinct id (a writer, a user, a device), in the ids' order."""
    _, place = np.unique(labels_of("natural", ids, "ids"), return_inverse=True)
    order = np.argsort(place, kind="stable")
    return np.split(order, np.cumsum(np.bincount(place))[:-1])


# --- What they have in common -----------------------------------------------------------------------------


def _rows(name: str, y: npt.ArrayLike, clients: int) -> tuple[int, int]:
    labels = labels_of(name, y)
    clients = check_int(f"{name}(clients={{}})", clients)
    if clients > len(labels):
        raise InvalidInput(f"{name}(clients={clients}): there are {len(labels)} rows; ask for at most so many")
    return len(labels), clients


def _classes(name: str, y: npt.ArrayLike, clients: int) -> tuple[tuple[list[int], list[Array]], int]:
    """The classes that occur, numbered by themselves or else by their order, and the rows of each."""
    _, clients = _rows(name, y, clients)
    names, place = np.unique(labels_of(name, y), return_inverse=True)
    members = [np.flatnonzero(place == k) for k in range(len(names))]
    return (list(range(len(names))), members), clients


def _shuffled(rows: Array, seed: int, number: int) -> Array:
    key = rng.keys(seed, rng.Stream.DATA, replica=1 + number)
    return rows[np.argsort(rng.uniform(key, len(rows))[0], kind="stable")]


def _cut(rows: Array, share: Array) -> list[Array]:
    """`rows` in consecutive pieces in proportion to `share`."""
    ends = np.cumsum(np.asarray(share, np.float64))
    cuts = np.floor(ends[:-1] / ends[-1] * len(rows) + 0.5).astype(np.int64)
    return np.split(rows, cuts)


def _topped_up(parts: list[Array], least: int) -> list[Array]:
    """Clients with fewer than `least` rows get some, one at a time, from whoever has most."""
    counts = np.array([len(p) for p in parts])
    own = [p.tolist() for p in parts] if counts.min() < least else []
    while own and counts.min() < least:
        poor, rich = int(np.argmin(counts)), int(np.argmax(counts))
        own[poor].append(own[rich].pop())
        counts[poor] += 1
        counts[rich] -= 1
    return [np.sort(np.asarray(p, np.int64)) for p in (own or parts)]
