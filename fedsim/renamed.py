"""Public names of earlier versions and what replaces them, for errors that say which name to use."""

from __future__ import annotations

VERSION = "0.3.0"

# As in the section "Renamed" of CHANGELOG.md.
RENAMED = {
    "fs.plan": "fs.tune",
    "fs.run(compute=)": "fs.run(timing_only=)",
    "fedsim plan": "fedsim tune",
}


def sentence(old: str) -> str | None:
    """Return the error for a removed name such as "fs.plan" or "fedsim plan", None for any other name."""
    new = RENAMED.get(old)
    return None if new is None else f"{old} was renamed in {VERSION}: use {new}"


def setting(name: str) -> str | None:
    """Return the error for `--set participation.old=...`, None if no argument had that name."""
    head, _, field = name.rpartition(".")
    part = f"fs.{head.partition('.')[0]}"
    found = (old for old in RENAMED if old.endswith(f"({field}=)") and old.startswith(part))
    return sentence(next(found, "")) if head else None
