"""How far a run's folder is, and what a run that was killed has left to be put right.

    free    nothing in it, or nothing but what a killed run left before it began
    begun   a run has begun; there is no checkpoint, so nothing is lost by beginning again
    kept    a run has begun and can go on from a checkpoint
    whole   a finished result
    other   something that is no run's

Only the holder of the folder's lock mends it. The result is written aside as `.whole`, which appears complete, and
moved from there, manifest last: a run that was killed while it did that is finished by whoever comes next.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Literal

from fedsim.errors import InUse
from fedsim.results import lock
from fedsim.results.atomic import explained, remove_stale, sync_folder

State = Literal["free", "begun", "kept", "whole", "other"]
MANIFEST, STARTED, CHECKPOINTS, WHOLE = "manifest.json", "run.json", "checkpoints", ".whole"


def state(folder: Path) -> State:
    """What a folder holds. Without the lock it may be another the next moment."""
    if (folder / MANIFEST).exists():
        return "whole"
    if (folder / STARTED).exists():
        return "kept" if any((folder / CHECKPOINTS).glob("checkpoint-*.json")) else "begun"
    ours = (lock.LOCK, lock.OWNER, WHOLE)
    left = [name for name in os.listdir(folder) if name not in ours and not (name[0] == "." and name[-4:] == ".tmp")]
    return "other" if left else "free"


def is_tidy(folder: Path) -> bool:
    """Whether a whole folder holds nothing that belongs to a run under way."""
    names = os.listdir(folder)
    stale = {STARTED, CHECKPOINTS, WHOLE, lock.LOCK, lock.OWNER}
    return not stale.intersection(names) and not any(n[0] == "." and n[-4:] == ".tmp" for n in names)


def mend(folder: Path) -> State:
    """Finish or take away what a killed run has left; for the holder of the lock."""
    with explained(folder):
        remove_stale(folder, ours=True)
        settle(folder)
        found = state(folder)
        if found == "whole":
            forget(folder)
    return found


def settle(folder: Path) -> None:
    """Move a complete result from aside to its place, the manifest last, for it makes the folder whole."""
    aside = folder / WHOLE
    if not aside.is_dir():
        return
    for path in sorted(aside.iterdir(), key=lambda path: path.name == MANIFEST):
        if path.name == MANIFEST:
            sync_folder(folder)
        path.replace(folder / path.name)
    sync_folder(folder)
    aside.rmdir()


def forget(folder: Path) -> None:
    """Checkpoints have served their purpose."""
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    (folder / STARTED).unlink(missing_ok=True)


def tidy(folder: Path) -> None:
    """Mend a folder that nobody is using, as far as we may write there; for those who only want to read it."""
    if not folder.is_dir() or state(folder) == "other" or (state(folder) == "whole" and is_tidy(folder)):
        return
    with suppress(OSError, InUse):
        ours = lock.take(folder)
        try:
            mend(folder)
        finally:
            ours.release()
