"""The view of a policy: one site of one replica while a round is open. Conversion of its answer to a cohort."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.checks import check_int
from fedsim.engine.system import System
from fedsim.errors import InvalidInput, ResultWarning
from fedsim.rng import Draws, Stream

LAST = ("duration_s", "received_s", "round", "loss")
NO_REPLY = (np.nan, np.nan, np.nan, 0)


class SiteView:
    """The view of a site; `lifted` while a batched policy selects, which then gets a replicas axis of length 1."""

    def __init__(
        self, system: System, position: int, site: int, observed: Callable[[int, Array], Array] | None = None
    ) -> None:  # fmt: skip
        self._system, self._position, self._site, self._observed = system, position, site, observed
        self.weights, self.clients, self.sizes = system.weights, system.population, system.problem.sizes
        self.members, self._is_star = np.arange(system.population), system.sites.count == 1
        if not self._is_star:
            self.members = system.sites.members[site]
            self.weights = np.where(system.sites.site_of == site, system.sites.share(system.weights), 0.0)
        self.round, self.now_s, self.opened_s = 0, 0.0, 0.0
        self.selected: list[int] = []
        self.arrived: list[int] = []
        self.in_flight: dict[int, Any] = {}  # by client; policies read its length and its keys
        self._replies: dict[int, tuple[float, float, int, int]] = {}  # by client: three of LAST, and how many so far
        self._rng: Draws | None = None
        self._lifted = False

    # --- For the clock ----------------------------------------------------------------------------------------------

    def select(self, round: int, now_s: float) -> tuple[Array, Array]:
        """Ask the policy for the cohort of a round, from 1; return its clients in order and their multiplicities."""
        self.round, self.now_s, self.opened_s = round, now_s, now_s
        policy, here = self._system.policy, slice(self._position, self._position + 1)
        self._lifted = policy.batched
        self._rng = self._system.draws(Stream.SELECT, here, self._site, round - 1, single=not self._lifted)
        answer = np.asarray(policy.select(self, self._rng))
        name = type(policy.wrapped).__name__
        clients, multiplicity = cohort_of(answer[0] if self._lifted and answer.ndim == 2 else answer, self.clients)
        strangers = clients[self._system.sites.site_of[clients] != self._site]
        if len(strangers):
            raise InvalidInput(
                f"{name}.select asked client {strangers[0]} at edge {self._site}, which is not one of its own; choose "
                "among view.online_clients()"
            )
        return clients, multiplicity

    def opened(self, in_flight: dict[int, Any]) -> None:
        """Store the visits of a round that has opened."""
        self.selected, self.arrived, self.in_flight = list(in_flight), [], in_flight

    def ended(self, client: int, started_s: float, now_s: float, arrived: bool) -> None:
        """Store the end of a visit."""
        del self.in_flight[client]
        if arrived:
            self.arrived.append(client)
            count = self._replies.get(client, NO_REPLY)[3] + 1
            self._replies[client] = (now_s - started_s, now_s, self.round, count)

    def closing_s(self, now_s: float) -> float:
        """Ask the policy when the round closes; inf: keep waiting."""
        self.now_s = now_s
        return float(self._system.policy.close(self))

    def online(self) -> Array:
        """Return the site's clients that are online now."""
        return self.members[self._is_online(self.members)]

    # --- For policies -----------------------------------------------------------------------------------------------

    def online_clients(self) -> Array:
        return self._lift(self.online())

    def available(self) -> Any:
        if self._system.always_online and self._is_star:
            return True
        mask = np.zeros(self.clients, bool)
        mask[self.online()] = True
        return self._lift(mask)

    def sample_available(self, size: int) -> Array:
        """Return different clients, uniformly among those that are online now: `size`, or all there are."""
        assert self._rng is not None
        size = check_int("view.sample_available({})", size, 0, remedy="give an integer number of clients")
        always, count = self._system.always_online, len(self.members)
        tried = min(size if always else 4 * size, count)
        while True:
            ids = np.atleast_1d(np.asarray(self._rng.choice(count, tried))).reshape(-1)
            ids = ids if self._is_star else self.members[ids]
            ids = ids if always else ids[self._is_online(ids)]
            if len(ids) >= size or tried == count:
                return self._lift(ids[:size])
            tried = min(4 * tried, count)

    def sample_weighted(self, draws: int) -> Array:
        """Return clients drawn with probability p_c among those that are online now; repeats count."""
        assert self._rng is not None
        if self._system.always_online and self._is_star:
            return by_weight(self._system.cumulative_weights, self._rng.uniform(draws))
        online = self.online()
        total = np.cumsum(self.weights[online])
        if not len(online) or total[-1] <= 0:
            return self._lift(np.empty(0, np.int64))
        return np.asarray(online[by_weight(total, self._rng.uniform(draws) * total[-1])])

    def received(self, ids: npt.ArrayLike) -> Array:
        """Return how many of the clients' replies have arrived in time so far."""
        return np.array([self._replies.get(int(c), NO_REPLY)[3] for c in np.atleast_1d(ids)], np.int64)

    def last(self, ids: npt.ArrayLike, column: str = "duration_s") -> Array:
        """Return a column of each client's latest reply: how long its visit took ("duration_s"), when it arrived
        ("received_s"), its round ("round"), or the loss it reported ("loss"); NaN: none."""
        if column not in LAST:
            raise AttributeError(f"view.last(ids, {column!r}): choose one of {', '.join(map(repr, LAST))}")
        clients = np.atleast_1d(np.asarray(ids)).astype(np.int64)
        if column == "loss":
            self._explain_losses()
            return np.full(len(clients), np.nan) if self._observed is None else self._observed(self._position, clients)
        at = LAST.index(column)
        return np.array([self._replies.get(c, NO_REPLY)[at] for c in clients.tolist()], np.float64)

    def _explain_losses(self) -> None:
        """Warn of losses that are NaN in all rounds; refuse them where only some would be."""
        system = self._system
        if system.sites.every > 1 and not self._is_star:
            raise InvalidInput(
                f"{type(system.policy.wrapped).__name__} reads losses, which are not known in time where "
                "edges are rounds apart; set every=1"
            )
        why = ""
        if not system.reports_loss:
            why = (
                f"clients of {type(system.algorithm.wrapped).__name__} report no loss; write local_only = ('loss',) "
                "and return job.loss(theta) as 'loss' in its client's reply"
            )
        elif system.timing_only:
            why = "timing_only=True computes no losses; run with learning"
        if why:
            warnings.warn(f"view.last(ids, 'loss') is NaN: {why}", ResultWarning, stacklevel=3)

    def _is_online(self, ids: Array) -> Array:
        return np.asarray(self._system.online_s(self._position, ids, self.now_s) == self.now_s)

    def _lift(self, value: Array) -> Array:
        return value[None] if self._lifted else value


def by_weight(cumulative: Array, u: Array) -> Array:
    """Return the places that uniform numbers fall on where place i has the weight cumulative[i] - cumulative[i - 1]."""
    return np.asarray(np.minimum(np.searchsorted(cumulative, u), len(cumulative) - 1))


def cohort_of(answer: Array, clients: int) -> tuple[Array, Array]:
    """Return the clients of a policy's answer, ids with repeats or a mask, in order, and their multiplicities."""
    _, client, multiplicity = cohorts_of(answer[None], clients)
    return client, multiplicity


def cohorts_of(answer: Array, clients: int) -> tuple[Array, Array, Array]:
    """Return the row, client and multiplicity of every visit of (rows, size) ids or (rows, clients) masks, in order."""
    if answer.ndim != 2 or (answer.size and answer.dtype.kind not in "biu"):
        raise InvalidInput(
            f"select returned an array of {answer.dtype} with shape {answer.shape[1:]}; return a list of client "
            "numbers, or a mask with one truth value per client"
        )
    if answer.dtype == bool:
        if answer.shape[1] != clients:
            raise InvalidInput(f"select returned a mask of {answer.shape[1]} clients; there are {clients}")
        row, client = np.nonzero(answer)
        return row, client, np.ones(len(row), np.int64)
    if answer.size and (answer.min() < 0 or answer.max() >= clients):
        wrong = answer.min() if answer.min() < 0 else answer.max()
        raise InvalidInput(f"select returned client {wrong}; clients are numbered 0 to {clients - 1}")
    ids = np.sort(answer.astype(np.int64), axis=1)
    first = np.ones(ids.shape, bool)
    first[:, 1:] = ids[:, 1:] != ids[:, :-1]
    row, column = np.nonzero(first)
    return row, ids[row, column], np.diff(np.append(np.flatnonzero(first.ravel()), first.size))


class AllReplicasView:
    """What a batched policy sees while it selects for all replicas of a star, whose clients are always online."""

    def __init__(self, system: System, active: Array, round: int) -> None:
        self._system, self._replicas = system, len(active)
        self.weights, self.clients, self.sizes = system.weights, system.population, system.problem.sizes
        self.round = round
        self.rng = system.draws(Stream.SELECT, active, 0, round - 1)

    def online_clients(self) -> Array:
        return np.broadcast_to(np.arange(self.clients), (self._replicas, self.clients))

    def available(self) -> Any:
        return True

    def sample_available(self, size: int) -> Array:
        size = check_int("view.sample_available({})", size, 0, remedy="give an integer number of clients")
        return np.asarray(self.rng.choice(self.clients, min(size, self.clients)))

    def sample_weighted(self, draws: int) -> Array:
        return by_weight(self._system.cumulative_weights, self.rng.uniform(draws))

    def received(self, ids: npt.ArrayLike) -> Array:
        return self._no_history()

    def last(self, ids: npt.ArrayLike, column: str = "duration_s") -> Array:
        return self._no_history()

    def _no_history(self) -> Array:
        raise InvalidInput(
            "view.received and view.last have no history where all replicas select in one call; set history = True in "
            "the policy's class, and its rounds are simulated on the SimPy clock"
        )
