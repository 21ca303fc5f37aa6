"""Learning: the models of all replicas and sites, the clients' memory, broadcasts, replies, the server's step.

A clock asks the learner for nothing but the bits of replies and the losses that they report, where virtual time depends
on values. All else is computed when a round is committed: the jobs of a round of all replicas are one batch.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.engine.broadcasts import Broadcasts, rebased
from fedsim.engine.initial_state import first_memory, first_states
from fedsim.engine.message_sizes import ReplyShape, reply_shape, sum_bits
from fedsim.engine.rounds import RoundBlock, ranges
from fedsim.engine.sites import neighbours_of
from fedsim.engine.system import MessageSizes, System
from fedsim.errors import InvalidInput
from fedsim.protocols import SessionLike, Visitors, as_session
from fedsim.rules.closing import merge_due
from fedsim.rules.visits import ARRIVED
from fedsim.runtime.aggregation import SegmentReplies, Segments, Weighing, average, merge_at_cloud, server_draws
from fedsim.runtime.blocks import LearningBlock
from fedsim.runtime.inline import check_state
from fedsim.runtime.jobs import Batch, Reply
from fedsim.runtime.validation import server_of


class Learner:
    """The learning of all replicas, and what a clock may ask of it (`engine.clock.Learning`)."""

    def __init__(self, system: System, session: SessionLike) -> None:
        self.session, self.system, self.timing_only = as_session(session), system, system.timing_only
        self._algorithm, self._setting, self._sites = system.algorithm, system.setting, system.sites
        self._first, self.state = first_states(
            self._algorithm, system.problem.wrapped, system.scenario.site_starts, self.timing_only
        )
        self.memory = first_memory(self._algorithm, system.problem, len(system.replicas), self._setting.dtype)
        self._shapes: dict[int, ReplyShape] = {}
        self._computed: list[tuple[Array, Array, Reply]] = []  # replies whose bits the clock has asked for
        self._losses: list[dict[int, float]] = [{} for _ in system.replicas]  # by client, where policies read them
        self.broadcasts = Broadcasts()  # that visits of asynchronous clients have started from
        self.server = server_of(self._algorithm)
        sites, apart = system.sites, system.sites.models > 1
        p, clients = (sites.share(system.weights), sites.size) if apart else (system.weights, None)
        self.weighing = Weighing(system.policy, self._algorithm, p, clients, sites.models, sites.count)
        self._all_arrive: dict[int, Segments] = {}  # by number of replicas: all clients arrive

    # --- Sizes of messages ------------------------------------------------------------------------------------------

    @cached_property
    def sizes(self) -> MessageSizes:
        """The bits of all messages; what clients have from an earlier broadcast is not sent again."""
        known, message = self._algorithm.known, self.broadcast(np.arange(1))
        down = sum(8 * m.itemsize * math.prod(m.shape[1:]) for name, m in message.items() if name not in known)
        to_cloud = from_cloud = 0
        if self._sites.every and self._algorithm.sums:
            to_cloud, from_cloud = sum_bits(self.reply_shape(2), self._setting.dtype), down
        elif self._sites.every:
            to_cloud = from_cloud = sum(8 * s.nbytes for s in self._first.values())
        return MessageSizes(down, self.reply_shape(1).bits, self.reply_shape(2).bits, to_cloud, from_cloud)

    def reply_shape(self, round: int) -> ReplyShape:
        """Return what a reply consists of; round 1 may differ from all later ones (a message without history)."""
        at = min(round, 2)
        if at not in self._shapes:
            dtype = self._setting.dtype
            self._shapes[at] = reply_shape(self._algorithm, self.system.problem, self._first, dtype, at)
        return self._shapes[at]

    # --- What a clock may ask ---------------------------------------------------------------------------------------

    async def bits(self, position: Array, client: Array, visit: Array, round: int) -> Array:
        """Compute the replies of these visits now; their bits are returned, the replies are stored for the commit.

        Those of asynchronous clients are computed again, from what their visits started from.
        """
        order = np.lexsort((client, position))
        reply = await self._replies(position[order], client[order], visit[order], round)
        if not self.system.policy.asynchronous:
            self._computed.append((position[order], client[order], reply))
        out = np.empty(len(order), np.int64)
        out[order] = reply.bits
        return out

    def observed(self, position: int, clients: Array) -> Array:
        return np.array([self._losses[position].get(c, np.nan) for c in clients.tolist()])

    def losses(self) -> Arrays:
        """Return the losses that policies may read, for a checkpoint."""
        rows = [(p, c, loss) for p, of_one in enumerate(self._losses) for c, loss in of_one.items()]
        position, client, loss = (np.array(column) for column in zip(*rows, strict=True)) if rows else [np.zeros(0)] * 3
        return {"position": position.astype(np.int64), "client": client.astype(np.int64), "loss": loss}

    def restore(self, state: Arrays, memory: Arrays, losses: Arrays, broadcasts: Arrays) -> None:
        """Restore the state from a checkpoint."""
        self.state, self.memory = state, memory
        self.broadcasts.restore(broadcasts)
        for p, c, loss in zip(*(losses[n].tolist() for n in ("position", "client", "loss")), strict=True):
            self._losses[p][c] = loss

    # --- Replies ----------------------------------------------------------------------------------------------------

    def broadcast(self, active: Array) -> Arrays:
        """Return the message of every model of these replicas, stacked."""
        rows = self._rows(active)
        if self.timing_only:  # one is enough for all
            one = self._algorithm.broadcast(self._first)
            return {n: np.broadcast_to(m, (len(rows), *np.shape(m))) for n, m in one.items()}
        state = {n: s[rows] for n, s in self.state.items()}
        for copy in state.values():  # users' code gets it, and must not change it
            copy.flags.writeable = False
        if self._algorithm.batched:
            message: Arrays = self._algorithm.broadcast(state)
            if any(m.shape[:1] != rows.shape for m in message.values()):
                name = type(self._algorithm.wrapped).__name__
                raise InvalidInput(
                    f"{name}.broadcast gives arrays without a row for each of {len(rows)} models; it is batched"
                )
            return message
        parts = [self._algorithm.broadcast({n: s[i] for n, s in state.items()}) for i in range(len(rows))]
        return {n: np.stack([np.asarray(p[n]) for p in parts]) for n in parts[0]}

    async def _replies(self, position: Array, client: Array, visit: Array, round: int) -> Reply:
        """Compute the replies of visits that start from the present models; `position` is in order."""
        active = np.unique(position)
        row = np.searchsorted(active, position)
        if self._sites.models > 1:
            row = row * self._sites.models + self._sites.site_of[client]
        message = self.broadcast(active) if len(active) else {}
        return await self._compute(position, client, visit, round, message, row)

    async def _compute(
        self, position: Array, client: Array, visit: Array, round: int, message: Arrays, row: Array
    ) -> Reply:  # fmt: skip
        """Compute the replies of visits of a round that start from these rows of a message."""
        memory = {n: m[position, client] for n, m in self.memory.items()}
        shape = self.reply_shape(round)
        if not len(client):
            return Reply(shape.values, np.empty(0, np.int64), {n: m[:0, 0] for n, m in self.memory.items()})
        batch = Batch(round - 1, self.system.replicas[position], client, visit, message, row, memory)
        reply: Reply = await self.session.submit(batch, self._most_work)
        if shape.bits is not None and (reply.bits != shape.bits).any():
            raise InvalidInput(
                f"{type(self._algorithm.wrapped).__name__}: a reply of {reply.bits.max()} bits in round {round}, where "
                f"the clock expected {shape.bits}; its size must not depend on data, client or round"
            )
        return reply

    async def _stale_replies(
        self, block: RoundBlock, i: int, counted: Array, at: Array, position: Array
    ) -> tuple[Reply, Array]:  # fmt: skip
        """Compute replies of asynchronous clients from their versions; return them rebased, and their staleness."""
        active, round, v, parts, places = block.replicas[counted], block.first_round + i, block.visits, [], []
        client, visit, version = (column[at].astype(np.int64) for column in (v.client, v.visit, v.version))
        message = self.broadcast(active)
        self.broadcasts.add(active, round - 1, message, block.selected[counted, i])
        now = {name: rows[np.searchsorted(active, position)] for name, rows in message.items()}
        started: Arrays = {name: np.empty_like(rows) for name, rows in now.items()}
        for one in np.unique(version).tolist():
            own = np.flatnonzero(version == one)
            message, row = self.broadcasts.of(position[own], version[own])
            for name, rows in message.items():
                started[name][own] = rows[row]
            # A client's memory is what it was at the start: it waits until its reply has been aggregated.
            parts.append(await self._compute(position[own], client[own], visit[own], one + 1, message, row))
            places.append(own)
        starts, ends = block.offsets[counted, i], block.offsets[counted, i + 1]
        self.broadcasts.end(np.repeat(active, ends - starts), v.version[ranges(starts, ends)])
        reply, staleness = Reply.join(parts).part(np.argsort(np.concatenate(places))), round - 1 - version
        return rebased(self.system, reply, started, now, staleness), staleness

    @cached_property
    def _most_work(self) -> float:
        """Local steps of the client that has most: by them a runtime decides where a batch is computed."""
        return float(np.max(self._algorithm.work(Visitors(np.arange(self.system.population)))))

    async def _arrived(self, position: Array, client: Array, round: int) -> Reply:
        """Return the replies of visits that arrived: those that the clock had asked for, or computed now."""
        if not self._computed:
            return await self._replies(position, client, np.zeros(len(client), np.int64), round)
        known = np.concatenate([p * self.system.population + c for p, c, _ in self._computed])
        order = np.argsort(known, kind="stable")
        reply, self._computed = Reply.join([reply for _, _, reply in self._computed]), []
        return reply.part(order[np.searchsorted(known[order], position * self.system.population + client)])

    # --- The server's step ------------------------------------------------------------------------------------------

    async def aggregate(self, block: RoundBlock, i: int, counted: Array) -> None:
        """Apply round i of a block to the replicas at these places in it."""
        if self.timing_only:
            return
        v, active = block.visits, block.replicas[counted]
        starts, ends = block.offsets[counted, i], block.offsets[counted, i + 1]
        at = ranges(starts, ends)
        position = np.repeat(active, ends - starts)
        received = block.replied[at]
        at, position = at[received], position[received]
        client, round = v.client[at].astype(np.int64), block.first_round + i
        staleness = None
        if self.system.policy.asynchronous:
            reply, staleness = await self._stale_replies(block, i, counted, at, position)
        else:
            reply = await self._arrived(position, client, round)
        if block.gossip is not None:
            segments = neighbours_of(block, i, counted)
        else:
            site, times = v.site[at].astype(np.int64), v.multiplicity[at].astype(np.int64)
            segments = self.weighing.segments(active, position, site, client, times, staleness)
        if self.system.clock_reads_losses:
            losses = reply.values["loss"].reshape(len(client)).astype(np.float64)
            for p, c, loss in zip(position.tolist(), client.tolist(), losses.tolist(), strict=True):
                self._losses[p][c] = loss
        self.step(segments, reply, round)
        if self._sites.models > 1 and self._sites.every and merge_due(round, self._sites.every):
            rows, weights = self._rows(active), self._sites.weights
            merge_at_cloud(self.state, rows, weights, self._algorithm.merge, self._setting.backend)
        for name, memory in reply.memory.items():  # clients remember only what the server has aggregated
            self.memory[name][position, client] = memory

    def step(self, segments: Segments, reply: Reply, round: int) -> None:
        """Apply the server's step to these segments of replies."""
        rows = segments.position * self._sites.models + segments.site
        all_rows = len(rows) == len(self.state["theta"])
        state = self.state if all_rows else {n: s[rows] for n, s in self.state.items()}
        order, backend = segments.order, self._setting.backend
        values = reply.values if order is None else {n: value[order] for n, value in reply.values.items()}
        replies = SegmentReplies(values, segments, round, state, backend)
        replica, site = self.system.replicas[segments.position], segments.site
        if self._algorithm.batched:
            new = self.server(state, replies, server_draws(self._setting, replica, site, round - 1))
        else:
            new = self._one_by_one(state, replies, replica, site, round)
        for name, value in new.items():
            check_state(self._algorithm.wrapped, self._setting, name, np.asarray(value), replica, round)
            self.state[name][rows] = value

    def _one_by_one(self, state: Arrays, replies: SegmentReplies, replica: Array, site: Array, round: int) -> Arrays:
        new = []
        for s in range(len(site)):
            own, here = {n: value[s] for n, value in state.items()}, slice(s, s + 1)
            draws = server_draws(self._setting, replica[here], site[here], round - 1, single=True)
            new.append(self.server(own, replies.of(s, own), draws))
        return {n: np.stack([one[n] for one in new]) for n in new[0]}

    # --- Several rounds in one call -----------------------------------------------------------------------------------

    async def aggregate_rounds(self, block: RoundBlock, low: int, high: int, counted: Array) -> Array | None:
        """Apply rounds low ... high - 1 of the replicas at these places in one call.

        Return theta after each, (rounds, replicas, d). None: something is not finite, so that the rounds had better be
        taken one by one, which names the client.
        """
        all_replicas = len(active := block.replicas[counted]) == len(self.system.replicas)  # nothing is copied then
        state, memory = (
            arrays if all_replicas else {n: a[active] for n, a in arrays.items()}
            for arrays in (self.state, self.memory)
        )
        theta, state, memory = await self.session.learn(
            LearningBlock(
                self.system.replicas[active], block.first_round + low, high - low, state, memory,
                self._block_segments(block, low, high, counted), self.reply_shape(2).values,
            )
        )  # fmt: skip
        if not all(np.isfinite(s).all() for s in state.values()):
            return None
        for own, new in ((self.state, state), (self.memory, memory)):
            for name, value in new.items():
                own[name][active] = value
        return theta

    def _block_segments(self, block: RoundBlock, low: int, high: int, counted: Array) -> Segments:
        """Return the segments of these rounds, or of one round if all clients arrive in every one of them."""
        v, system, many = block.visits, self.system, len(counted)
        if block.all_arrive and (block.sizes == system.population).all():
            if many not in self._all_arrive:
                client = np.tile(np.arange(system.population), many)
                position, zero = np.repeat(np.arange(many), system.population), np.zeros_like(client)
                self._all_arrive[many] = self.weighing.segments(np.arange(many), position, zero, client, zero + 1)
            return self._all_arrive[many]
        starts, ends = (block.offsets[counted, low + k : high + k].T.ravel() for k in (0, 1))
        at, row = ranges(starts, ends), np.repeat(np.arange(len(starts)), ends - starts)
        if not block.all_arrive:
            received = v.outcome[at] == ARRIVED
            at, row = at[received], row[received]
        client, times = v.client[at].astype(np.int64), v.multiplicity[at].astype(np.int64)
        return self.weighing.segments(np.arange(len(starts)), row, np.zeros_like(client), client, times)

    # --- What is recorded ---------------------------------------------------------------------------------------------

    def theta(self, active: Array) -> Array:
        """Return what a run is evaluated by, (replicas, d): the average of its sites."""
        theta = self.state["theta"][self._rows(active)]
        return theta if self._sites.models == 1 else average(theta, self._sites.weights, self._setting.backend)

    def models(self, active: Array) -> Array:
        """Return every site's theta, (replicas, sites, d); where a cloud has the only one, its edges have that."""
        theta = self.state["theta"][self._rows(active)].reshape(len(active), self._sites.models, -1)
        return np.broadcast_to(theta, (len(active), self._sites.count, theta.shape[-1]))

    def _rows(self, active: Array) -> Array:
        """Return the rows of these replicas' models in the state."""
        models = self._sites.models
        return active if models == 1 else np.asarray((active[:, None] * models + np.arange(models)).ravel())
