"""What drivers have in common whose rounds come one at a time and who send no job before its round."""

from __future__ import annotations

from fedsim.arrays import Array, Arrays
from fedsim.old_engine.learner import Learner
from fedsim.old_engine.round import Round, Stretch
from fedsim.runtime.jobs import Reply


class RoundByRound:
    """Half a `Driver` (`run.py`): the rest says when rounds open and close, and what was sent at their opening."""

    _learner: Learner
    _message: Arrays  # of the round that `next` gave last

    async def replies(self, round: Round) -> Reply:
        who = round.arrived
        return await self._learner.replies(round.active, round.number, who, self._message, round.rows[who.row])

    def report_losses(self, round: Round, losses: Array) -> None:
        """Nobody is chosen by them."""

    def rounds_counted(self, stretch: Stretch, count: int) -> None:
        raise AssertionError("rounds come one at a time")

    async def close(self) -> None:
        """Nothing is sent early."""
