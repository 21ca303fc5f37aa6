"""What is learnt: the replicas' state, the clients' memory, broadcasts, replies and the server's step."""

from __future__ import annotations

import math
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array, Arrays
from fedsim.engine.initial_state import first_memory, first_states
from fedsim.engine.message_sizes import ReplyShape, reply_shape, sum_bits
from fedsim.errors import InvalidInput, NonFinite
from fedsim.old_engine.cloud import average, merge
from fedsim.old_engine.folds import Folds, folds_of
from fedsim.old_engine.round import Cohort, Round
from fedsim.old_engine.world import World
from fedsim.protocols import Backend, Replies, Rng, SessionLike, Visitors, as_session
from fedsim.rng import Draws, Stream
from fedsim.runtime.answers import locked, server_of
from fedsim.runtime.jobs import Batch, Reply
from fedsim.runtime.worker import advice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Learner:
    """All replicas' learning; it knows rounds and replies, and nothing of time."""

    def __init__(self, world: World, session: SessionLike) -> None:
        self.session, self.skip = as_session(session), world.skip
        self._world, self._setting, self._algorithm = world, world.setting, world.algorithm
        self._sites, starts = world.sites, world.scenario.site_starts
        self._first, self.state = first_states(self._algorithm, world.problem.own, starts, self.skip)
        self.memory = first_memory(self._algorithm, world.problem, len(world.replicas), self._setting.dtype)
        self._shapes: dict[int, ReplyShape] = {}
        self._heard: tuple[Cohort, Folds] | None = None  # the cohort that was heard last, and how it was folded

    # --- Down ---------------------------------------------------------------------------------------

    def broadcast(self, active: Array) -> Arrays:
        """The message of every model of the active replicas, stacked."""
        rows = self._rows(active)
        if self.skip:  # one will do for all
            one = self._algorithm.broadcast(self._first)
            return {n: np.broadcast_to(m, (len(rows), *np.shape(m))) for n, m in one.items()}
        state = {n: s[rows] for n, s in self.state.items()}
        for copy in state.values():  # handed to somebody's code, which is not to change it
            copy.flags.writeable = False
        if self._algorithm.batched:
            return {n: np.asarray(m) for n, m in self._algorithm.broadcast(state).items()}
        parts = [self._algorithm.broadcast({n: s[i] for n, s in state.items()}) for i in range(len(rows))]
        return {n: np.stack([np.asarray(p[n]) for p in parts]) for n in parts[0]}

    def down_bits(self, message: Arrays) -> int:
        """Bits of one copy of a broadcast; what clients know from an earlier one is not sent again."""
        known = self._algorithm.known
        return sum(8 * m.itemsize * math.prod(m.shape[1:]) for name, m in message.items() if name not in known)

    def backhaul_bits(self) -> tuple[int, int]:
        """Bits of an edge's message to the cloud, and of the cloud's back: whole states, or a sum with its count."""
        if not self._algorithm.sums:
            bits = sum(8 * s.nbytes for s in self._first.values())
            return bits, bits
        return sum_bits(self.reply_shape(1), self._setting.dtype), self.down_bits(self.broadcast(np.arange(1)))

    # --- Up -----------------------------------------------------------------------------------------

    def reply_shape(self, round: int) -> ReplyShape:
        """What a reply consists of; the first round may differ from all later ones (a message without history)."""
        at = min(round, 1)
        if at not in self._shapes:
            world = self._world
            self._shapes[at] = reply_shape(self._algorithm, world.problem, self._first, self._setting.dtype, at)
        return self._shapes[at]

    def recall(self, position: Array, client: Array) -> Arrays:
        """The clients' memory rows."""
        return {n: m[position, client] for n, m in self.memory.items()}

    async def replies(self, active: Array, round: int, who: Cohort, message: Arrays, version: Array) -> Reply:
        """The replies of a synchronous cohort, whose rows index `active`; job i starts from the message of its client's
        site in replica version[i]."""
        position = active[who.row]
        if self._sites.models > 1:
            version = version * self._sites.models + self._sites.site_of[who.client]
        visit = np.zeros(len(position), np.int64)
        memory = self.recall(position, who.client)
        replica = self._world.replicas[position]
        return await self.compute(Batch(round, replica, who.client, visit, message, version, memory))

    async def compute(self, batch: Batch) -> Reply:
        """The batch's replies from the runtime; nothing is asked of it where there is nothing to do."""
        shape = self.reply_shape(batch.round)
        if self.skip or not len(batch):
            return Reply(shape.values, np.empty(0, np.int64), {n: m[:0, 0] for n, m in self.memory.items()})
        reply: Reply = await self.session.submit(batch, self._work)
        if shape.bits is not None and (reply.bits != shape.bits).any():
            raise InvalidInput(
                f"{type(self._algorithm.own).__name__}: a reply of {reply.bits.max()} bits in round {batch.round + 1}, "
                f"where the clock had reckoned with {shape.bits}; its size must not depend on data, client or round"
            )
        return reply

    @cached_property
    def _work(self) -> float:
        """Local steps of the client that has most of them: by them a runtime judges whether a hop pays."""
        return float(np.max(self._algorithm.work(Visitors(np.arange(self._world.population)))))

    # --- The server's step ------------------------------------------------------------------------------

    def fold(self, round: Round, reply: Reply, folds: Folds | None = None) -> None:
        """Every site's step in this round, out of the replies that arrived; `folds` unless the round says it."""
        if self.skip:
            return
        world, active, folds = self._world, round.active, folds or self._folds_of(round)
        rows = active[folds.row] * self._sites.models + folds.site
        everybody = len(rows) == len(self.state["theta"])  # then nothing need be picked out
        state = self.state if everybody else {n: s[rows] for n, s in self.state.items()}
        backend, replica = self._setting.backend, world.replicas[active[folds.row]]
        values = reply.values if folds.pick is None else {n: v[folds.pick] for n, v in reply.values.items()}
        replies = ArrivedReplies(values, folds, round.number, state, backend)
        if self._algorithm.batched:
            new = self._server(state, replies, ServerDraws(partial(self._draws, replica, folds.site, round.number)))
        else:
            new = self._one_by_one(state, replies, replica, folds.site)
        for n, s in new.items():
            self._check_finite(n, np.asarray(s), replica, round.number)
            self.state[n][rows] = s
        if self._sites.every and self._sites.models > 1 and (round.number + 1) % self._sites.every == 0:
            merge(self.state, self._rows(active), self._sites, self._algorithm.merge, backend)
        who = round.arrived
        position = active[who.row]
        for n, m in reply.memory.items():  # clients remember only what the server has folded
            self.memory[n][position, who.client] = m

    @cached_property
    def _server(self) -> Callable[[Arrays, Replies, Rng], Arrays]:
        return server_of(self._algorithm)

    def _folds_of(self, round: Round) -> Folds:
        """Who folds what; the very cohort that was heard last, all from the same broadcast, is weighed as it was."""
        alike = isinstance(round.started, int) and round.copies is None
        if self._heard is not None and alike and self._heard[0] is round.arrived:
            return self._heard[1]
        folds = folds_of(self._world, round)
        folds.weights.flags.writeable = False
        self._heard = (round.arrived, folds) if alike else None
        return folds

    def _draws(self, replica: Array, site: Array, round: int, single: bool = False) -> Draws:
        backend, seed = self._setting.backend, self._setting.seed
        key = backend.keys(seed, Stream.SERVER, replica=replica, client=site, round=round)
        return Draws(key, single, backend)

    def theta(self, active: Array) -> Array:
        """What the run is judged by, (replicas, d): its sites' average."""
        theta = self.state["theta"][self._rows(active)]
        return theta if self._sites.models == 1 else average(theta, self._sites, self._setting.backend)

    def models(self, active: Array) -> Array:
        """Every site's theta, (replicas, sites, d); where a cloud has the only one, its edges have that."""
        sites = self._sites
        theta = self.state["theta"][self._rows(active)].reshape(len(active), sites.models, -1)
        return np.broadcast_to(theta, (len(active), sites.count, theta.shape[-1]))

    def _rows(self, active: Array) -> Array:
        """Where these replicas' models stand in the state."""
        return active if self._sites.models == 1 else self._sites.rows(active)

    def _one_by_one(self, state: Arrays, replies: ArrivedReplies, replica: Array, site: Array) -> Arrays:
        rows = []
        for r in range(len(site)):
            mine, here = {n: s[r] for n, s in state.items()}, slice(r, r + 1)
            draws = ServerDraws(partial(self._draws, replica[here], site[here], replies.round, single=True))
            rows.append(self._server(mine, replies.of(r, mine), draws))
        return {n: np.stack([row[n] for row in rows]) for n in rows[0]}

    def _check_finite(self, name: str, value: Array, replica: Array, round: int) -> None:
        if not np.isfinite(value).all():
            row = int(np.argmin(np.isfinite(value).reshape(len(value), -1).all(axis=1)))
            raise NonFinite(
                f"the server's {name} is not finite in round {round + 1} (replica {replica[row]}, "
                f"seed {self._setting.seed}); {advice(self._algorithm.own, self._setting)}"
            )


class ServerDraws:
    """A server's `rng`. Its key is made when it first draws, for most servers never do."""

    def __init__(self, make: Callable[[], Draws]) -> None:
        self._make = make

    @cached_property
    def _draws(self) -> Draws:
        return self._make()

    def uniform(self, lanes: int | None = None) -> Any:
        return self._draws.uniform(lanes)

    def normal(self, lanes: int | None = None, dtype: npt.DTypeLike = np.float64) -> Any:
        return self._draws.normal(lanes, dtype)

    def integers(self, below: npt.ArrayLike, lanes: int | None = None) -> Any:
        return self._draws.integers(below, lanes)

    def choice(self, population: int, size: int) -> Any:
        return self._draws.choice(population, size)


class ArrivedReplies:
    """What a site sees of a closed round, see `protocols.Replies`: one site of one replica, or many stacked."""

    def __init__(
        self, values: Mapping[str, Array], folds: Folds, round: int, state: Arrays, backend: Backend,
        single: bool = False,
    ) -> None:  # fmt: skip
        who = folds.who
        self.clients, self.multiplicity, self.starts = who.client, who.multiplicity, who.starts
        self.staleness, self.weights, self.round = folds.staleness, folds.weights, round
        self._values, self._folds, self._state = values, folds, state
        self._backend, self._single = backend, single

    def of(self, segment: int, state: Arrays) -> ArrivedReplies:
        """One segment's replies, without a leading axis."""
        own = slice(self.starts[segment], self.starts[segment + 1])
        count = own.stop - own.start
        who = Cohort(np.zeros(count, np.int64), self.clients[own], self.multiplicity[own], np.array([0, count]))
        values = {n: v[own] for n, v in self._values.items()}
        f, here = self._folds, slice(segment, segment + 1)
        mine = None if f.own is None else f.own[here] - own.start
        folds = Folds(f.row[here], f.site[here], who, self.weights[own], self.staleness[own], None, mine)
        return ArrivedReplies(values, folds, self.round, state, self._backend, single=True)

    def __len__(self) -> int:
        return len(self.clients)

    def __getitem__(self, name: str) -> Array:
        return locked(self._named(name))

    def _named(self, name: str) -> Array:
        if name not in self._values:
            raise InvalidInput(f"replies[{name!r}]: the clients' replies hold {', '.join(self._values) or 'nothing'}")
        return self._values[name]

    @property
    def count(self) -> int | Array:
        """How many arrived: a number, or (replicas, 1)."""
        count = self._folds.who.sizes
        return int(count[0]) if self._single else count[:, None]

    def mean(self, name: str) -> Array:
        """The weighted mean; of nobody the state's own value, or zero where the state has none of that name."""
        out = self.weighted(name, self.weights)
        empty = self._folds.who.sizes == 0
        if empty.any() and name in self._state:
            kept = self._state[name][None] if self._single else self._state[name]
            out = np.where(empty[:, None], kept, out[None] if self._single else out)
            out = out[0] if self._single else out
        return out

    def own(self, name: str) -> Array:
        """The reply of the site's own client."""
        if self._folds.own is None:
            raise InvalidInput(f"replies.own({name!r}): only over gossip does a site have a client of its own")
        values = self._named(name)[self._folds.own]
        return locked(values[0] if self._single else values)

    def sum(self, name: str) -> Array:
        """The plain sum."""
        return self.weighted(name, np.ones(len(self.clients)))

    def weighted(self, name: str, weights: Array) -> Array:
        """A sum with any weights, one per reply, in client order."""
        values = np.ascontiguousarray(self._named(name))
        flat = values.reshape(len(values), math.prod(values.shape[1:]))
        out = self._backend.segment_sum(flat, weights, self.starts).reshape(-1, *values.shape[1:])
        return np.asarray(out[0] if self._single else out)
