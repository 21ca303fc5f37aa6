"""What a run refuses before it starts: timelines that would need values which are not there."""

from __future__ import annotations

from typing import Any

from fedsim.engine.system import MessageSizes, System
from fedsim.errors import InvalidInput
from fedsim.old_engine.run_checks import check_data
from fedsim.participation.early import Buffered


def check_run(system: System, sizes: MessageSizes) -> None:
    """Refuse what no clock can simulate."""
    check_data(system.problem, system.timing_only)
    name, codec, policy = type(system.algorithm.own).__name__, system.algorithm.codec, system.policy.own
    if system.policy.asynchronous and not _is_buffered(policy):
        raise InvalidInput(
            f"{type(policy).__name__}: asynchronous clients are drawn and aggregated as participation.buffered says; a "
            "select or close of its own would never be called; leave it out, or work in rounds"
        )
    if system.timing_only and system.budget.target is not None:
        raise InvalidInput(
            f'compute="skip" evaluates no metrics, so Budget(target on {system.budget.target.metric!r}) would never be '
            "reached; give rounds=, bits or seconds="
        )
    if system.timing_only and sizes.depend_on_values:
        raise InvalidInput(
            f'compute="skip" cannot time {name} with {codec}: how long its replies are depends on their values; take a '
            "codec of fixed length such as fs.codecs.QSGD(levels), or compute"
        )
    in_step = system.sites.count == 1 or system.sites.every == 1
    if not in_step and sizes.depend_on_values:
        raise InvalidInput(
            f"{name} with {codec}: how long its replies are depends on their values, which sites that run ahead of "
            "each other do not know in time; take a codec of fixed length such as fs.codecs.QSGD(levels), or every=1"
        )


def _is_buffered(policy: object) -> bool:
    own: Any = type(policy)
    return isinstance(policy, Buffered) and own.select is Buffered.select and own.close is Buffered.close
