"""Who runs in which turn, so that all of it ends in time.

Everybody runs once, in the order given. A turn after that has its even share of the time that is left, and takes those
whom it can afford, the quickest first: so the ratios that matter most, of short runs, are medians of the most turns.
"""

from __future__ import annotations

Pair = tuple[str, str]  # workload, contender


class Plan:
    """What pairs have cost so far, and whom the next turn can afford."""

    def __init__(self, pairs: list[Pair], turns: int, until: float) -> None:
        self.pairs, self.turns, self.until = list(pairs), turns, until
        self.seconds: dict[Pair, float] = {}

    def took(self, load: str, who: str, seconds: float) -> None:
        self.seconds[load, who] = seconds

    def drop(self, load: str, who: str) -> None:
        """It failed, and would again."""
        self.pairs.remove((load, who))

    def turn(self, number: int, now: float) -> list[Pair]:
        """The pairs of this turn, in their order."""
        if number == 0:
            return list(self.pairs)
        share = (self.until - now) / (self.turns - number)
        chosen = set()
        for pair in sorted(self.pairs, key=lambda pair: self.seconds[pair]):
            share -= self.seconds[pair]
            if share < 0:
                break
            chosen.add(pair)
        return [pair for pair in self.pairs if pair in chosen]
