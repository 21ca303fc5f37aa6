"""A cluster of two nodes. The file is its own, so that no other Ray is open when it starts."""

from __future__ import annotations

import pytest
import ray
from strategies.hosted import POLICIES, scenario

import fedsim as fs
from fedsim.runtime.ray import Ray


@pytest.mark.slow
def test_two_nodes_and_a_lost_one_give_the_bits_of_inline():
    from ray.cluster_utils import Cluster

    if ray.is_initialized():
        ray.shutdown()
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    second = nodes.add_node(num_cpus=2)
    try:
        what = scenario(POLICIES["buffered"], rounds=20)
        whole = fs.run(what).fingerprint
        assert fs.run(what, runtime=Ray(hosts=3, address=nodes.address)).fingerprint == whole

        def lose(progress):
            if progress.round == 5:
                nodes.remove_node(second, allow_graceful=False)
                nodes.add_node(num_cpus=2)

        assert fs.run(what, runtime=Ray(hosts=3, address=nodes.address), observers=[lose]).fingerprint == whole
    finally:
        if ray.is_initialized():
            ray.shutdown()
        nodes.shutdown()
