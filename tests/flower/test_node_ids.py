"""Ids of nodes are a permutation that needs no table."""

from __future__ import annotations

import numpy as np

from fedsim.flower.node_ids import NodeIds


def test_ids_differ_have_one_length_and_lead_back_to_their_node():
    ids = NodeIds(seed=3, nodes=5_000)
    found = ids.of_all(np.arange(5_000))
    assert len(set(found)) == 5_000
    assert {node.bit_length() for node in found} == {63}
    assert [ids.client_of(node) for node in found] == list(range(5_000))
    assert ids.of(17) == found[17]


def test_other_numbers_are_no_nodes():
    ids, more = NodeIds(seed=3, nodes=10), NodeIds(seed=3, nodes=11)
    assert [ids.client_of(node) for node in (-1, 0, 5, 2**62, 2**63, 2**80, more.of(10))] == [None] * 7
    assert set(ids.of_all(np.arange(10))).isdisjoint(NodeIds(seed=4, nodes=10).of_all(np.arange(10)))
