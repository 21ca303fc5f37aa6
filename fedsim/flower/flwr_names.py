"""Names of flwr, which have moved between its versions. Import this module only after `installed.require`."""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as ProtoRecordDict
from flwr.serverapp import Grid, ServerApp

from fedsim.errors import InvalidInput
from fedsim.flower.installed import version

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "SUPERLINK", "Array", "ArrayRecord", "ClientApp", "ConfigRecord", "Context", "Error", "ErrorCode", "Grid",
    "Message",
    "MetricRecord", "RecordDict", "Run", "ServerApp", "content_bytes", "content_from", "get_all_nested_objects",
    "no_object_id_recompute", "task_identity",
]  # fmt: skip

SUPERLINK = 1  # the SuperLink's node id


def _first(name: str, *modules: str) -> Any:
    """Return an attribute from the first of these modules that has it."""
    for module in modules:
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise InvalidInput(f"flwr {version()} has no {name} where fedsim looks for it; install flwr>=1.22,<1.43")


_OBJECTS = ("flwr.supercore.inflatable.inflatable_object", "flwr.supercore.inflatable", "flwr.common.inflatable")
Run = _first("Run", "flwr.supercore.run", "flwr.common.typing")
get_all_nested_objects = _first("get_all_nested_objects", *_OBJECTS)
no_object_id_recompute = _first("no_object_id_recompute", *_OBJECTS)


@contextmanager
def task_identity(run_id: int) -> Iterator[None]:
    """Give the ServerApp the identity that newer versions need for a new Message."""
    try:
        identity = import_module("flwr.supercore.task_identity").TaskIdentity
    except ImportError:
        yield
        return
    names = ("_task_id", "_run_id", "_node_id")
    before = [getattr(identity, name) for name in names]
    identity.task_id, identity.run_id, identity.node_id = 1, run_id, SUPERLINK
    try:
        yield
    finally:
        for name, value in zip(names, before, strict=True):
            setattr(identity, name, value)


def content_bytes(content: Any) -> bytes:
    """Return a RecordDict as Flower's protocol buffer."""
    data: bytes = recorddict_to_proto(content).SerializeToString(deterministic=True)
    return data


def content_from(data: bytes) -> Any:
    """Return the RecordDict of `content_bytes`."""
    return recorddict_from_proto(ProtoRecordDict.FromString(data))
