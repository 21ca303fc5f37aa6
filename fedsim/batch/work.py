"""One run of a sweep, in whatever process it happens: claimed, carried out or continued, its failure noted."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedsim.batch.plan import Order
from fedsim.engine import Interrupted
from fedsim.errors import FedsimError
from fedsim.place import STARTED
from fedsim.results import write_atomic
from fedsim.results.folder import to_json
from fedsim.runtime.inline import Inline
from fedsim.scenario import run as simulate
from fedsim.scenario_file import ScenarioFile
from fedsim.study import outcome

FAILED, LOG = "failed.json", "run.log"
CHECKPOINT_EVERY = "60s"
CLAIMS = ".claims"

Report = dict[str, Any]  # state: whole, failed, interrupted, elsewhere; then what came out, or what went wrong


def perform(file: ScenarioFile, order: Order, out: Path, threads: int, stop: threading.Event | None = None) -> Report:
    """Carry out one run in its folder, unless it is whole already; a failure is reported, never raised."""
    folder = out / order.run
    with claimed(out, order.run) as mine:
        if not mine:
            return {"state": "elsewhere"}
        said = io.StringIO()  # what the scenario's own code prints belongs to its log, not on the terminal
        try:
            tidy(folder)
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                scenario = file.build(order.settings)
                with file.blamed(FedsimError):
                    result = simulate(
                        scenario, runtime=Inline(threads=threads), out=folder, resume=True, stop=stop,
                        checkpoint_every=CHECKPOINT_EVERY, source=file.origin(order.settings),
                    )  # fmt: skip
            return {"state": "whole", "ends": outcome(result)}
        except Interrupted:
            return {"state": "interrupted"}
        except Exception as error:
            story = said.getvalue() + "".join(traceback.format_exception(error))
            blamed = error.__cause__ if type(error) is FedsimError and error.__cause__ else error
            return fail(folder, order, type(blamed).__name__, str(error), story)


def fail(folder: Path, order: Order, kind: str, message: str, story: str) -> Report:
    """Leave the reason in the run's folder, as far as that can be written."""
    reason = {"error": kind, "message": message, "traceback": story, "settings": order.settings}
    with contextlib.suppress(FedsimError, OSError):
        folder.mkdir(exist_ok=True)
        write_atomic(folder / LOG, story.encode())
        write_atomic(folder / FAILED, to_json(reason))
    return {"state": "failed", "error": kind, "message": message}


def tidy(folder: Path) -> None:
    """Take away an earlier failure, and a folder in which nothing had begun."""
    if not folder.exists() or (folder / "manifest.json").exists():
        return
    for name in (FAILED, LOG):
        (folder / name).unlink(missing_ok=True)
    if not (folder / STARTED).exists():
        shutil.rmtree(folder)


@contextlib.contextmanager
def claimed(out: Path, run: str) -> Iterator[bool]:
    """Whether the run is ours alone. The lock is the operating system's, so that it ends with the process."""
    try:
        import fcntl
    except ImportError:  # no such locks on Windows
        yield True
        return
    (out / CLAIMS).mkdir(exist_ok=True)
    path = out / CLAIMS / run
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            yield False
            return
        except OSError:  # a file system without locks: nobody can be told apart
            pass
        if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
            break
        os.close(descriptor)  # its last holder took the file away between our two steps
    try:
        yield True
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)
        with contextlib.suppress(OSError):
            (out / CLAIMS).rmdir()  # if it is the last


def running(out: Path) -> set[str]:
    """Which runs some process, perhaps on another machine, holds at this moment."""
    try:
        import fcntl
    except ImportError:
        return set()
    held = set()
    for path in (out / CLAIMS).glob("*"):
        with contextlib.suppress(FileNotFoundError), path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                held.add(path.name)
            except OSError:
                continue
    return held
