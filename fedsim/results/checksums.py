"""Strict JSON with a checksum of its content, written and read in one place.

The checksum detects damage and not malice: a person who can edit the file can compute it again. So the content is never
executed, and it is checked where it is used.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.errors import CorruptData, FedsimError, InvalidInput
from fedsim.results import files
from fedsim.text import short_str

CHECKSUM, OLD_NAME = "checksum", "seal"  # 0.2.0 wrote the second


def to_json(value: object) -> bytes:
    """Return `value` as strict JSON; NaN and infinities become the strings nan, inf and -inf."""
    return (json.dumps(_plain(value, "manifest"), indent=2, allow_nan=False) + "\n").encode()


def with_checksum(format: str, facts: Mapping[str, Any]) -> bytes:
    """Return `facts` as JSON with their format and checksum; `read_json` reads it back."""
    plain = _plain({"fedsim_format": format, **facts}, "manifest")
    return to_json({**plain, CHECKSUM: _checksum(plain)})


def read_json(path: Path, format: str | None = None, older: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the object in a JSON file that fedsim wrote, without format and checksum.

    `format` is the format that the file must name, None for files without one. Files of an `older` format may lack a
    checksum; if they have one, it is checked. A missing file raises FileNotFoundError, any other problem a FedsimError.
    """
    facts = parsed(path)
    if not isinstance(facts, dict):
        raise CorruptData(f"{path} is damaged: it holds a {type(facts).__name__}, not an object")
    if format is None:
        return facts
    found = facts.get("fedsim_format")
    if found != format and found not in older:
        raise CorruptData(f"{path} has the format {short_str(repr(found))}; this version of fedsim reads {format!r}")
    name = OLD_NAME if OLD_NAME in facts else CHECKSUM
    if found == format or name in facts:
        checksum = facts.pop(name, None)
        if checksum != _checksum(facts):
            raise CorruptData(f"{path} is damaged or was edited: its content does not match its checksum")
    del facts["fedsim_format"]
    return facts


def file_checksum(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with files.reading(path) as file:
        return file_digest(file, "sha256").hexdigest()


def parsed(path: Path) -> Any:
    """Return the value in a file of strict JSON."""
    try:
        return json.loads(files.read(path), parse_constant=_refused)
    except (FileNotFoundError, FedsimError):
        raise
    except OSError as error:
        raise InvalidInput(f"cannot read {path} ({error.strerror}); ask its owner for access") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise CorruptData(f"{path} is damaged or not what fedsim wrote: {short_str(error)}") from error


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _checksum(facts: Mapping[str, Any]) -> str:
    """Return a digest of the content; blanks and the order of names do not matter."""
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
