"""A cluster of two nodes, by two `ray start` on the loopback interface: a node, a host or the driver is ended."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from tools.ray_nodes import STOPPED_S, Nodes, inline, resumed
from tools.slow_run import ended

import fedsim as fs

pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc").exists(), reason="looks into /proc")]


@pytest.fixture
def nodes(tmp_path, request):
    """A cluster with as many CPUs at its two nodes as the test's parameter says."""
    made = Nodes(tmp_path, *request.param)
    yield made
    made.stop()


@pytest.mark.parametrize("nodes", [(4, 4), (1, 1)], ids=["with spare CPUs", "without spare CPUs"], indirect=True)
def test_the_clients_of_a_lost_node_move_to_the_other_one_and_the_bits_stay(nodes, request):
    spare = "with spare" in request.node.name
    job = nodes.begin("--hosts", "4" if spare else "2")
    assert nodes.hosts_of(nodes.other) >= 1
    nodes.kill_raylet()
    code, _, err = ended(job)
    assert (code, err) == (0, "")
    result = fs.load(nodes.folder / "out")
    assert result.fingerprint == inline(nodes)
    assert result.hosts["node"].nunique() == 1
    assert result.hosts["clients"].sum() == 4


@pytest.mark.parametrize("nodes", [(0, 1)], ids=["no CPU at the head"], indirect=True)
def test_a_run_that_loses_its_only_host_keeps_a_checkpoint_and_prints_the_command_that_resumes(nodes):
    job = nodes.begin("--hosts", "1")
    nodes.kill_raylet()
    code, _, err = ended(job, STOPPED_S)
    assert (code, len(err.splitlines())) == (1, 1), err
    assert "0 CPUs" in err
    assert "go on with: fedsim resume" in err
    assert resumed(nodes) == inline(nodes)


OUT_OF_MEMORY = """
import os, signal
from fedsim.cli import main
from fedsim.runtime.ray.hosts import Hosts
whole, calls = Hosts.get, []

def get(self, answers):
    calls.append(0)
    if len(calls) == 6:  # what Ray does: it kills the process and raises this
        host = self._ray.get(self.actors[0].about.remote())
        os.kill(host["pid"], signal.SIGKILL)
        raise self._ray.exceptions.OutOfMemoryError("Task was killed due to the node running low on memory.")
    return whole(self, answers)

Hosts.get = get
main()
"""


@pytest.mark.parametrize("nodes", [(1, 1)], ids=["two nodes"], indirect=True)
def test_an_out_of_memory_kill_is_a_death_and_sigterm_keeps_a_checkpoint(nodes):
    code, _, err = ended(nodes.begin("--hosts", "2", program=OUT_OF_MEMORY))
    assert (code, err) == (0, "")
    whole = inline(nodes)
    assert fs.load(nodes.folder / "out").fingerprint == whole
    shutil.rmtree(nodes.folder / "out")
    job = nodes.begin("--hosts", "2")
    os.kill(job.pid, signal.SIGTERM)
    code, _, err = ended(job, STOPPED_S)
    assert (code, len(err.splitlines())) == (130, 1), err
    assert "go on with: fedsim resume" in err
    assert resumed(nodes) == whole
