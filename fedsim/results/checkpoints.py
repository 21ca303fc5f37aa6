"""Checkpoints on disk: numbered, checksummed, and complete the moment their index file appears.

A checkpoint is an index (JSON) that names its files and their SHA-256: one state file of its own, and the segments of
recorded values. A segment is shared by all later checkpoints, so it is written in two copies. The two newest
checkpoints remain on disk. Damage to one file costs some computing time, but never the run.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.arrays import Arrays
from fedsim.errors import CorruptData, FedsimError, InvalidInput
from fedsim.readers import stored_arrays
from fedsim.results import files
from fedsim.results.files import write_atomic

FORMAT = "fedsim-checkpoint-1"
INDEX = "checkpoint-*.json"
KEEP = 2


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint that was read back."""

    number: int
    state: Arrays
    segments: list[Arrays]
    note: str  # problems of newer checkpoints, "" if there are none


class Checkpoints:
    """The checkpoints of one run, in a folder of their own."""

    def __init__(self, folder: Path, identity: str) -> None:
        self.folder, self.identity = folder, identity
        self._segments: dict[str, str] = {}  # file name to checksum, oldest first

    def save(self, number: int, state: Arrays, segment: Arrays | None) -> None:
        """Write checkpoint `number`; `segment` holds the values recorded since the previous checkpoint."""
        if not self.folder.parent.is_dir():
            raise InvalidInput(f"{self.folder.parent} was removed during the run, so no checkpoint can be saved there")
        files.make_folder(self.folder)
        if segment:
            name = f"segment-{number:09d}.npz"
            self._segments[name] = self._write(name, segment, copy=_copy(name))
        name = f"state-{number:09d}.npz"
        sums = {**self._segments, name: self._write(name, state)}
        index = {"format": FORMAT, "number": number, "identity": self.identity, "state": name, "files": sums}
        body = json.dumps(index, indent=1).encode()
        write_atomic(self.folder / f"checkpoint-{number:09d}.json", body + _checksum(body))
        self._prune()

    def latest(self) -> SavedCheckpoint | None:
        """Return the newest valid checkpoint, with a note on damaged ones; None if there is no checkpoint."""
        notes: list[str] = []
        for index in reversed(files.listed(self.folder, INDEX)):
            try:
                saved = self._read(index, "; ".join(notes))
            except CorruptData as error:
                notes.append(str(error))
                continue
            return saved
        if notes:
            raise CorruptData(
                f"no checkpoint in {self.folder} can be read: {'; '.join(notes)}; remove {self.folder.parent} "
                "and run it again"
            )
        return None

    def _read(self, path: Path, note: str) -> SavedCheckpoint:
        index = _index(path)
        try:
            arrays = {name: self._load(name, digest) for name, digest in index["files"].items()}
            number = int(index["number"])
        except (OSError, ValueError, LookupError, TypeError, AttributeError, FedsimError) as error:
            raise CorruptData(f"{path.name} is damaged ({error})") from error
        if index["identity"] != self.identity:
            raise InvalidInput(
                f"{self.folder.parent} holds another scenario, or another version of fedsim, Python or CPU made it; "
                "give it another --out"
            )
        self._segments = {name: c for name, c in index["files"].items() if name != index["state"]}
        return SavedCheckpoint(number, arrays[index["state"]], [arrays[n] for n in self._segments], note)

    def _write(self, name: str, arrays: Arrays, copy: str = "") -> str:
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        for each in (copy, name) if copy else (name,):
            write_atomic(self.folder / each, buffer.getvalue())
        return sha256(buffer.getvalue()).hexdigest()

    def _load(self, name: str, checksum: str) -> Arrays:
        """Read a file of a checkpoint; repair a damaged segment from its copy."""
        data = _intact(self.folder / name, checksum)
        if data is None and (data := _intact(self.folder / _copy(name), checksum)) is not None:
            write_atomic(self.folder / name, data)
        if data is None:
            raise ValueError(f"{name} does not match its checksum")
        return stored_arrays(io.BytesIO(data))

    def _prune(self) -> None:
        for index in files.listed(self.folder, INDEX)[:-KEEP]:
            number = index.stem.split("-")[1]
            files.remove(index)
            files.remove(self.folder / f"state-{number}.npz")


def is_checkpoint(path: Path) -> bool:
    """Return True for the index of a checkpoint whose checksum matches."""
    try:
        return bool(_index(path))
    except CorruptData:
        return False


def _index(path: Path) -> dict[str, Any]:
    try:
        body, checksum = files.read(path).rsplit(b"\n", 1)
        index = json.loads(body)
        if _checksum(body) != b"\n" + checksum or index["format"] != FORMAT:
            raise ValueError("its checksum does not match")
        return dict(index)
    except (OSError, ValueError, LookupError, TypeError, RecursionError, FedsimError) as error:
        raise CorruptData(f"{path.name} is damaged ({error})") from error


def _checksum(body: bytes) -> bytes:
    return b"\n" + sha256(body).hexdigest().encode()


def _copy(name: str) -> str:
    return name.replace(".npz", ".copy.npz")


def _intact(path: Path, checksum: str) -> bytes | None:
    try:
        data = files.read(path)
    except (OSError, CorruptData):
        return None
    return data if sha256(data).hexdigest() == checksum else None
