"""Virtual `time.*` for the thread of a ServerApp, and `sleep` for ClientApps. All other threads see real time.

The functions of the module `time` are replaced, also where a module of flwr or of the app has imported them by name,
and so is flwr's own `now`. A replaced function asks the timekeeper of its thread; without one it is the original.
"""

from __future__ import annotations

import datetime
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Protocol

EPOCH_S = 1_735_689_600.0  # 2025-01-01: virtual second 0 on the calendar
NAMES = ("time", "monotonic", "perf_counter", "time_ns", "monotonic_ns", "perf_counter_ns", "sleep")
REAL = {name: getattr(time, name) for name in NAMES}

FUNCTIONS = BuiltinFunctionType, FunctionType

_thread = threading.local()


class Timekeeper(Protocol):
    """What time it is for a thread, and what its sleeps do."""

    def read(self, name: str) -> float:
        """Return what `time.time`, `time.monotonic` or `time.perf_counter` returns."""

    def created_s(self) -> float:
        """Return the virtual second of a message that is made now."""

    def sleep(self, seconds: float) -> None: ...


class ClientTime:
    """Real time to a ClientApp; its sleeps take none, but count as compute time."""

    def __init__(self, sent_s: float) -> None:
        self.sent_s, self.slept_s = sent_s, 0.0

    def read(self, name: str) -> float:
        return float(REAL[name]()) + self.slept_s

    def created_s(self) -> float:
        return self.sent_s + self.slept_s

    def sleep(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        self.slept_s += float(seconds)


@contextmanager
def use_timekeeper(keeper: Timekeeper | None) -> Iterator[None]:
    """Let `keeper` have this thread's time; None: real time."""
    before = getattr(_thread, "keeper", None)
    _thread.keeper = keeper
    try:
        yield
    finally:
        _thread.keeper = before


def _reader(name: str) -> Callable[[], float]:
    real, is_ns, base = REAL[name], name.endswith("_ns"), name.removesuffix("_ns")

    def read() -> float:
        keeper: Timekeeper | None = getattr(_thread, "keeper", None)
        if keeper is None:
            return real()  # type: ignore[no-any-return]
        seconds = keeper.read(base)
        return int(seconds * 1e9) if is_ns else seconds

    return read


def _sleep(seconds: float) -> None:
    keeper: Timekeeper | None = getattr(_thread, "keeper", None)
    if keeper is None:
        REAL["sleep"](seconds)
    else:
        keeper.sleep(seconds)


REPLACED: dict[str, Callable[..., Any]] = {name: _reader(name) for name in NAMES[:-1]} | {"sleep": _sleep}


@contextmanager
def replaced_time() -> Iterator[None]:
    """Replace the functions of time; on leaving, every module has its own again."""
    replacement: dict[Any, Any] = {REAL[name]: REPLACED[name] for name in NAMES}
    changed: list[tuple[ModuleType, str, Any]] = []
    known = set(sys.modules)
    for module in [time, *_modules()]:
        for name, value in list(vars(module).items()):
            if name in ("now", "utcnow") and getattr(value, "__module__", "").startswith("flwr."):
                replacement.setdefault(value, _now_instead_of(value))
            if isinstance(value, FUNCTIONS) and value in replacement:
                changed.append((module, name, value))
                setattr(module, name, replacement[value])
    try:
        yield
    finally:
        original = {new: old for old, new in replacement.items()}
        for name in set(sys.modules) - known:  # imported meanwhile, with the replaced functions
            module = sys.modules[name]
            for attribute, value in list(getattr(module, "__dict__", {}).items()):
                if isinstance(value, FUNCTIONS) and value in original:
                    changed.append((module, attribute, original[value]))
        for module, name, value in changed:
            setattr(module, name, value)


def _now_instead_of(original: Callable[[], datetime.datetime]) -> Callable[[], datetime.datetime]:
    def now() -> datetime.datetime:
        keeper: Timekeeper | None = getattr(_thread, "keeper", None)
        if keeper is None:
            return original()
        return datetime.datetime.fromtimestamp(EPOCH_S + keeper.created_s(), tz=datetime.UTC)

    return now


def _modules() -> list[ModuleType]:
    """Return the modules of flwr, and those that were not installed: an app's own."""
    installed = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
    fedsim = str(Path(__file__).parents[1])
    found = []
    for name, module in list(sys.modules.items()):
        if not isinstance(module, ModuleType) or module is time:
            continue
        file = getattr(module, "__file__", None)
        own = name == "__main__" or (file is not None and not file.startswith((*installed, fedsim)))
        if own or name.partition(".")[0] == "flwr":
            found.append(module)
    return found
