"""Which compiled clock serves a scenario, and on which path; or why none does."""

from __future__ import annotations

from fedsim.engine.clock import Learning
from fedsim.engine.clock.compiled import CompiledClock
from fedsim.engine.clock.compiled.asynchronous import AsynchronousClock
from fedsim.engine.clock.compiled.gossip import CompiledGossip
from fedsim.engine.clock.compiled.own_parts import OwnPartsClock
from fedsim.engine.clock.compiled.tables import PartColumns
from fedsim.engine.system import MessageSizes, System
from fedsim.rules.closing import MOST_APART, WHEN_ALL_ENDED

LARGEST = 2e9  # bytes of state in memory


def compiled_clock(
    system: System, sizes: MessageSizes, path: str | None = None, learning: Learning | None = None
) -> CompiledClock | CompiledGossip | str:  # fmt: skip
    """Return a clock, or the reason why the compiled clock cannot serve a scenario; `path` is "loop" or "short"."""
    parts = PartColumns(system, sizes)
    if parts.missing:
        return parts.missing
    contended = why_contended(system, parts)
    if path == "short" and contended:
        return contended
    path = path or ("loop" if contended else "short")
    if sizes.depend_on_values and (path == "loop" or learning is None or system.has_unselected_flows or parts.own):
        return "the sizes of replies depend on their values"
    if parts.own:
        if path == "loop" or system.has_unselected_flows:
            return parts.own
        return OwnPartsClock(system, sizes, parts, "short")
    if system.policy.asynchronous:
        return within_limits(AsynchronousClock(system, sizes, parts, path))
    if system.gossip is not None:
        return within_limits(CompiledGossip(system, sizes, parts, path))
    return within_limits(CompiledClock(system, sizes, parts, path, learning))


def within_limits(clock: CompiledClock | CompiledGossip) -> CompiledClock | CompiledGossip | str:
    """Return a clock unless its state is too large."""
    return clock if clock.bytes <= LARGEST else f"its state would take {clock.bytes / 1e9:.1f} GB"


def why_contended(system: System, parts: PartColumns) -> str:
    """Return why a scenario needs the event loop; "": the short path serves it."""
    if system.gossip is not None:
        return why_gossip_contends(system, parts)
    if system.policy.asynchronous:
        return "clients are asynchronous"
    if parts.routes is not None and (system.shares_links or system.sites.count > 1):
        return "flows share links"
    if not system.always_online:
        return "devices go offline"
    if (system.policy.at_least or 1) > min(len(members) for members in system.sites.members):
        return "a site has too few clients"
    return "edges may be far ahead of each other" if system.sites.every > MOST_APART else ""


def why_gossip_contends(system: System, parts: PartColumns) -> str:
    """Return why sites that gossip need the event loop; "": the short path serves them."""
    if parts.own:
        return parts.own
    assert parts.policy is not None
    if system.shares_links:
        return "flows share links"
    if not system.always_online:
        return "devices go offline"
    if system.devices is not None and not system.devices.reliable:
        return "devices drop out"
    return "" if parts.policy.closing.code == WHEN_ALL_ENDED else "sites do not wait for all neighbours"
