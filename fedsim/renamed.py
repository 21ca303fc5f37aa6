"""Public names of earlier versions and what replaces them, for errors that say which name to use."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from fedsim.errors import InvalidInput

VERSION = "0.3.0"

# As in the section "Renamed" of CHANGELOG.md. A keyword of a function or class is written "fs.name(keyword=)".
RENAMED = {
    "fs.Scenario(reach=)": "fs.Scenario(broadcast_to=)",
    "fs.plan": "fs.tune",
    "fs.plan(vary=)": "fs.tune(grid=)",
    "fs.plan(spend=)": "fs.tune(minimize=)",
    "fs.plan(within=)": "fs.tune(limits=)",
    "fs.run(compute=)": "fs.run(timing_only=)",
    "fedsim plan": "fedsim tune",
}

Made = TypeVar("Made", bound=Callable[..., Any])


def sentence(old: str) -> str | None:
    """Return the error for a removed name such as "fs.plan" or "fedsim plan", None for any other name."""
    new = RENAMED.get(old)
    return None if new is None else f"{old} was renamed in {VERSION}: use {new}"


def setting(name: str) -> str | None:
    """Return the error for `--set participation.old=...`, None if no argument had that name."""
    head, _, field = name.rpartition(".")
    part = f"fs.{head.partition('.')[0] or 'Scenario'}"
    found = (old for old in RENAMED if old.startswith(part) and old.endswith(f"({field}=)"))
    return sentence(next(found, ""))


def refuse_old_keywords(where: str) -> Callable[[Made], Made]:
    """Decorate a factory or class so that a removed keyword raises the error that names the new one."""

    def decorate(made: Made) -> Made:
        function: Any = made.__init__ if isinstance(made, type) else made

        @wraps(function)
        def checked(*arguments: Any, **keywords: Any) -> Any:
            for name in keywords:
                if text := sentence(f"{where}({name}=)"):
                    raise InvalidInput(text)
            return function(*arguments, **keywords)

        if not isinstance(made, type):
            return checked  # type: ignore[return-value]
        made.__init__ = checked  # type: ignore[misc]
        return made

    return decorate
