"""Settings as text: converted by annotation, and set on dotted fields of frozen dataclasses."""

from __future__ import annotations

import ast
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from fedsim import renamed
from fedsim.errors import InvalidInput
from fedsim.text import short_repr, short_str

MOST_RUNS = 1_000_000  # of one grid
TOO_MANY = f"{{:,}} runs, more than {MOST_RUNS:,}; give fewer values, or several sweeps"
# The types that text can be converted to, in the order in which the members of a union are tried.
_PLAIN = (type(None), bool, int, float, range, Path, str)
_WORDS = {
    type(None): "none",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    range: "a range such as 0:20",
    Path: "a path",
    str: "text",
    Any: "a Python value",
}


def from_text(name: str, value: object, annotation: Any) -> Any:
    """Convert `value` to the annotation if it is text; return any other value unchanged."""
    if not isinstance(value, str):
        return value
    kinds = sorted(_kinds(annotation), key=_strictness)
    if not kinds:
        raise InvalidInput(
            f"{name}={short_str(value)}: {spelled(annotation)} cannot be written as text; set its fields"
        )
    for kind in kinds:
        try:
            return _read(kind, value.strip())
        except ValueError:
            continue
    raise InvalidInput(f"{name}={short_str(value)}: must be {' or '.join(_words(kind) for kind in kinds)}")


def spelled(annotation: object) -> str:
    """Return an annotation as it is written in code."""
    if annotation is type(None):
        return "None"
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "").replace("NoneType", "None")


def with_fields(target: object, settings: Mapping[str, Any], prefix: str = "") -> Any:
    """Replace the dotted fields in `settings` at once, so that the checks of `target` run on the final values."""
    if not settings:
        return target
    if not is_dataclass(target) or isinstance(target, type):
        holder, kind = prefix.removesuffix("."), type(target).__name__
        raise InvalidInput(f"{holder} is {kind} and has no fields to set; make it an argument of scenario()")
    hints = _hints(type(target))
    changed = {}
    for head, group in _grouped(settings).items():
        if head not in hints or head not in {f.name for f in fields(target)}:
            raise unknown(f"{prefix}{head}", [prefix + f for f in field_names(target)])
        if "" in group and len(group) > 1:
            raise InvalidInput(f"{prefix}{head} is set together with one of its fields; choose one of them")
        if "" in group:
            changed[head] = from_text(f"{prefix}{head}", group[""], hints[head])
        else:
            changed[head] = with_fields(getattr(target, head), group, f"{prefix}{head}.")
    return replace(target, **changed)


def field_names(target: object) -> list[str]:
    """Return every dotted name that `with_fields` accepts for this object."""
    if not is_dataclass(target):
        return []
    names = [f.name for f in fields(target)]
    return [x for name in names for x in (name, *(f"{name}.{y}" for y in field_names(getattr(target, name))))]


def annotation_of(target: object, name: str, full_name: str = "") -> Any:
    """Return the annotation of a dotted field."""
    head, _, rest = name.partition(".")
    hints = _hints(type(target)) if is_dataclass(target) else {}
    if head not in hints:
        raise unknown(full_name or name, field_names(target))
    return annotation_of(getattr(target, head), rest, full_name or name) if rest else hints[head]


def plain(name: str, value: object) -> Any:
    """Return a setting as JSON can store it: None, a number, or text that `from_text` reads back."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a NumPy scalar
        return value.item()
    if isinstance(value, range) and value.step == 1:
        return f"{value.start}:{value.stop}"
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple | list):
        return ",".join(str(plain(name, part)) for part in value)
    raise InvalidInput(
        f"{name}={short_repr(value)}: {type(value).__name__} cannot be written as text; make it an argument of "
        "scenario()"
    )


def unknown(name: str, known: Sequence[str]) -> InvalidInput:
    """Return the error for an unknown name, with the closest known one."""
    if sentence := renamed.sentence(f"--set {name}"):
        return InvalidInput(sentence)
    same_field = [k for k in known if k.rpartition(".")[2] == name.rpartition(".")[2]]
    close = get_close_matches(name, known, 1, 0.6) or same_field
    remedy = f"did you mean {close[0]}?" if close else f"choose among {', '.join(known) or 'no settings'}"
    return InvalidInput(f"unknown setting {short_str(name)}; {short_str(remedy, 400)}")


def _grouped(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        head, _, rest = name.partition(".")
        groups.setdefault(head, {})[rest] = value
    return groups


def _hints(cls: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls)
    except NameError:  # an annotation that exists for type checkers only
        return {f.name: Any for f in fields(cls)}


def _kinds(annotation: object) -> list[Any]:
    """Return the members of an annotation that text can be converted to."""
    if annotation is Any or annotation in _PLAIN:
        return [annotation]
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return [kind for member in typing.get_args(annotation) for kind in _kinds(member)]
    if origin is Literal or (origin in (tuple, list) and _kinds(_element(annotation))):
        return [annotation]
    return []


def _strictness(kind: object) -> int:
    if typing.get_origin(kind) is Literal:
        return 1
    return _PLAIN.index(kind) if kind in _PLAIN else len(_PLAIN)


def _read(kind: Any, text: str) -> Any:
    origin = typing.get_origin(kind)
    if origin is Literal:
        return _one_of({str(option): option for option in typing.get_args(kind)}, text)
    if origin in (tuple, list):
        return origin(from_text("element", part, _element(kind)) for part in text.split(",") if part)
    return _READERS[kind](text)


def _element(kind: object) -> Any:
    return next(iter(typing.get_args(kind)), Any)


def _words(kind: Any) -> str:
    origin = typing.get_origin(kind)
    if origin is Literal:
        return "one of " + ", ".join(str(option) for option in typing.get_args(kind))
    return f"a list of {_words(_element(kind))} with commas" if origin else _WORDS[kind]


def _one_of(options: Mapping[str, Any], text: str) -> Any:
    if text not in options:
        raise ValueError(text)
    return options[text]


def _int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        number = float(text)  # 1e6 is accepted
    if not number.is_integer():
        raise ValueError(text)
    return int(number)


def _range(text: str) -> range:
    first, last = text.split(":")
    return range(int(first), int(last))


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):  # too deep or too long for Python's parser
        return text


_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_READERS: dict[Any, Callable[[str], Any]] = {
    type(None): lambda text: _one_of({"none": None}, text.lower()),
    bool: lambda text: _one_of(_TRUTH, text.lower()),
    int: _int,
    float: float,
    range: _range,
    Path: Path,
    str: str,
    Any: _literal,
}


def pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """Return `name=value` texts as a dict; errors name `option`."""
    out: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InvalidInput(f"{option} {short_str(text)}: write name=value, such as {option} seed=1")
        if name.strip() in out:
            raise InvalidInput(f"{option} {short_str(name.strip())} is given twice; give it once")
        out[name.strip()] = value
    return out


def check_runs(grid: Mapping[str, Sequence[Any]]) -> None:
    """Refuse a grid of more than MOST_RUNS combinations, without listing them."""
    total = math.prod(len(values) for values in grid.values())
    if total > MOST_RUNS:
        sizes = " x ".join(f"{len(values):,}" for values in grid.values())
        raise InvalidInput(f"the grid asks for {sizes} = {TOO_MANY.format(total)}")


def listed(where: str, values: Iterable[Any]) -> list[Any]:
    """Return the values of an axis as a list; refuse an endless one."""
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise InvalidInput(f"{where} = {short_repr(values)}; give a list of at least one value")
    found = list(islice(values, MOST_RUNS + 1))
    if not found:
        raise InvalidInput(f"{where} = {short_repr(values)}; give a list of at least one value")
    if len(found) > MOST_RUNS:
        raise InvalidInput(f"{where} = {short_repr(values)}: more than {MOST_RUNS:,} values; give fewer")
    return found


def axis(text: str) -> list[str]:
    """Return the values of one axis of a grid: 1,10,100 or 0:5, which excludes its end."""
    values: list[str] = []
    for part in text.split(","):
        span = re.fullmatch(r"(-?[0-9]{1,18}):(-?[0-9]{1,18})", part.strip())
        if span and int(span[2]) - int(span[1]) > MOST_RUNS:
            raise InvalidInput(f"--grid ...={short_str(text)}: {TOO_MANY.format(int(span[2]) - int(span[1]))}")
        values += map(str, range(int(span[1]), int(span[2]))) if span else [part.strip()]
    if not any(values):
        raise InvalidInput(f"--grid ...={short_str(text)}: it has no value; write 1,10,100 or 0:5")
    return values
