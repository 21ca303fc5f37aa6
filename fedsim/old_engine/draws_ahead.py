"""What is drawn for the visits to come of continuously working clients, several visits ahead.

Clients return one at a time, and drawing for one visit costs nearly as much as for thirty. A draw is named by the
client and its visit number alone, so it does not matter when it is made, or whether it is ever used. Devices of
somebody's own may look at the clock and are asked when the visit begins.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsim.old_engine.world import World

VISITS = 32  # ahead of a single client; of many at once, fewer

Drawn = tuple[float, int, float, int]  # compute_s, phase, fraction, place in ties


class DrawsAhead:
    """What is drawn for one replica's next visits."""

    def __init__(self, world: World, position: int, links: Any) -> None:
        self._world, self._position, self._links = world, position, links
        self._timeless = world.devices is None or world.devices.timeless
        self._drawn: dict[int, list[Drawn]] = {}  # by client; the next visit's is the last of the list
        self._paths: dict[int, Any] = {}

    def draws(self, clients: list[int], numbers: list[int], now_s: float) -> list[Drawn]:
        """What happens to the clients' visits of these numbers, which begin now."""
        missing = [i for i, c in enumerate(clients) if not self._drawn.get(c)]
        if missing:
            depth = max(1, VISITS // len(missing)) if self._timeless else 1
            client = np.repeat(np.array([clients[i] for i in missing], np.int64), depth)
            number = np.array([numbers[i] + k for i in missing for k in range(depth)], np.int64)
            rows = self._draw(client, number, now_s)
            for place, i in enumerate(missing):
                self._drawn[clients[i]] = rows[place * depth : (place + 1) * depth][::-1]
        return [self._drawn[c].pop() for c in clients]

    def paths(self, client: int) -> Any:
        """What the links need to know of a client's way down and up."""
        if client not in self._paths:
            self._paths[client] = self._links.paths(np.array([client], np.int64))[0]
        return self._paths[client]

    def _draw(self, client: Any, number: Any, now_s: float) -> list[Drawn]:
        now, position = np.full(len(client), now_s), np.full(len(client), self._position)
        drawn = self._world.visit_draws(now, position, client, 0, number)
        rank = (drawn.tie() * 2**40).astype(np.int64)
        columns = (drawn.compute_s, drawn.phase, drawn.fraction, rank)
        return list(zip(*(column.tolist() for column in columns), strict=True))
