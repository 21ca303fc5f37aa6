"""Whether flwr is there, and new enough."""

from __future__ import annotations

import re
from importlib import metadata

from fedsim.errors import InvalidInput

OLDEST = (1, 22)


def version() -> str | None:
    """Return the installed version of flwr; None: there is none."""
    try:
        return metadata.version("flwr")
    except metadata.PackageNotFoundError:
        return None


def require() -> None:
    """Refuse to go on without flwr, or with one that is too old."""
    found = version()
    if found is None:
        raise InvalidInput("Flower apps need flwr, which is not installed: pip install 'fedsim-systems[flower]'")
    if tuple(map(int, re.findall(r"\d+", found)[:2])) < OLDEST:
        raise InvalidInput(f"flwr {found} is too old for fedsim; install flwr>=1.22: pip install -U flwr")
