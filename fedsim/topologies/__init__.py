"""Networks by name. Every number is one for all, or one per client or link; a bandwidth may be a `fs.network.Varying`.

`star` has columns instead of a graph, so that a million clients take a few megabytes; the others make a graph and a
`Network` of it. Nodes are named "client3", "edge0" and "server".
"""

from __future__ import annotations

from fedsim.topologies.meshes import (
    complete,
    erdos_renyi,
    from_graph,
    from_graphml,
    grid,
    random_regular,
    ring,
    small_world,
)
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
