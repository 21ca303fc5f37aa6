"""Networks by name, so that nobody has to draw a star. Every number is one for all, or one per client or link; a
bandwidth may be a `fs.network.Varying`.

`star` keeps columns instead of a graph, so that a million clients cost a few megabytes; the others draw a graph
and hand it to `Network`. A client's node is called "client3", an edge server's "edge0", the server's "server".
"""

from __future__ import annotations

from fedsim.topologies.graphml import from_graphml
from fedsim.topologies.meshes import complete, erdos_renyi, from_graph, grid, random_regular, ring, small_world
from fedsim.topologies.stars_and_trees import multiple_access, star, tree

__all__ = [
    "complete",
    "erdos_renyi",
    "from_graph",
    "from_graphml",
    "grid",
    "multiple_access",
    "random_regular",
    "ring",
    "small_world",
    "star",
    "tree",
]
