"""Sites that gossip, simulated from the rules of the design alone. It shares no code with fedsim.

A site computes from its own model, sends its reply to every neighbour that counts it, and ends its round when its own
reply is there and it need not wait for neighbours: all messages have ended, enough have arrived, or its deadline has
passed. Messages share links until their last bit has left and arrive one latency later. Slow and plain: every step looks
at everything. Coincidences are not its subject: its cases have times that do not meet by chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from oracles.tier_clock import Way, next_on, on_until

START, PROGRESS, ARRIVAL, BREAK, DEADLINE, OPENING = range(6)  # order within an instant


@dataclass
class GossipCase:
    """`ways[sender, receiver]` are the routes, `used(round)` the pairs that send in a round."""

    sites: int
    capacities: list[float]
    ways: dict[tuple[int, int], Way]
    used: Callable[[int], set[tuple[int, int]]]
    seconds: list[float]
    fate: Callable[[int, int], tuple[int, float]]  # by client and round: phase and fraction
    on: list[list[tuple[float, float]]] | None = None
    replies: float = math.inf
    deadline: float = math.inf
    bits: int = 64


@dataclass(eq=False)
class Letter:
    """A message; `left` is what the links must still carry, nan once the last bit has left."""

    round: int
    sender: int
    receiver: int
    bits: int
    started: float
    whole: bool  # else the sender drops out in the upload
    left: float
    outcome: str = "late"
    arrived: float = math.nan  # in time
    ended: float = math.nan
    over: bool = False


@dataclass
class SiteRound:
    """What a site did in a round."""

    started: float
    computed: float = math.nan
    worked_until: float = math.nan
    ended: float = math.nan
    aggregated: bool = False
    dropped: bool = False


@dataclass
class GossipClock:
    case: GossipCase
    now: float = 0.0
    timers: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    sites: dict[tuple[int, int], SiteRound] = field(default_factory=dict)  # by round and site
    silent: set[tuple[int, int]] = field(default_factory=set)  # (round, site) that sends nothing

    def __post_init__(self) -> None:
        self.round = [0] * self.case.sites  # rounds that a site has ended
        self.stopped_at = math.inf
        for i in range(self.case.sites):
            self.at(0.0, OPENING, lambda i=i: self.open(i))

    def at(self, time: float, order: int, action: Callable[[], None]) -> None:
        self.timers.append((time, order, action))

    def final(self, round: int) -> bool:
        return min(self.round) >= round

    def close_call(self) -> bool:
        """Whether rounding decides if a message was there by its receiver's deadline."""
        due = {place: own.started + self.case.deadline for place, own in self.sites.items()}
        return any(abs(due.get((m.round, m.receiver), math.inf) - m.ended) < 1e-9 for m in self.letters)

    # --- Time -------------------------------------------------------------------------------------------------------

    def rates(self, flows: list[Letter]) -> list[float]:
        """Fill all flows alike until a link is full; those on it keep their rate."""
        left, open_flows, rates = list(self.case.capacities), set(range(len(flows))), [math.inf] * len(flows)
        routes = [self.case.ways[f.sender, f.receiver].links for f in flows]
        while open_flows:
            shares = {}
            for link, capacity in enumerate(left):
                if many := sum(link in routes[f] for f in open_flows):
                    shares[link] = capacity / many
            tightest = min(shares, key=shares.get, default=None)
            if tightest is None or shares[tightest] == math.inf:
                return rates
            for f in [f for f in open_flows if tightest in routes[f]]:
                rates[f] = shares[tightest]
                open_flows.discard(f)
                for link in routes[f]:
                    left[link] -= shares[tightest]
        return rates

    def run(self, rounds: int) -> None:
        """Simulate until every site has ended so many rounds, or one of them can never open a round."""
        while not self.final(rounds):
            if self.stopped_at <= rounds and self.final(self.stopped_at - 1):
                return
            flows = [letter for letter in self.letters if not letter.over and letter.left == letter.left]
            rates = self.rates(flows)
            ends = [self.now + f.left / rate for f, rate in zip(flows, rates, strict=True)]
            to = max(self.now, min([*ends, *(time for time, _, _ in self.timers)]))
            assert to < math.inf
            for flow, rate, end in zip(flows, rates, ends, strict=True):
                flow.left = 0.0 if end <= to + 1e-12 else flow.left - rate * (to - self.now)
            self.now = to
            for flow in flows:
                if flow.left == 0.0:
                    self.last_bit_left(flow)
            while due := [timer for timer in self.timers if timer[0] <= self.now + 1e-12]:
                first = min(due, key=lambda timer: timer[1])
                self.timers.remove(first)
                first[2]()

    # --- A site's round ---------------------------------------------------------------------------------------------

    def open(self, i: int) -> None:
        case, round = self.case, self.round[i] + 1
        if case.on is not None and (online := next_on(case.on[i], self.now)) > self.now + 1e-12:
            if online == math.inf:
                self.stopped_at = min(self.stopped_at, round)
            else:
                self.at(online, OPENING, lambda: self.open(i))
            return
        self.sites[round, i] = SiteRound(self.now)
        phase, fraction = case.fate(i, round)
        if phase == 1:
            self.at(self.now, BREAK, lambda: self.lose(i, round))
        elif phase == 2:
            self.at(self.now + fraction * case.seconds[i], BREAK, lambda: self.lose(i, round))
        else:
            self.at(self.now + case.seconds[i], PROGRESS, lambda: self.computed(i, round, fraction if phase else None))
        if case.on is not None:
            self.at(on_until(case.on[i], self.now), BREAK, lambda: self.go_offline(i, round))

    def works(self, i: int, round: int) -> bool:
        return self.round[i] == round - 1 and self.sites[round, i].worked_until != self.sites[round, i].worked_until

    def computed(self, i: int, round: int, fraction: float | None) -> None:
        if not self.works(i, round):
            return
        own = self.sites[round, i]
        own.computed = own.worked_until = self.now
        own.dropped = fraction is not None
        bits = self.case.bits if fraction is None else math.floor(fraction * self.case.bits)
        for sender, receiver in sorted(self.case.used(round)):
            if sender == i:
                way = self.case.ways[i, receiver]
                letter = Letter(round, i, receiver, bits, self.now, fraction is None, bits * way.loss)
                letter.outcome = "late" if letter.whole else "dropped"
                self.letters.append(letter)
                if (
                    letter.left == 0.0
                    or min((self.case.capacities[k] for k in way.links), default=math.inf) == math.inf
                ):
                    self.last_bit_left(letter)
        due = own.started + self.case.deadline
        if self.now < due < math.inf:
            self.at(due, DEADLINE, lambda: self.consider(i, round))
        self.consider(i, round)

    def consider(self, i: int, round: int) -> None:
        """End the round if nothing more need be waited for."""
        if self.round[i] != round - 1 or (round, i) not in self.sites:
            return
        own = self.sites[round, i]
        if own.computed != own.computed:
            return
        senders = [s for s, r in self.case.used(round) if r == i]
        mine = {m.sender: m for m in self.letters if m.receiver == i and m.round == round}
        arrived = sum(s in mine and mine[s].outcome == "arrived" for s in senders)
        lost = sum(
            (round, s) in self.silent or (s in mine and mine[s].over and mine[s].outcome != "arrived") for s in senders
        )
        if (
            arrived + lost == len(senders)
            or arrived >= self.case.replies
            or self.now >= own.started + self.case.deadline
        ):
            own.aggregated = True
            self.end(i, round)

    def end(self, i: int, round: int) -> None:
        self.sites[round, i].ended, self.round[i] = self.now, round
        self.at(self.now, OPENING, lambda: self.open(i))

    def lose(self, i: int, round: int) -> None:
        """The site keeps its model, sends nothing and continues."""
        if self.works(i, round):
            own = self.sites[round, i]
            own.worked_until, own.dropped = self.now, True
            self.silent.add((round, i))
            self.end(i, round)
            for sender, receiver in self.case.used(round):
                if sender == i:
                    self.consider(receiver, round)

    # --- Messages ---------------------------------------------------------------------------------------------------

    def last_bit_left(self, letter: Letter) -> None:
        letter.left = math.nan
        way = self.case.ways[letter.sender, letter.receiver]
        self.at(self.now + way.latency, ARRIVAL if letter.whole else BREAK, lambda: self.message_ended(letter))

    def message_ended(self, letter: Letter) -> None:
        if letter.over:
            return
        letter.over, letter.ended = True, self.now
        if letter.whole and self.round[letter.receiver] < letter.round:
            letter.outcome, letter.arrived = "arrived", self.now
        self.consider(letter.receiver, letter.round)

    def go_offline(self, i: int, round: int) -> None:
        if (round + 1, i) in self.sites:
            return  # a later round has this end too
        broken = [m for m in self.letters if m.sender == i and not m.over]
        for letter in broken:
            letter.over = True
            if not self.final(letter.round):
                if letter.left == letter.left:
                    loss = self.case.ways[i, letter.receiver].loss
                    letter.bits = min(letter.bits, math.floor(letter.bits - letter.left / loss + 1e-6))
                letter.outcome = "dropped"
                self.sites[letter.round, i].dropped = True
        for letter in broken:
            self.consider(letter.receiver, letter.round)
        self.lose(i, round)
