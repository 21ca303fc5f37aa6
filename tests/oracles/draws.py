"""The random numbers of one replica, by address."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from fedsim import rng
from fedsim.rng import Stream


@dataclass(frozen=True)
class Address:
    """One visit: the client, the version it started from (0-based), and in `buffered` its number among the client's."""

    client: int
    version: int
    visit: int = 0


@dataclass(frozen=True)
class Numbers:
    """Draws of replica 0 under one seed."""

    seed: int

    def _key(self, stream: Stream, client: int = 0, round: int = 0, visit: int = 0) -> np.ndarray:
        return rng.keys(self.seed, stream, replica=0, client=client, round=round, visit=visit)

    @cache  # noqa: B019
    def private(self, at: Address, step: int, dim: int) -> np.ndarray:
        return rng.normal(self._key(Stream.NOISE, at.client, at.version, at.visit), dim, step)[0]

    @cache  # noqa: B019
    def shared(self, version: int, step: int, dim: int) -> np.ndarray:
        return rng.normal(self._key(Stream.SHARED, 0, version), dim, step)[0]

    def coin(self, at: Address, step: int) -> float:
        return float(rng.uniform(self._key(Stream.COIN, at.client, at.version, at.visit), 1, step)[0, 0])

    @cache  # noqa: B019
    def data(self, at: Address, step: int) -> float:
        """The noise of the one datum that answers to the model at a local step."""
        return float(rng.normal(self._key(Stream.DATA, at.client, at.version, at.visit), 1, step)[0, 0])

    def rows(self, at: Address, population: int, size: int) -> np.ndarray:
        """Different rows, drawn at the round's start."""
        return rng.choice(self._key(Stream.BATCH, at.client, at.version, at.visit), population, size)[0]

    @cache  # noqa: B019
    def rounding(self, at: Address, dim: int) -> np.ndarray:
        """Uniforms of QSGD: (word + 1/2) / 2^32."""
        key = self._key(Stream.CODEC, at.client, at.version, at.visit * 8)
        return (rng.words(key, -(-dim // 4))[0, :dim] + 0.5) / 2.0**32

    @cache  # noqa: B019
    def server_normal(self, site: int, round: int, dim: int) -> np.ndarray:
        return rng.normal(self._key(Stream.SERVER, site, round), dim)[0]

    def server_uniform(self, site: int, round: int) -> float:
        return float(rng.uniform(self._key(Stream.SERVER, site, round), 1)[0, 0])

    @cache  # noqa: B019
    def drawn_clients(self, site: int, round: int, draws: int, chances: tuple[float, ...]) -> np.ndarray:
        """How often each client is drawn: `draws` times with replacement, client c with chance chances[c]."""
        u = rng.uniform(self._key(Stream.SELECT, site, round), draws)[0]
        edges = np.cumsum(chances)
        return np.bincount([int(np.argmax(x <= edges)) for x in u * edges[-1]], minlength=len(chances))
