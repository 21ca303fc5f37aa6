"""Memory follows the nodes that are asked, not the nodes that exist."""

from __future__ import annotations

import tracemalloc

import pytest

import fedsim as fs

FEW, MANY, ASKED = 2_000, 12_000, 5


NETWORKS = {
    "private": lambda nodes: fs.topologies.star(clients=nodes, uplink_bps=1e6, downlink_bps=1e7),
    "shared": lambda nodes: fs.topologies.multiple_access(nodes, capacity_bps=1e6),
}


@pytest.mark.parametrize("network", NETWORKS)
def test_a_node_that_is_not_asked_has_no_objects(app_of, network):
    """Its share is the topology's name of it, and numbers in arrays: what the scenario and its result have of it."""
    from flwr.app import Message, RecordDict

    found = []

    def server(grid, context):
        for _ in range(3):
            nodes = list(grid.get_node_ids())[:ASKED]
            grid.send_and_receive([Message(RecordDict(), node, "query") for node in nodes])
        del nodes
        found.append(len(tracemalloc.take_snapshot().traces))

    def run(nodes):
        links, devices = NETWORKS[network](nodes), fs.devices.constant(1.0)
        work = fs.flower.declared(lambda message, reply, context: 1)
        app = app_of(server, lambda message, context: RecordDict())
        tracemalloc.start()
        try:
            fs.flower.run(app, nodes=nodes, network=links, devices=devices, work=work)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    run(FEW)  # what is loaded once
    few, many = run(FEW), run(MANY)
    objects = (found[2] - found[1]) / (MANY - FEW)
    assert objects < 1.1
    assert (many - few) / (MANY - FEW) < 500  # bytes, while tables are built
