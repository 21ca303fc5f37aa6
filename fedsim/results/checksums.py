"""JSON of our own: strict, sealed with a digest of what it says, and read in one place.

The seal finds damage, not malice: whoever can write the file can seal it again. So nothing that is read here is
ever executed, and what it says is checked where it is used.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Mapping
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.errors import CorruptData, InvalidInput
from fedsim.text import short_str

SEAL = "seal"


def to_json(value: object) -> bytes:
    """`value` as strict JSON; NaN and infinities, which JSON lacks, become the strings nan, inf and -inf."""
    return (json.dumps(_plain(value, "manifest"), indent=2, allow_nan=False) + "\n").encode()


def sealed(format: str, facts: Mapping[str, Any]) -> bytes:
    """A file that says what it is and whether it is still what was written; `read_json` reads it back."""
    plain = _plain({"fedsim_format": format, **facts}, "manifest")
    return to_json({**plain, SEAL: _seal(plain)})


def read_json(path: Path, format: str | None = None, unsealed: tuple[str, ...] = ()) -> dict[str, Any]:
    """The object in a JSON file that fedsim wrote, without format and seal; anything else is one FedsimError.

    `format` is what the file must say it is, None for files without one. `unsealed` are older formats that had no
    seal; where there is one it is checked all the same. A file that is absent raises FileNotFoundError: what that
    means, the caller knows.
    """
    facts = _parsed(path)
    if format is None:
        return facts
    found = facts.get("fedsim_format")
    if found != format and found not in unsealed:
        said = short_str(repr(found))
        raise CorruptData(f"{path} has the format {said}; this version of fedsim reads {format!r}")
    if found == format or SEAL in facts:
        seal = facts.pop(SEAL, None)
        if seal != _seal(facts):
            raise CorruptData(f"{path} is damaged or was edited: what it says does not fit its seal")
    del facts["fedsim_format"]
    return facts


def file_sum(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _parsed(path: Path) -> dict[str, Any]:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for ever
            raise CorruptData(f"{path} is damaged: it is no plain file")
        facts = json.loads(path.read_bytes(), parse_constant=_refused)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InvalidInput(f"cannot read {path} ({error.strerror}); ask its owner for access") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise CorruptData(f"{path} is damaged or not what fedsim wrote: {short_str(error)}") from error
    if not isinstance(facts, dict):
        raise CorruptData(f"{path} is damaged: it holds a {type(facts).__name__}, not an object")
    return facts


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _seal(facts: Mapping[str, Any]) -> str:
    """Of what is said, not of how: blanks and the order of names do not matter."""
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _plain(value: object, where: str) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(float(value))
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist(), where)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    kind = type(value).__name__
    raise InvalidInput(f"{where} is a {kind}, which JSON cannot hold; use numbers, text, lists and dicts")
