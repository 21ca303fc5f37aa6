"""Ratios of a benchmark, kept as JSON, and what got worse since they were kept.

A ratio is a time over that of the plain loop beside it, so that a slow machine slows both: smaller is better.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

WORSE = 1.3


def save(ratios: Mapping[str, float], file: Path) -> None:
    file.write_text(json.dumps(dict(sorted(ratios.items())), indent=1) + "\n")


def worse(ratios: Mapping[str, float], before: Mapping[str, float], factor: float = WORSE) -> list[str]:
    """A line for each ratio in both that grew by more than `factor`."""
    return [
        f"{name}: {before[name]:.3g} -> {now:.3g}, {now / before[name]:.2f} x worse"
        for name, now in sorted(ratios.items())
        if name in before and now > factor * before[name]
    ]


def check(ratios: Mapping[str, float], file: Path | None) -> int:
    """Print what got worse than in `file`; the exit code: 1 if anything did."""
    if file is None:
        return 0
    lines = worse(ratios, json.loads(file.read_text()))
    print("\n".join(lines) or f"nothing is {WORSE:g} x worse than in {file}")
    return 1 if lines else 0
