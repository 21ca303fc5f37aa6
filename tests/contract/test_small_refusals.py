"""What is handed over cannot be changed afterwards; requests that would never end are refused before the first round."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading

import networkx as nx
import numpy as np
import pytest

import fedsim as fs
from fedsim.errors import InvalidInput, ResultWarning
from fedsim.protocols import View
from fedsim.runtime.process import blas_kernels

PROBLEM = fs.problems.GaussianMean.synthetic(clients=4, dim=2, samples=5)


def scenario(**parts):
    return fs.Scenario(**({
        "problem": PROBLEM, "algorithm": fs.algorithms.FedAvg(step_size=0.01), "budget": fs.Budget(rounds=3),
    } | parts))  # fmt: skip


# --- Handed over --------------------------------------------------------------------------------------------------------


def star():
    graph = nx.star_graph(4)
    nx.set_node_attributes(graph, {0: "server"}, "role")
    nx.set_node_attributes(graph, {node: node - 1 for node in range(1, 5)}, "client")
    nx.set_edge_attributes(graph, 1e5, "bandwidth_bps")
    nx.set_edge_attributes(graph, 0.01, "latency_s")
    return graph


def test_a_graph_that_is_changed_after_it_was_handed_over_changes_nothing(tmp_path):
    graph = star()
    network = fs.Network(graph)
    whole = fs.run(scenario(network=fs.Network(star())))
    graph.remove_node(2)
    graph[0][1]["bandwidth_bps"] = "none"
    again = fs.run(scenario(network=network), out=tmp_path / "run")
    assert again.fingerprint == whole.fingerprint
    assert again.manifest["network"] == whole.manifest["network"]
    assert network.describe() == fs.Network(star()).describe()


def test_a_gossip_graph_that_is_changed_after_it_was_handed_over_changes_nothing():
    graph = nx.cycle_graph(4)
    exchange = fs.exchanges.gossip(graph)
    graph.remove_edge(0, 1)
    assert nx.utils.graphs_equal(exchange.graph, nx.cycle_graph(4))


def test_an_initial_array_that_is_changed_after_it_was_handed_over_changes_nothing():
    start = np.ones(2)
    made = scenario(initial=start)
    start[:] = np.nan
    assert made.start.tolist() == [1.0, 1.0]
    assert fs.run(made).fingerprint == fs.run(scenario(initial=np.ones(2))).fingerprint


# --- Requests that never end --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("out", [3, 2.5, True, object()])
def test_an_out_that_is_no_path_is_refused(out):
    with pytest.raises(InvalidInput, match=r"out=.*: give a path"):
        fs.run(scenario(), out=out)


def test_more_draws_than_memory_holds_are_refused():
    with pytest.raises(InvalidInput, match=r"with_replacement\(8796093022208\) would take .*: use fewer draws"):
        scenario(participation=fs.participation.with_replacement(2**43))


def test_local_steps_as_a_float_are_refused_with_the_integer_to_write():
    with pytest.raises(InvalidInput, match=r"local_steps=1000000000.0\): write the integer 1000000000"):
        fs.algorithms.FedAvg(step_size=0.01, local_steps=1e9)


@pytest.mark.parametrize("timing_only", [False, True])
def test_visits_that_never_end_are_refused(timing_only):
    long = scenario(algorithm=fs.algorithms.FedAvg(step_size=0.01, local_steps=10**9))
    with pytest.raises(InvalidInput, match=r"FedAvg: a visit has 1,000,000,000 local steps; use at most 10,000,000"):
        fs.run(long, timing_only=timing_only)


def test_the_error_of_a_missing_data_set_begins_with_its_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDSIM_DATA", raising=False)
    with pytest.raises(InvalidInput, match=r"^data.load\('mnist'\): FEDSIM_DATA names no folder with it"):
        fs.data.load("mnist")
    monkeypatch.setenv("FEDSIM_DATA", str(tmp_path))
    with pytest.raises(InvalidInput, match=rf"^data.load\('mnist'\): it is not in FEDSIM_DATA={tmp_path}"):
        fs.data.load("mnist")


# --- Losses and the view ------------------------------------------------------------------------------------------------


class ByLoss:
    history = True

    def select(self, view, rng):
        return np.argsort(-np.nan_to_num(view.last(np.arange(view.clients), "loss"), nan=np.inf))[:2]

    def close(self, view):
        return np.inf


@dataclasses.dataclass(frozen=True)
class Reporting(fs.algorithms.FedAvg):
    local_only = ("loss",)

    def client(self, job, message, memory):
        reply, memory = super().client(job, message, memory)
        return reply | {"loss": job.loss(message["theta"])}, memory


def test_a_warning_says_why_losses_are_nan():
    with pytest.warns(ResultWarning, match=r"view.last\(ids, 'loss'\) is NaN: clients of FedAvg report no loss; write"):
        fs.run(scenario(participation=ByLoss()))
    with pytest.warns(ResultWarning, match="is NaN: timing_only=True computes no losses"):
        fs.run(scenario(participation=ByLoss(), algorithm=Reporting(step_size=0.01)), timing_only=True)


def test_no_warning_where_losses_are_reported(recwarn):
    fs.run(scenario(participation=ByLoss(), algorithm=Reporting(step_size=0.01)))
    assert not [one for one in recwarn if "view.last" in str(one.message)]


def test_the_page_about_the_view_has_every_member():
    page = str(fs.explain("view"))
    names = {*View.__annotations__, *(name for name in vars(View) if not name.startswith("_"))}
    assert [name for name in names if f"`{name}" not in page] == []
    assert 'view.last(ids, "loss")' in page
    assert "local_only" in page


# --- BLAS ---------------------------------------------------------------------------------------------------------------


def interrupted(folder):
    stop = threading.Event()
    stop.set()
    with pytest.raises(fs.errors.Interrupted):
        fs.run(scenario(), out=folder, stop=stop, checkpoint_every=1)
    return json.loads((folder / "run.json").read_text())


RESUME = """
import sys
import fedsim as fs
problem = fs.problems.GaussianMean.synthetic(clients=4, dim=2, samples=5)
made = fs.Scenario(problem, fs.algorithms.FedAvg(step_size=0.01), fs.Budget(rounds=3))
try:
    fs.run(made, out=sys.argv[1], resume=True)
except fs.errors.InvalidInput as error:
    print(error)
"""


def test_a_run_is_not_resumed_with_other_blas_kernels(tmp_path):
    facts = interrupted(tmp_path / "run")
    assert facts["blas_kernels"] == blas_kernels()
    other = next(core for core in ("Nehalem", "Haswell") if core not in blas_kernels())
    told = subprocess.run(
        [sys.executable, "-c", RESUME, str(tmp_path / "run")], env=os.environ | {"OPENBLAS_CORETYPE": other},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert f"was begun with the BLAS kernels {', '.join(blas_kernels())}, and these are" in told
    assert "set OPENBLAS_CORETYPE" in told
    assert len(fs.run(scenario(), out=tmp_path / "run", resume=True).rounds) == 3
