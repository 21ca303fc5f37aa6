"""Networks in GraphML files, which are never trusted."""

from __future__ import annotations

import os
from typing import Any

from fedsim.checks import check_path
from fedsim.errors import InvalidInput
from fedsim.network import Network
from fedsim.text import short_str

LARGEST_FILE = 64 * 2**20  # bytes
DEEPEST_FILE = 64  # elements inside elements


def from_graphml(path: str | os.PathLike[str], **network_arguments: Any) -> Network:
    """The network in a GraphML file; the arguments are those of `Network`. Nodes are named by their ids."""
    import io

    import networkx

    path = check_path("from_graphml(path)", path)
    name = short_str(path.name)
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise InvalidInput(f"{name} cannot be read ({error.strerror}): give the path of a GraphML file") from error
    if len(data) > LARGEST_FILE:
        raise InvalidInput(f"{name} is larger than {LARGEST_FILE >> 20} MiB: leave out what is not nodes and links")
    _check_xml(name, data)
    try:
        graph = networkx.read_graphml(io.BytesIO(data))
    except Exception as error:  # the reader raises whatever a strange file makes it stumble over
        raise InvalidInput(
            f"{name} is XML but not a GraphML graph ({short_str(error)}): export it as GraphML again"
        ) from error
    if graph.is_multigraph():
        raise InvalidInput(f"{name} has parallel edges: merge them into one edge each with their bandwidth")
    graph.graph.setdefault("name", name)
    return Network(graph, **network_arguments)


def _check_xml(name: str, data: bytes) -> None:
    """Refuse XML that is not well-formed, or that can hurt: declared entities, bottomless nesting."""
    from xml.parsers.expat import ExpatError, ParserCreate

    depth = 0

    def declares(*_: object) -> None:
        raise InvalidInput(f"{name} has a DOCTYPE, which GraphML does not need: remove it")

    def opens(*_: object) -> None:
        nonlocal depth
        depth += 1
        if depth > DEEPEST_FILE:
            raise InvalidInput(f"{name} nests more than {DEEPEST_FILE} elements: give a plain GraphML graph")

    def closes(*_: object) -> None:
        nonlocal depth
        depth -= 1

    parser = ParserCreate()
    parser.StartDoctypeDeclHandler = declares
    parser.StartElementHandler, parser.EndElementHandler = opens, closes
    try:
        parser.Parse(data, True)
    except InvalidInput:
        raise
    except (ExpatError, ValueError, LookupError) as error:  # the last two: an encoding that the parser does not know
        raise InvalidInput(
            f"{name} is not well-formed XML ({short_str(error)}): give a GraphML file, unpacked"
        ) from error
