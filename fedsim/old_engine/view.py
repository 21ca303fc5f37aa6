"""What a policy sees of one replica while a round is open."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.errors import InvalidInput, whole
from fedsim.old_engine.selection import by_weight
from fedsim.old_engine.world import World
from fedsim.rng import Draws, Stream

LAST = ("duration_s", "heard_s", "round", "loss")
NONE = (np.nan, np.nan, np.nan, 0)  # of a client that was never heard


class ReplicaView:
    """The view of one replica; `lifted` while a batched policy selects, which then gets its replicas axis of one."""

    def __init__(self, world: World, position: int, site: int = 0) -> None:
        self._world, self._position, self._site = world, position, site
        self.weights, self.clients, self.sizes = world.weights, world.population, world.problem.sizes
        self._own: Array | None = None  # the clients of its site; None: all
        if world.sites.count > 1:
            self._own = world.sites.members[site]
            self.weights = np.where(world.sites.site_of == site, world.sites.share(world.weights), 0.0)
        self.round, self.now_s, self.opened_s = 0, 0.0, 0.0
        self.selected: list[int] = []
        self.arrived: list[int] = []
        self.in_flight: dict[int, Any] = {}  # client to visit; its length and its keys are what a policy needs
        self._replies: dict[int, tuple[float, float, int, int]] = {}  # by client: three of LAST, and how many so far
        self._losses: dict[int, float] = {}  # by client: of its latest reply
        self._rng: Draws | None = None
        self._lifted, self._always = False, world.always_on

    def select(self, round: int, now_s: float) -> Array:
        """The policy's answer: ids, or a mask, of this replica alone."""
        self.round, self.now_s, self.opened_s = round, now_s, now_s
        policy = self._world.policy
        self._lifted = policy.batched
        here = slice(self._position, self._position + 1)
        self._rng = self._world.draws(Stream.SELECT, here, self._site, round, single=not self._lifted)
        answer = policy.select(self, self._rng)
        try:
            answer = np.asarray(answer)
        except ValueError:  # rows of different lengths
            raise InvalidInput(
                f"{type(policy.own).__name__}.select returned {answer!r:.60}; return a list of client numbers"
            ) from None
        return self._of_own_site(np.asarray(answer[0] if self._lifted else answer))

    def _of_own_site(self, answer: Array) -> Array:
        """An edge may ask only its own clients."""
        if self._own is not None and answer.ndim == 1:
            ids = np.flatnonzero(answer) if answer.dtype == bool else answer
            strange = np.setdiff1d(ids, self._own)
            if len(strange):
                raise InvalidInput(
                    f"{type(self._world.policy.own).__name__}.select asked client {strange[0]} at edge {self._site}, "
                    "which is not one of its own; choose among view.everybody()"
                )
        return answer

    # --- For policies -------------------------------------------------------------------------------

    def everybody(self) -> Array:
        return self._lift(self._here[self._on(self._here)])

    def available(self) -> Any:
        if self._always and self._own is None:
            return True
        mask = np.zeros(self.clients, bool)
        mask[self._here[self._on(self._here)]] = True
        return self._lift(mask)

    def sample_available(self, size: int) -> Array:
        """Different clients, uniformly among those that are on now: as many as asked for, or all there are."""
        assert self._rng is not None
        size = whole("view.sample_available({})", size, 0, remedy="ask for a whole number of clients")
        there = self.clients if self._own is None else len(self._own)
        tried = min(size if self._always else 4 * size, there)
        while True:
            ids = np.atleast_1d(np.asarray(self._rng.choice(there, tried))).reshape(-1)
            ids = ids if self._own is None else self._own[ids]
            ids = ids if self._always else ids[self._on(ids)]
            if len(ids) >= size or tried == there:
                return self._lift(ids[:size])
            tried = min(4 * tried, there)

    def sample_weighted(self, draws: int) -> Array:
        """So many clients, each drawn with probability p_c among those that are on now; repeats count."""
        assert self._rng is not None
        if self._always and self._own is None:
            return by_weight(self._world.cumulative, self._rng.uniform(draws))
        on = self._here[self._on(self._here)]
        total = np.cumsum(self.weights[on])
        if not len(on) or total[-1] <= 0:
            return self._lift(np.empty(0, np.int64))
        return np.asarray(on[by_weight(total, self._rng.uniform(draws) * total[-1])])

    def heard(self, ids: npt.ArrayLike) -> Array:
        """How many of the clients' replies have arrived in time so far."""
        return np.array([self._replies.get(int(c), NONE)[3] for c in np.atleast_1d(ids)], np.int64)

    def last(self, ids: npt.ArrayLike, column: str = "duration_s") -> Array:
        """Of each client's latest reply: how long its visit took ("duration_s"), when it arrived ("heard_s"), in which
        round, counted as `view.round` ("round"), and the loss that it reported ("loss"). NaN where there is none."""
        if column not in LAST:
            raise AttributeError(f"view.last(ids, {column!r}): kept are {', '.join(map(repr, LAST))}")
        if column == "loss":
            return np.array([self._losses.get(int(c), np.nan) for c in np.atleast_1d(ids)])
        at = LAST.index(column)
        return np.array([self._replies.get(int(c), NONE)[at] for c in np.atleast_1d(ids)], np.float64)

    # --- For the engine -----------------------------------------------------------------------------

    def heard_of(self, visit: Any) -> None:
        """A reply has arrived."""
        c, ends = visit.client, visit.ends_s
        self.arrived.append(c)
        self._replies[c] = (ends - visit.started_s, ends, self.round, self._replies.get(c, NONE)[3] + 1)

    def note_losses(self, clients: list[int], losses: list[float]) -> None:
        """What these clients' replies say of their loss."""
        self._losses.update(zip(clients, losses, strict=True))

    def anybody(self) -> bool:
        """Whether somebody is on now."""
        return self.when(1, self.now_s) == self.now_s

    def when(self, enough: int, now_s: float) -> float:
        """Now if so many clients are on, else the earliest time at which they might be; inf: never."""
        if self._always:
            return now_s
        there, tried, here = 0, 0, self._here
        while tried < len(here):  # mostly the first few will do
            upto = min(4 * max(tried, enough), len(here))
            at = self.next_available(here[tried:upto], now_s)
            there, tried = there + int((at == now_s).sum()), upto
            if there >= enough:
                return now_s
        return float(np.partition(self.next_available(here, now_s), enough - 1)[enough - 1])

    # --- Availability -------------------------------------------------------------------------------

    def next_available(self, ids: Array, now_s: float) -> Array:
        """When each client is on, now or later; inf: never again."""
        if self._always:
            return np.full(len(ids), now_s)
        assert self._world.devices is not None
        at = np.asarray(self._world.devices.next_available(ids, np.full(len(ids), now_s), self._presence(ids)))
        if at.shape != ids.shape or not (at >= now_s).all():
            raise InvalidInput(
                f"{type(self._world.devices.own).__name__}.next_available gave {at!r:.60} at {now_s:g} s; give one "
                "time per client, now or later"
            )
        return at

    def offline_s(self, ids: Array, now_s: float) -> Array:
        """When each client, on now, goes off."""
        if self._always:
            return np.full(len(ids), np.inf)
        assert self._world.devices is not None
        until = np.asarray(self._world.devices.available_until(ids, np.full(len(ids), now_s), self._presence(ids)))
        if until.shape != ids.shape or np.isnan(until).any():
            raise InvalidInput(
                f"{type(self._world.devices.own).__name__}.available_until gave {until!r:.60}; give one time per client"
            )
        return until

    def _on(self, ids: Array) -> Array:
        return np.asarray(self.next_available(ids, self.now_s) == self.now_s)

    @property
    def _here(self) -> Array:
        """The clients of its site."""
        return np.arange(self.clients) if self._own is None else self._own

    def _presence(self, ids: Array) -> Draws:
        return self._world.draws(Stream.AVAILABILITY, self._position, ids)

    def _lift(self, value: Array) -> Array:
        return value[None] if self._lifted else value
