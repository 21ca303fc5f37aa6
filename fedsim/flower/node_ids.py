"""Ids of nodes: a permutation of 62-bit numbers, so that no table of them is stored."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from fedsim.arrays import Array

BITS = 62
MASK, FIRST = (1 << BITS) - 1, 1 << BITS  # ids are in [2**62, 2**63): of one length on the wire
FACTORS = 0xBF58476D1CE4E5B9 & MASK, 0x94D049BB133111EB & MASK  # odd, so they have inverses
INVERSES = tuple(pow(factor, -1, 1 << BITS) for factor in FACTORS)


def mixed(seed: int) -> int:
    """Return 62 bits of a seed."""
    return int.from_bytes(blake2b(seed.to_bytes(8, "little"), digest_size=8).digest(), "little") >> 2


class NodeIds:
    """The ids of nodes 0, 1, ... of one run."""

    def __init__(self, seed: int, nodes: int) -> None:
        self.nodes, self._start = nodes, mixed(seed)

    def __len__(self) -> int:
        return self.nodes

    def of(self, client: int) -> int:
        """Return the id of a node."""
        return self.of_all(np.array([client]))[0]

    def of_all(self, clients: Array) -> list[int]:
        """Return the ids of nodes."""
        x = (clients.astype(np.uint64) + np.uint64(self._start)) & np.uint64(MASK)
        for factor in FACTORS:
            x = x * np.uint64(factor) & np.uint64(MASK)
            x ^= x >> np.uint64(BITS // 2)
        found: list[int] = (x | np.uint64(FIRST)).tolist()
        return found

    def client_of(self, node: int) -> int | None:
        """Return the number of the node with this id; None: there is none."""
        x = node ^ FIRST
        if x >> BITS:
            return None
        for inverse in reversed(INVERSES):
            x ^= x >> BITS // 2
            x = x * inverse & MASK
        client = (x - self._start) & MASK
        return client if client < self.nodes else None
