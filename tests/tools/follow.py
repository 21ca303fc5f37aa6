"""Which modules of fedsim run in one round, in order."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any
from unittest import mock

from fedsim.engine.recorder import Recorder

WARM = 2  # rounds before the one that is followed


def followed(run: Callable[[], object]) -> list[str]:
    """The modules that run between the record of round WARM and that of the next one."""
    entered: dict[str, None] = {}
    recorded = 0

    def look(frame: Any, event: str, argument: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if event == "call" and recorded == WARM and name.startswith("fedsim."):
            entered.setdefault(name.removeprefix("fedsim."))

    def counted(*arguments: Any) -> None:
        nonlocal recorded
        record(*arguments)
        recorded += 1

    record, before = Recorder.round, sys.getprofile()
    with mock.patch.object(Recorder, "round", counted):
        threading.setprofile(look)
        sys.setprofile(look)
        try:
            run()
        finally:
            sys.setprofile(before)
            threading.setprofile(before)
    return list(entered)
