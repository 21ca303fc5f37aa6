"""Networks by name, so that nobody has to draw a star. Every number is one for all, or one per client.

`star` keeps columns instead of a graph, so that a million clients cost a few megabytes; the others draw a graph
and hand it to `Network`. A client's node is called "client3", an edge server's "edge0", the server's "server".
"""

from __future__ import annotations

from fedsim.topologies.graphml import from_graphml
from fedsim.topologies.meshes import ring
from fedsim.topologies.shapes import multiple_access, tree
from fedsim.topologies.star import star

__all__ = ["from_graphml", "multiple_access", "ring", "star", "tree"]
