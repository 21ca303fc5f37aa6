"""What a run refuses: a timeline that needs values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedsim.errors import InvalidInput

if TYPE_CHECKING:
    from fedsim.old_engine.learner import Learner
    from fedsim.old_engine.world import World


def check_skip(world: World, learner: Learner) -> None:
    """Refuse a timing-only run of what has no timeline without its values."""
    if not world.skip:
        return
    if world.budget.target is not None:
        raise InvalidInput(
            f'compute="skip" evaluates no metrics, so Budget(target on {world.budget.target.metric!r}) would never be '
            "reached; give rounds=, bits or seconds="
        )
    if any(learner.reply_shape(round).bits is None for round in (0, 1)):
        raise InvalidInput(
            f'compute="skip" cannot time {type(world.algorithm.own).__name__} with {world.algorithm.codec}: '
            "how long its replies are depends on their values; take a codec of fixed length such as "
            "fs.codecs.QSGD(levels), or compute"
        )
