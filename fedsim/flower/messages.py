"""Messages: their bytes by Flower's object protocol, copies for clients, and a codec for replies.

A message is a tree of objects: the message, its RecordDict, records, arrays, chunks. Each is deflated and sent once, so
equal objects of one message count once.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.arrays import Array
from fedsim.flower import flwr_names as flwr
from fedsim.rng import Stream, keys

if TYPE_CHECKING:
    from flwr.app import Message, RecordDict

FLOATS = ("float16", "float32", "float64")


class Meter:
    """Bits of messages. Within `at_once` a content that several messages share is deflated once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, int, str]] = {}  # by id, with the object, so that the id stays its own

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Measure several messages, which are not changed meanwhile."""
        self._known.clear()
        try:
            with flwr.no_object_id_recompute():
                yield
        finally:
            self._known.clear()

    def bits(self, message: Message) -> tuple[int, str]:
        """Return the bits of a message, and the object id of its content ("" of an error)."""
        if not message.has_content():
            return 8 * len(message.deflate()), ""
        content = message.content
        found = self._known.get(id(content))
        if found is None:
            with flwr.no_object_id_recompute():
                objects = flwr.get_all_nested_objects(content)
                found = content, sum(len(part.deflate()) for part in objects.values()), content.object_id
            self._known[id(content)] = found
        with flwr.no_object_id_recompute():
            return 8 * (found[1] + len(message.deflate())), found[2]

    def reply_bits(self, message: Message) -> tuple[int, str]:
        """Return the same of a message that is measured alone."""
        with self.at_once():
            return self.bits(message)


def copied(message: Message) -> Any:
    """Return a message with records of its own; the bytes of arrays are shared, since nothing changes them."""
    made, fields = copy.copy(message), vars(message)
    vars(made)["_metadata"] = copy.copy(fields["_metadata"])
    vars(made)["_content"] = None if fields["_content"] is None else copied_content(fields["_content"])
    return made


def copied_content(content: RecordDict) -> Any:
    """Return a RecordDict of new records."""
    return flwr.RecordDict({name: _copied_record(record) for name, record in content.items()})


def _copied_record(record: Any) -> Any:
    if isinstance(record, flwr.ArrayRecord):
        arrays = {name: flwr.Array(a.dtype, tuple(a.shape), a.stype, a.data) for name, a in record.items()}
        return type(record)(arrays)
    return type(record)({name: list(value) if isinstance(value, list) else value for name, value in record.items()})


def encoded(reply: Message, sent: Message, codec: Any, seed: int, client: int, number: int) -> Any:
    """Replace the floating-point arrays of a reply by what a codec leaves of them; return the message on the wire.

    The codec encodes the difference to the array of the same record, name and shape that the client had received, and
    the array itself where there is none: of each record one vector, whose bytes stand in its first array's place.
    """
    wire = copied(reply)
    for lane, (name, record) in enumerate(reply.content.array_records.items()):
        before = sent.content.array_records.get(name, {}) if sent.has_content() else {}
        chosen = [key for key, array in record.items() if _is_float(array)]
        if not chosen:
            continue
        values = [record[key].numpy() for key in chosen]
        base = [_matching(before, key, value) for key, value in zip(chosen, values, strict=True)]
        differences = [(value.astype(np.float64) - start).ravel() for value, start in zip(values, base, strict=True)]
        flat = np.concatenate(differences)
        data = codec.encode(flat, keys(seed, Stream.CODEC, replica=lane, client=client, round=number % 2**32))
        received, at = np.asarray(codec.decode(data, len(flat))), 0
        for key, value, start in zip(chosen, values, base, strict=True):
            array = record[key]
            wire.content.array_records[name][key] = flwr.Array(
                array.dtype, tuple(array.shape), array.stype, b"" if at else data
            )
            part = received[at : at + value.size].reshape(value.shape)
            record[key] = flwr.Array(np.ascontiguousarray((part + start).astype(value.dtype)))
            at += value.size
    return wire


def _is_float(array: Any) -> bool:
    return array.stype == "numpy.ndarray" and array.dtype in FLOATS and 0 not in array.shape


def _matching(record: Any, key: str, value: Array) -> Array | float:
    other = record.get(key)
    if other is None or not _is_float(other) or tuple(other.shape) != value.shape:
        return 0.0
    return np.asarray(other.numpy(), np.float64)
