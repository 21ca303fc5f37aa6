"""The end of a process, which the threads of a scenario's own code must not hold up."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import NoReturn

GRACE_S = 2.0


def leave(code: int) -> NoReturn:
    """End the process with this code; a thread that has not ended soon after is cut off, which is an error."""
    if _others():
        threading.Thread(target=_cut_off, daemon=True).start()
    sys.exit(code)  # waits for all threads but daemons


def _cut_off() -> None:
    time.sleep(GRACE_S)
    if left := _others():
        names = ", ".join(sorted(thread.name for thread in left))
        sys.stderr.write(
            f"fedsim: a thread that the scenario's code started did not end within {GRACE_S:g} s and was cut off "
            f"({names}); make it a daemon (daemon=True) or join it\n"
        )
        sys.stderr.flush()
        sys.stdout.flush()
        os._exit(1)


def _others() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()]
