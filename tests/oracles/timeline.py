"""Whose replies each site aggregates in each round, and from which version they started, read from `result.events`."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from oracles.draws import Address

Aggregations = list[list[Address]]  # by round: the replies, sorted by client, then by end


def rows_of(events: Any) -> list[Any]:
    return list(events.itertuples(index=False))


def synchronous(events: Any, rounds: int) -> Aggregations:
    """A round aggregates the uploads of that round that arrived; a cut one is an event of another name."""
    found: Aggregations = [[] for _ in range(rounds)]
    for e in rows_of(events):
        if e.event == "upload" and e.client >= 0:
            found[e.round - 1].append(Address(e.client, e.round - 1))
    return [sorted(own, key=lambda a: a.client) for own in found]


def asynchronous(events: Any, rounds: int) -> Aggregations:
    """Uploads wait for the next aggregation; a visit starts from the version of its row, and is numbered by client."""
    found: Aggregations = []
    visits: defaultdict[int, int] = defaultdict(int)
    at_work: dict[int, Address] = {}
    buffer: list[Address] = []
    for e in rows_of(events):
        if e.event == "select":
            at_work[e.client] = Address(e.client, e.round - 1, visits[e.client])
            visits[e.client] += 1
        elif e.event == "upload":
            buffer.append(at_work[e.client])
        elif e.event == "aggregate":
            found.append(sorted(buffer, key=lambda a: a.client))
            buffer = []
    return found[:rounds]


def gossip(events: Any, rounds: int, sites: int) -> list[dict[int, list[int]]]:
    """By round: for every site that aggregates, its own number and the neighbours whose messages came before.

    Messages take no time in these scenarios, so the sender is the one client that finished computing at that instant.
    """
    finished: dict[tuple[int, float], list[int]] = defaultdict(list)
    arrived: dict[tuple[int, int], list[int]] = defaultdict(list)
    found: list[dict[int, list[int]]] = [{} for _ in range(rounds)]
    for e in rows_of(events):
        if e.round > rounds:
            continue
        site = -1 - e.client
        if e.event == "compute":
            finished[e.round, e.time_s].append(e.client)
        elif e.event == "hear":
            (sender,) = finished[e.round, e.time_s]
            if site not in found[e.round - 1]:
                arrived[e.round, site].append(sender)
        elif e.event == "aggregate":
            found[e.round - 1][site] = sorted([site, *arrived[e.round, site]])
    assert all(site < sites for own in found for site in own)
    return found
