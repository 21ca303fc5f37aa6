"""The folder of a run: taken by one process at a time, holding checkpoints, or already whole."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim.engine.checkpoint import Checkpointer
from fedsim.engine.manifest import describes, identities
from fedsim.errors import CorruptData, InUse, InvalidInput
from fedsim.results import Result, load, lock
from fedsim.results.checksums import read_json, sealed
from fedsim.results.files import check_writable, explained, write_atomic
from fedsim.results.folder import (
    CHECKPOINTS,
    STARTED,
    State,
    complete,
    forget,
    is_tidy,
    mend,
    read_manifest,
    state,
    tidy,
)

if TYPE_CHECKING:
    from fedsim.scenario import Scenario


FORMAT = "fedsim-run-1"


@dataclass(frozen=True)
class RunFolder:
    """Where a run leaves its files; `checkpoints` writes them, `whole` is the result that is there already."""

    folder: Path | None
    checkpoints: Checkpointer
    note: str = ""
    whole: Result | None = None
    work: str = ""  # digest of what is to be computed
    held: lock.Lock | None = None
    fresh: bool = False  # whether a failure is to leave nothing

    @classmethod
    def take(
        cls, out: str | Path | None, scenario: Scenario, compute: str, every: int | str | None, resume: bool,
        stop: threading.Event | None, source: dict[str, Any] | None, clock: str = "auto",
    ) -> RunFolder:  # fmt: skip
        """Claim `out`, or find what an earlier run left there; `release` gives it back."""
        if out is None:
            if every is not None or resume:
                raise InvalidInput("checkpoint_every= and resume= need a folder: add out=")
            return cls(None, Checkpointer(None, "", None, stop))
        folder = Path(out).absolute()
        check_free(folder, resume)
        work, identity = identities(scenario, compute)
        kept = every is not None or resume
        checkpoints = Checkpointer(folder if kept else None, identity, every, stop)
        if resume and folder.is_dir() and state(folder) == "whole" and is_tidy(folder):  # even where we cannot write
            return cls(folder, checkpoints, whole=_whole(folder, scenario, compute, work, source))
        held, made, found = claim(folder)
        try:
            refuse(folder, found, resume)
            if found == "whole":
                whole = _whole(folder, scenario, compute, work, source)
                held.release()
                return cls(folder, checkpoints, whole=whole)
            if found != "free":
                made = _begun(folder, work, source, resume) or made
            if found == "kept":
                return cls(folder, checkpoints, checkpoints.find(), None, work, held)
            shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)  # of a run that was killed before its first
            begin(folder, {"source": source or {}, "checkpoint_every": every, "clock": clock, "work": work}, made)
            return cls(folder, checkpoints, "", None, work, held, fresh=not kept)
        except BaseException:
            give_up(folder, held, made and found == "free")
            raise

    def finish(self, result: Result) -> None:
        """Make the folder whole; checkpoints have served their purpose."""
        if self.folder is not None:
            complete(result, self.folder)
            forget(self.folder)

    def release(self) -> None:
        """Let others have the folder."""
        if self.held is not None:
            self.held.release()
        if self.fresh and self.folder is not None:
            leave_nothing(self.folder)


@contextmanager
def claimed(out: Path) -> Iterator[Path]:
    """A new folder that is ours alone until the body is done, and gone if the body fails."""
    folder = out.absolute()
    held, made, found = claim(folder)
    try:
        refuse(folder, found, resume=False)
        begin(folder, {"source": {}, "grid": True}, made)
        yield folder
        forget(folder)
    except BaseException:
        if found in ("free", "begun") and state(folder) == "begun":
            (folder / STARTED).unlink(missing_ok=True)
        give_up(folder, held, made)
        raise
    held.release()


def check_free(folder: Path, resume: bool = False) -> None:
    """Refuse a folder that cannot be taken; what a killed run has left in it is put right first."""
    if not os.path.lexists(folder):
        check_writable(folder)
        return
    if not folder.is_dir():
        raise InvalidInput(f"{folder} already exists and is no folder; choose another --out or remove it")
    with explained(folder):
        if lock.held(folder):
            lock.take(folder).release()  # says who is at work there
        tidy(folder)
        refuse(folder, state(folder), resume)


def refuse(folder: Path, found: State, resume: bool) -> None:
    """What may not be taken, and what to do about it."""
    if found == "other" and resume:
        raise InvalidInput(f"{folder} is no run's folder; choose another --out")
    if resume or found in ("free", "begun"):
        return
    if found == "kept":
        raise InvalidInput(
            f"{folder} already exists and holds an unfinished run; go on with: fedsim resume {folder}, "
            "choose another --out or remove it"
        )
    raise InvalidInput(f"{folder} already exists; choose another --out, remove it, or resume it")


def claim(folder: Path) -> tuple[lock.Lock, bool, State]:
    """The lock of a folder that is made if need be, whether it was, and what is in it once it is mended."""
    with explained(folder):
        while True:
            folder.parent.mkdir(parents=True, exist_ok=True)
            try:
                folder.mkdir()
                made = True
            except FileExistsError:
                made = False
            try:
                held = lock.take(folder)
            except FileNotFoundError:  # somebody who had it made it vanish between our two steps
                continue
            except InUse:
                if made:
                    with suppress(OSError):
                        folder.rmdir()
                raise
            break
    try:
        return held, made, mend(folder)
    except BaseException:
        give_up(folder, held, made)
        raise


def begin(folder: Path, facts: dict[str, Any], made: bool) -> None:
    """Say what is being run here, from the first moment on."""
    write_atomic(folder / STARTED, sealed(FORMAT, {**facts, "made": made}))


def give_up(folder: Path, held: lock.Lock, made: bool) -> None:
    """Release the lock, and take the folder away if it is ours and empty. Nobody removes what it did not make."""
    held.release()
    if made:
        with suppress(OSError):
            folder.rmdir()


def leave_nothing(out: Path) -> None:
    """After a failure: take away a run that has begun and kept nothing, unless somebody else is at it."""
    folder = out.absolute()
    if not folder.is_dir() or state(folder) not in ("free", "begun"):
        return
    with suppress(InUse, OSError):
        held = lock.take(folder)
        made = False
        if mend(folder) == "begun":
            with suppress(FileNotFoundError, CorruptData):
                made = read_json(folder / STARTED, FORMAT).get("made") is True
            forget(folder)
        give_up(folder, held, made)


def facts_of(folder: Path) -> tuple[dict[str, Any], bool]:
    """What a run's folder says about itself, and whether it is whole; leftovers of a killed run are put right."""
    if not folder.is_dir():
        raise InvalidInput(f"{folder} is no folder; give one that fedsim run --out DIR has made")
    tidy(folder)
    found = state(folder)
    if found == "whole":
        return read_manifest(folder), True
    if found in ("free", "other"):
        raise InvalidInput(f"{folder} is no run's folder; give one that fedsim run --out DIR has made")
    return read_json(folder / STARTED, FORMAT), False


def _begun(folder: Path, work: str, source: dict[str, Any] | None, resume: bool) -> bool:
    """Whether a run that began here made the folder; one of another scenario is not gone on with.

    Where its own record is damaged the checkpoints still know what they belong to.
    """
    try:
        facts = read_json(folder / STARTED, FORMAT)
    except CorruptData:
        return False
    if resume:
        _check_source(folder, facts.get("source"), source)
        if facts.get("work") != work:
            raise InvalidInput(f"{folder} holds an unfinished run of another scenario; give it another --out")
    return facts.get("made") is True


def _whole(folder: Path, scenario: Scenario, compute: str, work: str, source: dict[str, Any] | None) -> Result:
    """The finished result, if it is the one that is asked for."""
    result = load(folder)
    _check_source(folder, result.manifest.get("source"), source)
    if result.manifest.get("work", work) != work:
        raise InvalidInput(f"{folder} holds the finished run of another scenario; give it another --out")
    if "work" not in result.manifest and not describes(result.manifest.get("scenario"), scenario):
        raise InvalidInput(f"{folder} holds the finished run of another scenario; give it another --out")
    if compute == "run" and result.samples is None and "work" not in result.manifest:
        raise InvalidInput(f"{folder} holds a timeline alone; give it another --out")
    return result


def _check_source(folder: Path, there: object, source: dict[str, Any] | None) -> None:
    """Refuse to go on with code that is not what the run began with, where both are known."""
    if not isinstance(there, dict) or not source:
        return
    before, now = there.get("modules"), source.get("modules")
    if isinstance(before, dict) and isinstance(now, dict) and before != now:
        changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
        raise InvalidInput(
            f"{folder} was made with another version of {', '.join(changed)}, which its scenario file imports; "
            "put it back or choose another --out"
        )
