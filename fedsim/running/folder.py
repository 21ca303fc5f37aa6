"""The folder of a run: claimed by one process at a time, resumable from its checkpoints, or complete."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fedsim
from fedsim.engine.checkpoint import Checkpointer
from fedsim.engine.manifest import describes, identities
from fedsim.errors import CorruptData, FedsimError, InUse, InvalidInput
from fedsim.results import Result, files, load, lock
from fedsim.results.checksums import read_json, with_checksum
from fedsim.results.files import check_writable, explained, write_atomic
from fedsim.results.folder import (
    CHECKPOINTS,
    MANIFEST,
    RUN_FORMAT,
    RUN_OLDER,
    STARTED,
    State,
    clean,
    is_clean,
    is_resumable,
    read_manifest,
    remove_checkpoints,
    repair,
    save_in_place,
    state,
)
from fedsim.running.activity import announcer
from fedsim.runtime.process import blas_kernels
from fedsim.text import short_str

if TYPE_CHECKING:
    from fedsim.running import RunOptions
    from fedsim.scenario import Scenario

OLDEST = "0.2.0 or earlier"  # whose run.json has no version
PACKAGE = "fedsim-systems"
FINISHED = ("complete", "damaged")  # loading the second names the damage


@dataclass(frozen=True)
class RunFolder:
    """Where a run leaves its files; `checkpoints` writes them, `result` is set if the run is complete already."""

    folder: Path | None
    checkpoints: Checkpointer
    note: str = ""
    result: Result | None = None
    work: str = ""  # digest of what is computed
    held: lock.Lock | None = None
    fresh: bool = False  # True: a failure leaves no files

    @classmethod
    def take(cls, scenario: Scenario, options: RunOptions, rounds: int | None) -> RunFolder:
        """Claim the folder `out`, or load the complete run in it; `release` gives the folder back.

        `rounds`: how many the run will have, for `fedsim status`; None if that is not known.
        """
        out, every, resume, stop = options["out"], options["checkpoint_every"], options["resume"], options["stop"]
        if out is None:
            if every is not None or resume:
                raise InvalidInput("checkpoint_every= and resume= need a folder: add out=")
            return cls(None, Checkpointer(None, "", None, stop))
        folder, timing_only, source = Path(out).absolute(), options["timing_only"], options["source"]
        check_free(folder, resume)
        work, identity = identities(scenario, timing_only)
        resumable = every is not None or resume
        checkpoints = Checkpointer(folder if resumable else None, identity, every, stop)
        if resume and folder.is_dir() and state(folder) in FINISHED and is_clean(folder):  # needs no write access
            return cls(folder, checkpoints, result=_load_same(folder, scenario, timing_only, work, source))
        held, made, found = claim(folder)
        checkpoints.announce(announcer(held, rounds))
        try:
            refuse(folder, found, resume)
            if found in FINISHED:
                result = _load_same(folder, scenario, timing_only, work, source)
                held.release()
                return cls(folder, checkpoints, result=result)
            if found != "empty":
                made = _check_started(folder, work, source, resume) or made
            if found == "unfinished" and is_resumable(folder):
                return cls(folder, checkpoints, checkpoints.find(), None, work, held)
            files.remove_folder(folder / CHECKPOINTS)  # of a run that was killed before its first
            facts = {"checkpoint_every": every, "timing_only": timing_only, "clock": options["clock"], "work": work}
            begin(folder, {"source": source or {}, "blas_kernels": blas_kernels(), **facts}, made)
            return cls(folder, checkpoints, "", None, work, held, fresh=not resumable)
        except BaseException:
            give_up(folder, held, made and found == "empty")
            raise

    def finish(self, result: Result) -> None:
        """Save the result and remove the checkpoints."""
        if self.folder is not None:
            save_in_place(result, self.folder)
            remove_checkpoints(self.folder)

    def release(self) -> None:
        """Release the lock; after a failure remove a folder without checkpoints."""
        if self.held is not None:
            self.held.release()
        if self.fresh and self.folder is not None:
            remove_unfinished(self.folder)


@contextmanager
def claimed(out: Path) -> Iterator[Path]:
    """Hold a new folder while the body runs; remove it if the body fails."""
    folder = out.absolute()
    held, made, found = claim(folder)
    try:
        refuse(folder, found, resume=False)
        begin(folder, {"source": {}, "grid": True}, made)
        yield folder
        remove_checkpoints(folder)
    except BaseException:
        if found in ("empty", "unfinished") and state(folder, held=True) == "unfinished":
            remove_checkpoints(folder)
        give_up(folder, held, made)
        raise
    held.release()


def check_free(folder: Path, resume: bool = False) -> None:
    """Refuse a folder that cannot be claimed; files of a killed run are repaired first."""
    if not os.path.lexists(folder):
        check_writable(folder)
        return
    if not folder.is_dir():
        raise InvalidInput(f"{folder} already exists and is no folder; choose another --out or remove it")
    with explained(folder):
        if lock.held(folder):
            lock.take(folder).release()  # raises InUse with the process that holds it
        clean(folder)
        refuse(folder, state(folder, held=True), resume)


def refuse(folder: Path, found: State, resume: bool) -> None:
    """Refuse a folder in a state that cannot be claimed."""
    if found == "foreign" and resume:
        raise InvalidInput(
            f"{folder} is no run's folder, or its {MANIFEST} or {STARTED} is damaged; choose another --out"
        )
    resumable = found == "unfinished" and is_resumable(folder)
    if resume or found == "empty" or (found == "unfinished" and not resumable):
        return
    if resumable:
        raise InvalidInput(
            f"{folder} already exists and holds an unfinished run; go on with: fedsim resume {folder}, "
            "choose another --out or remove it"
        )
    raise InvalidInput(f"{folder} already exists; choose another --out, remove it, or resume it")


def claim(folder: Path) -> tuple[lock.Lock, bool, State]:
    """Return the folder's lock, whether this call made the folder, and its state after a repair."""
    with explained(folder):
        while True:
            made = files.make_parents(folder)
            try:
                held = lock.take(folder)
            except FileNotFoundError:  # another process removed it between the two steps
                continue
            except InUse:
                if made:
                    files.remove_empty(folder)
                raise
            break
    try:
        return held, made, repair(folder)
    except BaseException:
        give_up(folder, held, made)
        raise


def begin(folder: Path, facts: dict[str, Any], made: bool) -> None:
    """Record what runs here before the first round."""
    write_atomic(folder / STARTED, with_checksum(RUN_FORMAT, {**facts, "version": fedsim.__version__, "made": made}))


def give_up(folder: Path, held: lock.Lock, made: bool) -> None:
    """Release the lock; remove the folder if this process made it and it is empty."""
    held.release()
    if made:
        files.remove_empty(folder)


def remove_unfinished(out: Path) -> None:
    """After a failure: remove a run without checkpoints, unless another process holds it."""
    folder = out.absolute()
    if not folder.is_dir() or state(folder) not in ("empty", "unfinished") or is_resumable(folder):
        return
    with suppress(FedsimError, OSError):
        held = lock.take(folder)
        made = False
        if repair(folder) == "unfinished" and not is_resumable(folder):
            with suppress(FileNotFoundError, CorruptData):
                made = read_json(folder / STARTED, RUN_FORMAT).get("made") is True
            remove_checkpoints(folder)
        give_up(folder, held, made)


def read_facts(folder: Path) -> tuple[dict[str, Any], bool]:
    """Return the facts in a run's folder and whether the run is complete, for resume and replay.

    A folder of another version is refused: its bits may differ from those of this version.
    """
    if not folder.is_dir():
        raise InvalidInput(f"{folder} is no folder; give one that fedsim run --out DIR has made")
    if os.path.lexists(folder / MANIFEST):
        manifest = read_manifest(folder)
        _check_version(folder, _version_of(manifest))
        return manifest, True
    try:
        facts = read_json(folder / STARTED, RUN_FORMAT, RUN_OLDER)
    except FileNotFoundError:
        raise InvalidInput(f"{folder} is no run's folder; give one that fedsim run --out DIR has made") from None
    _check_version(folder, str(facts.get("version", OLDEST)))
    return facts, False


def _version_of(manifest: Mapping[str, Any]) -> str:
    versions = manifest.get("versions")
    return str(versions.get(PACKAGE)) if isinstance(versions, Mapping) else ""


def _check_version(folder: Path, version: str) -> None:
    if version and version != fedsim.__version__:
        raise InvalidInput(
            f"{folder} holds a run of fedsim {version}, and this is {fedsim.__version__}; run it again in another --out"
        )


def _check_started(folder: Path, work: str, source: dict[str, Any] | None, resume: bool) -> bool:
    """Return True if the run that started here made the folder; refuse to resume another scenario.

    Where run.json is damaged, the identity in the checkpoints is checked later.
    """
    try:
        facts = read_json(folder / STARTED, RUN_FORMAT, RUN_OLDER)
    except CorruptData:
        return False
    if resume:
        _check_version(folder, str(facts.get("version", OLDEST)))
        _check_source(folder, facts.get("source"), source)
        _check_blas(folder, facts.get("blas_kernels"))
        if facts.get("work") != work:
            raise InvalidInput(f"{folder} holds an unfinished run of another scenario; give it another --out")
    return facts.get("made") is True


def _check_blas(folder: Path, before: object) -> None:
    """Refuse to resume with other BLAS kernels, which give other bits; another library may have been loaded since."""
    now = blas_kernels()
    if isinstance(before, list) and not (set(before) <= set(now) or set(now) <= set(before)):
        raise InvalidInput(
            f"{folder} was begun with the BLAS kernels {', '.join(map(short_str, before))}, and these are "
            f"{', '.join(now)}, which give other bits; set OPENBLAS_CORETYPE as it was, or choose another --out"
        )


def _load_same(
    folder: Path, scenario: Scenario, timing_only: bool, work: str, source: dict[str, Any] | None
) -> Result:  # fmt: skip
    """Load the complete run in `folder` if it is the one that is asked for."""
    manifest = read_manifest(folder)
    _check_version(folder, _version_of(manifest))
    result = load(folder)
    _check_source(folder, manifest.get("source"), source)
    same = manifest["work"] == work if "work" in manifest else describes(manifest.get("scenario"), scenario)
    if not same:
        raise InvalidInput(f"{folder} holds the finished run of another scenario; give it another --out")
    if not timing_only and result.samples is None and "work" not in manifest:
        raise InvalidInput(f"{folder} holds a timeline alone; give it another --out")
    return result


def _check_source(folder: Path, there: object, source: dict[str, Any] | None) -> None:
    """Refuse to resume with other code than the run started with, where both are known."""
    if not isinstance(there, dict) or not source:
        return
    before, now = there.get("modules"), source.get("modules")
    if isinstance(before, dict) and isinstance(now, dict) and before != now:
        changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
        raise InvalidInput(
            f"{folder} was made with another version of {', '.join(changed)}, which its scenario file imports; "
            "put it back or choose another --out"
        )
