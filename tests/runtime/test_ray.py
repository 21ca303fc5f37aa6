"""The same scenario on client hosts gives the same bits, whatever happens to the hosts."""

import asyncio
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from strategies.hosted import CLIENTS, POLICIES, scenario
from tools.clocks import always_compiled, reference_clock
from tools.follow import followed

import fedsim as fs
from fedsim.analysis.hosts import host_lines
from fedsim.cli.status import status
from fedsim.errors import ClientFailed, Interrupted, InvalidInput, RuntimeFailed
from fedsim.runtime import ray as ray_runtime
from fedsim.runtime.ray import Ray
from fedsim.runtime.ray import cluster as ray_cluster
from fedsim.runtime.ray import folder as ray_folder
from fedsim.runtime.ray.host import SentBatch
from fedsim.runtime.ray.pool import ActorPool
from fedsim.runtime.ray.private import OwnRay
from fedsim.runtime.ray.tasks import spread

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def cluster():
    """One Ray for the whole file: starting it is what takes time."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    own = OwnRay(16)
    yield own
    own.close()


@dataclass(frozen=True)
class Watched(Ray):
    """A Ray runtime that shows its session."""

    seen: tuple = ()

    def open(self, algorithm, setting):
        session = super().open(algorithm, setting)
        WATCHED.append(session)
        return session


WATCHED: list = []


@pytest.mark.parametrize("policy", POLICIES)
def test_hosts_give_the_bits_of_inline(cluster, policy):
    what = scenario(POLICIES[policy], record=fs.Record(events=policy == "first"))
    inline = fs.run(what)
    for runtime in (Ray(hosts=1), Ray(hosts=3)):
        assert fs.run(what, runtime=runtime).fingerprint == inline.fingerprint


@pytest.mark.slow
def test_an_actor_per_client_reports_its_own_client(cluster):
    what = scenario()
    WATCHED.clear()

    def ask(progress):
        if progress.round == 1:
            hosts = WATCHED[0].hosts
            answers.extend(ray.get([h.about.remote() for h in hosts]))

    answers: list = []
    result = fs.run(what, runtime=Watched(clients_per_host=1), observers=[ask])
    assert result.fingerprint == fs.run(what).fingerprint
    assert [a["clients"].tolist() for a in answers] == [[c] for c in range(CLIENTS)]
    assert len({a["pid"] for a in answers}) == CLIENTS
    for c, a in enumerate(answers):
        assert a["uplink_bottleneck_bps"] == [(c + 1) * 1e5]
        assert a["uplink_delay_s"] == [c * 1e-3]
        assert a["dropout"] == [np.linspace(0, 0.3, CLIENTS)[c]]


def test_a_result_lists_what_each_host_models(cluster, tmp_path):
    result = fs.run(scenario(), runtime=Ray(hosts=2), out=tmp_path / "out")
    hosts = fs.load(tmp_path / "out").hosts
    assert hosts.equals(result.hosts)
    assert hosts[["host", "clients", "first", "last"]].to_numpy().tolist() == [[0, 3, 0, 2], [1, 3, 3, 5]]
    assert hosts[["uplink_bottleneck_bps_min", "uplink_bottleneck_bps_max"]].to_numpy().tolist() == [
        [1e5, 3e5],
        [4e5, 6e5],
    ]
    assert hosts["dropout_max"].tolist() == pytest.approx([0.12, 0.3])
    assert (hosts["seconds_per_step_min"] == 1e-2).all()
    assert (hosts["bytes_held"] >= 3 * 20 * 2 * 8).all()  # 20 rows of two numbers of three clients
    lines = host_lines(result.manifest["hosts"], width=200)
    assert lines[0].split() == ["host", "clients", "holds", "uplink", "delay", "downlink", "compute", "dropout", "node"]
    assert "3-5" in lines[2]
    assert "400 kbit/s - 600 kbit/s" in lines[2]
    printed, code = status(tmp_path / "out")
    assert (code, printed[0]) == (0, "complete")
    assert printed[1].split()[:3] == ["host", "clients", "holds"]
    assert fs.run(scenario()).hosts is None


@pytest.mark.slow
def test_every_row_of_bytes_is_held_by_one_host(cluster):
    digits = fs.data.load("digits")
    parts = fs.data.dirichlet(digits.y, clients=10, alpha=0.5, seed=1)
    what = fs.Scenario(
        problem=fs.problems.NeuralNetwork.of(digits, parts), algorithm=fs.algorithms.FALD(1e-5, local_steps=2, batch_size=20),
        budget=fs.Budget(rounds=3), metrics=("accuracy",), dtype="float32",
    )  # fmt: skip
    WATCHED.clear()
    held: list = []

    def ask(progress):
        if progress.round == 2:
            held.extend(ray.get([h.about.remote() for h in WATCHED[0].hosts]))

    result = fs.run(what, runtime=Watched(hosts=3), observers=[ask])
    assert result.fingerprint == fs.run(what).fingerprint
    assert [a["rows_held"] for a in held] == [sum(len(parts[c]) for c in a["clients"]) for a in held]
    assert sum(a["rows_held"] for a in held) == len(digits.x)


@dataclass(frozen=True)
class Weighs(fs.algorithms.FedAvg):
    """FedAvg whose clients also send their potential and their mean loss."""

    def client(self, job, message, memory):
        reply, memory = super().client(job, message, memory)
        theta = message["theta"]
        return reply | {"potential": job.potential(theta), "loss": job.loss(theta)}, memory

    def init(self, problem, initial):
        zero = np.zeros((*initial.shape[:-1], 1))
        return super().init(problem, initial) | {"potential": zero, "loss": zero}

    def broadcast(self, state):
        return {"theta": state["theta"] + state["potential"] * 1e-6 + state["loss"] * 1e-3}

    def server(self, state, replies, rng):
        own = {name: replies.mean(name) for name in ("potential", "loss")}
        return super().server(state, replies, rng) | own


@pytest.mark.slow
def test_a_host_computes_potentials_and_losses_from_its_own_clients_rows(cluster):
    g = np.random.default_rng(2)
    data = [(g.normal(size=(5 + 4 * c, 3)), g.integers(0, 3, 5 + 4 * c)) for c in range(CLIENTS)]
    problem = fs.problems.SoftmaxRegression(data, classes=3, prior_precision=1.0)
    runs = [
        fs.run(replace(scenario(algorithm=Weighs(0.1, local_steps=2)), problem=problem), runtime=runtime)
        for runtime in (fs.Inline(), Ray(hosts=2))
    ]
    assert runs[0].fingerprint == runs[1].fingerprint


@pytest.mark.parametrize("policy", ["full", "buffered"])
def test_a_killed_host_is_replaced_and_its_jobs_repeated(cluster, policy):
    what = scenario(POLICIES[policy], rounds=12, algorithm=fs.algorithms.Scaffold(step_size=1e-2, local_steps=3))
    WATCHED.clear()
    killed = []

    def kill(progress):
        if progress.round in (3, 7):
            victim = WATCHED[0].hosts[progress.round % 2]
            pid = ray.get(victim.about.remote())["pid"]
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    result = fs.run(what, runtime=Watched(hosts=2), observers=[kill])
    assert len(set(killed)) == 2
    assert result.fingerprint == fs.run(what).fingerprint


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["tiers", "gossip"])
def test_a_host_killed_over_several_sites_is_replaced_and_the_bits_stay(cluster, shape):
    exchanges = {
        "tiers": fs.exchanges.tiers([0, 0, 1, 1, 1, 0], every=2),
        "gossip": fs.exchanges.gossip(nx.cycle_graph(CLIENTS)),
    }
    what = scenario(rounds=10, exchange=exchanges[shape])
    WATCHED.clear()
    killed = []

    def kill(progress):
        if progress.round == 4:
            killed.append(ray.get(WATCHED[0].hosts[1].about.remote())["pid"])
            os.kill(killed[0], signal.SIGKILL)

    result = fs.run(what, runtime=Watched(hosts=2), observers=[kill])
    assert len(killed) == 1
    assert result.fingerprint == fs.run(what).fingerprint
    assert result.fingerprint == fs.run(what, runtime=fs.Inline(threads=2)).fingerprint


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hosts", "algorithm"),
    [
        (1, fs.algorithms.QLSDPlusPlus(1e-3, refresh_every=10, batch_size=5, codec=fs.codecs.QSGD(4))),
        (2, fs.algorithms.QLSDPlusPlus(1e-3, refresh_every=10, batch_size=5, codec=fs.codecs.QSGD(4))),
        (2, fs.algorithms.FAHMC(1e-2, leapfrog_steps=3, debias="stale")),
    ],
)
def test_hosts_take_blocks_of_rounds_and_one_that_dies_is_replaced(cluster, hosts, algorithm):
    what = dataclasses.replace(
        scenario(algorithm=algorithm, rounds=40, evaluate_every=20, metrics=("mean_error",)), devices=None
    )
    WATCHED.clear()
    asked, whole = [], ray_runtime.RaySession.learn

    async def learn(self, block):
        asked.append(block.rounds)
        if len(asked) == 2:
            os.kill(ray.get(self.hosts[0].about.remote())["pid"], signal.SIGKILL)
        return await whole(self, block)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_runtime.RaySession, "learn", learn)
        result = fs.run(what, runtime=Watched(hosts=hosts))
    assert sum(asked) >= 30
    assert result.fingerprint == fs.run(what).fingerprint
    assert result.fingerprint == fs.run(what, observers=[lambda progress: None]).fingerprint  # one by one


@pytest.mark.slow
def test_hosts_learn_blocks_of_the_rounds_of_the_compiled_clock(cluster):
    channel = fs.topologies.multiple_access(CLIENTS, capacity_bps=1e6, latency_s=0.02)
    what = replace(scenario(fs.participation.deadline(0.1), rounds=30), network=channel)
    asked, whole = [], ray_runtime.RaySession.learn

    async def learn(self, block):
        asked.append(block.rounds)
        return await whole(self, block)

    with pytest.MonkeyPatch.context() as patch, always_compiled():
        patch.setattr(ray_runtime.RaySession, "learn", learn)
        result = fs.run(what, runtime=Ray(hosts=2))
    assert sum(asked) >= 28  # a run begins with single rounds
    assert 0 < result.rounds["arrived"].sum() < result.rounds["selected"].sum()
    with reference_clock():
        assert result.fingerprint == fs.run(what).fingerprint


REMEMBERING = {
    "scaffold": fs.algorithms.Scaffold(step_size=1e-2, local_steps=3),
    "qlsd++": fs.algorithms.QLSDPlusPlus(step_size=1e-4, refresh_every=3, batch_size=5),  # three arrays a client
}
PUNCTUAL = fs.devices.constant(1e-2)


@pytest.fixture
def travels(monkeypatch):
    """By round, whose memory went down to a host, in the order of the calls; replicas run in one batch."""
    seen: dict = {}
    pack = ray_runtime.pack

    def watched(parts):
        if isinstance(parts, SentBatch):
            seen.setdefault(parts.batch.round + 1, []).extend(parts.batch.client[parts.sent].tolist())
        return pack(parts)

    monkeypatch.setattr(ray_runtime, "pack", watched)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", REMEMBERING)
def test_memory_stays_with_its_host(cluster, travels, algorithm):
    what = replace(scenario(algorithm=REMEMBERING[algorithm]), devices=PUNCTUAL)
    result = fs.run(what, runtime=Ray(hosts=2), observers=[lambda progress: None])  # one round a call, not blocks
    assert sorted(travels.pop(1)) == sorted([*range(CLIENTS)] * 2)
    assert travels == {round: [] for round in range(2, 9)}
    assert result.fingerprint == fs.run(what).fingerprint


@pytest.mark.slow
def test_memory_is_restored_at_the_host_that_replaces_a_dead_one(cluster, travels):
    what = replace(scenario(algorithm=REMEMBERING["qlsd++"]), devices=PUNCTUAL)
    WATCHED.clear()

    def kill(progress):
        if progress.round == 4:
            os.kill(ray.get(WATCHED[0].hosts[1].about.remote())["pid"], signal.SIGKILL)

    result = fs.run(what, runtime=Watched(hosts=2), observers=[kill])
    travels.pop(1)
    assert {round: sorted(who) for round, who in travels.items() if who} == {5: [3, 3, 4, 4, 5, 5]}
    assert result.fingerprint == fs.run(what).fingerprint


@pytest.mark.slow
@pytest.mark.parametrize("clock", ["simpy", "compiled"])
@pytest.mark.parametrize("policy", ["first", "buffered"])
def test_memory_travels_once_to_the_host_of_a_client_however_many_visits_are_late_or_lost(
    cluster, travels, policy, clock
):
    """Only replies that arrived are computed, so a host has the memory of every client that it has computed."""
    what = scenario(POLICIES[policy], REMEMBERING["scaffold"], rounds=12, record=fs.Record(events=True))
    if policy == "buffered":
        what = replace(what, devices=fs.devices.constant(1e-2, availability=fs.devices.markov(0.06, off_s=0.02)))
    result = fs.run(what, runtime=Ray(hosts=2), clock=clock)
    assert result.rounds["late" if policy == "first" else "dropped"].sum() > 3
    arrived = result.events[result.events["event"] == "upload"]
    assert len(arrived) == 24 * 2
    assert sorted(chain(*travels.values())) == sorted(arrived.groupby("replica")["client"].unique().explode())
    assert result.fingerprint == fs.run(what).fingerprint


@pytest.mark.slow
def test_clients_whose_reply_was_computed_for_its_length_and_came_late_keep_their_earlier_memory(cluster, travels):
    """Late replies are computed for their bits and not aggregated; those clients are sent the memory that they had."""
    algorithm = fs.algorithms.QLSDPlusPlus(step_size=1e-4, refresh_every=3, batch_size=5, codec=fs.codecs.Elias(4))
    what = replace(scenario(POLICIES["first"], algorithm, rounds=12), devices=PUNCTUAL)
    result = fs.run(what, runtime=Ray(hosts=2))
    assert result.rounds["late"].sum() == 12 * 2 * 2
    assert 2 * CLIENTS < sum(map(len, travels.values())) < result.rounds["selected"].sum()
    assert result.fingerprint == fs.run(what).fingerprint


@pytest.mark.slow
def test_a_buffered_run_on_hosts_resumes_to_the_same_bits(cluster, tmp_path):
    what = scenario(POLICIES["buffered"], REMEMBERING["scaffold"], rounds=12)
    stop = threading.Event()
    with pytest.raises(Interrupted):
        fs.run(
            what, runtime=Ray(hosts=2), out=tmp_path / "run", stop=stop,
            observers=[lambda progress: stop.set() if progress.round == 5 else None],
        )  # fmt: skip
    resumed = fs.run(what, runtime=Ray(hosts=3), out=tmp_path / "run", resume=True)
    assert resumed.fingerprint == fs.run(what).fingerprint


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "2", True, float("nan")])
@pytest.mark.parametrize("name", ["hosts", "clients_per_host"])
def test_numbers_of_hosts_that_make_no_sense_are_refused(name, wrong):
    with pytest.raises(InvalidInput, match=rf"Ray\({name}=.*integer of at least 1"):
        Ray(**{name: wrong})


@pytest.mark.parametrize("wrong", [-1, "2", float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["num_cpus_per_host", "num_gpus_per_host"])
def test_resources_that_make_no_sense_are_refused(name, wrong):
    with pytest.raises(InvalidInput, match=rf"Ray\({name}=.*zero or a positive number"):
        Ray(**{name: wrong})


@pytest.mark.slow
def test_hosts_that_keep_dying_end_the_run_with_a_clear_error(cluster, monkeypatch):
    monkeypatch.setattr("fedsim.runtime.ray.hosts.PAUSES_S", (0.0,) * 4)
    with pytest.raises(RuntimeFailed, match=r"client host 0 died 5 times; look at the machine's memory"):
        fs.run(scenario(algorithm=Suicidal(1e-3)), runtime=Ray(hosts=1))


@dataclass(frozen=True)
class Suicidal(fs.algorithms.FALD):
    def client(self, job, message, memory):
        if "raylet" in " ".join(sys.argv) or "default_worker" in " ".join(sys.argv):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().client(job, message, memory)

    fused = None


@dataclass(frozen=True)
class Clumsy(fs.algorithms.FALD):
    batched = False
    fused = None

    def client(self, job, message, memory):
        if job.client == 4 and job.round == 3 and job.weight < 1:
            raise ZeroDivisionError("my own mistake")
        return super().client(job, message, memory)


@pytest.mark.parametrize("runtime", [None, "ray"])
def test_a_client_that_raises_aborts_the_run_with_its_name(cluster, runtime):
    what = scenario(algorithm=Clumsy(1e-3))
    with pytest.raises(ClientFailed, match=r"my own mistake .*client 4, round 3, replica \d, seed 3"):
        fs.run(what, runtime=Ray(hosts=2) if runtime else None)


@dataclass(frozen=True)
class Leaving(Clumsy):
    how: str = ""

    def client(self, job, message, memory):
        if job.round == 3 and self.how == "sys.exit":
            sys.exit(0)
        if job.round == 3 and self.how == "interrupt":
            raise KeyboardInterrupt
        return fs.algorithms.FALD.client(self, job, message, memory)


@pytest.mark.parametrize("how, said", [("sys.exit", "SystemExit: 0"), ("interrupt", "KeyboardInterrupt")])
def test_a_client_that_would_end_its_host_aborts_the_run_instead(cluster, how, said):
    began = time.monotonic()
    with pytest.raises(ClientFailed, match=rf"client raised {said}.*\(client \d, round 3, replica \d, seed 3\)"):
        fs.run(scenario(algorithm=Leaving(1e-3, how=how)), runtime=Ray(hosts=1))
    assert time.monotonic() - began < 90  # it hung; the machine may be busy


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="looks into /proc")
def test_a_ray_of_our_own_listens_on_loopback_alone(cluster):
    WATCHED.clear()
    found = []

    def look(progress):
        pids = [*ray_folder.users(cluster._folder.path), *(p.pid for p in cluster._processes.values()), os.getpid()]
        found[:] = listeners(pids)

    fs.run(scenario(rounds=2), runtime=Watched(hosts=2), observers=[look])
    names = {name for name, _ in found}
    assert {"gcs_server", "raylet"} <= names  # the look itself works
    assert sum(name.startswith("ray::Host") for name in names)
    assert {address for _, address in found} <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}, found


def listeners(pids):
    """(process, address) of every TCP socket on which these processes listen, as the kernel has them."""
    by_inode = {}
    for family, file in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
        path = Path("/proc/net", file)
        for line in path.read_text().splitlines()[1:] if path.exists() else []:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A":
                words = bytes.fromhex(local.partition(":")[0])
                raw = b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4))  # words in the host's order
                by_inode[f"socket:[{inode}]"] = socket.inet_ntop(family, raw)
    found = []
    for pid in pids:
        with suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    inode = os.readlink(descriptor)
                    found += [(name, by_inode[inode])] if inode in by_inode else []
    return found


ASK = """
from ray._raylet import GcsClient
print(GcsClient(address={address!r}).internal_kv_keys(b"", namespace=b"session", timeout=20))
"""


@pytest.mark.parametrize("mode", ["disabled", "token"])
def test_a_client_without_the_token_is_refused(cluster, mode):
    code = ASK.format(address=ray.get_runtime_context().gcs_address)
    outside = os.environ | {"RAY_AUTH_MODE": mode, "RAY_AUTH_TOKEN": "a guess"}
    asked = subprocess.run([sys.executable, "-c", code], env=outside, capture_output=True, text=True, timeout=120)
    assert asked.returncode != 0, asked.stdout
    assert "uthentic" in asked.stderr, asked.stderr


def test_starting_ray_leaves_signals_and_environment_as_they_were(cluster):
    if threading.current_thread() is threading.main_thread():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert "RAY_AUTH_TOKEN" not in os.environ


def test_more_than_the_cluster_has_is_refused(cluster):
    with pytest.raises(InvalidInput, match="need 60 CPUs, the cluster has 16"):
        fs.run(scenario(), runtime=Ray(hosts=3, num_cpus_per_host=20))
    with pytest.raises(InvalidInput, match="GPUs"):
        fs.run(scenario(), runtime=Ray(hosts=1, num_gpus_per_host=1))
    with pytest.raises(InvalidInput, match="one of the two"):
        Ray(hosts=2, clients_per_host=3)


@pytest.mark.slow
def test_an_existing_cluster_is_left_as_it_was(cluster):
    fs.run(scenario(), runtime=Ray(hosts=2))
    assert ray.is_initialized()
    for _ in range(100):
        if ray.available_resources().get("CPU") == 16:
            return
        time.sleep(0.1)
    raise AssertionError(f"the hosts still hold CPUs: {ray.available_resources()}")


ALONE = """
    import sys
    sys.path.insert(0, {tests!r})
    import fedsim as fs
    from strategies.hosted import scenario
    from fedsim.runtime.ray import Ray
    import os, signal as signals
    signals.signal(signals.SIGINT, signals.default_int_handler)  # ignored where the tests run in the background
    try:
        observers = [lambda p: os.kill(os.getpid(), {signal}) if {signal} and p.round == 2 else None]
        print(fs.run(scenario(), runtime=Ray(hosts=2), observers=observers).fingerprint)
    except KeyboardInterrupt:
        print("interrupted")
"""


def processes_of_ray():
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if "raylet" in line or "gcs_server" in line or line.startswith("ray::"):
            found.add(int(folder.name))
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="looks into /proc")
@pytest.mark.parametrize("sent", [0, int(signal.SIGINT)])
def test_a_ray_of_our_own_leaves_no_orphans(sent):
    before = processes_of_ray()
    code = textwrap.dedent(ALONE.format(tests=str(Path(__file__).parents[1]), signal=sent))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    expected = "interrupted" if sent else fs.run(scenario()).fingerprint
    assert done.stdout.split()[-1] == expected, done.stderr[-2000:]
    for _ in range(100):
        if processes_of_ray() <= before:
            return
        time.sleep(0.2)
    raise AssertionError("processes of Ray are left behind")


@pytest.mark.slow
def test_soak_of_killed_hosts(cluster_again):
    rng = np.random.default_rng(0)
    for trial in range(10):
        policy = list(POLICIES)[trial % 3]
        what = scenario(POLICIES[policy], REMEMBERING["scaffold"] if trial % 2 else None, rounds=15)
        WATCHED.clear()
        at = set(rng.integers(1, 14, 2).tolist())

        def kill(progress, at=at):
            if progress.round in at:
                victim = WATCHED[-1].hosts[int(rng.integers(2))]
                with suppress(ray.exceptions.RayActorError):  # dead already, and not missed yet
                    os.kill(ray.get(victim.about.remote())["pid"], signal.SIGKILL)

        assert fs.run(what, runtime=Watched(hosts=2), observers=[kill]).fingerprint == fs.run(what).fingerprint


@pytest.fixture
def cluster_again():
    if not ray.is_initialized():
        own = OwnRay(16)
        yield
        own.close()
    else:
        yield


def test_runs_inside_a_running_event_loop(cluster):
    async def both():
        what = scenario(rounds=2)
        return await fs.arun(what, runtime=Ray(hosts=1)), await fs.arun(what)

    on_ray, inline = asyncio.run(both())
    assert on_ray.fingerprint == inline.fingerprint


def test_an_address_without_a_cluster_is_refused_at_once():
    """Ray would go on trying for minutes, so it is not even asked."""
    with socket.socket() as bound:  # reserved, and not listening
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(RuntimeFailed, match=r"no cluster answers there.*ray start --head"):
            ray_cluster.join(None, address)


def test_a_call_whose_actor_dies_is_repeated_at_the_one_that_replaces_it(cluster):
    pool = ActorPool(Ray(hosts=2), lambda: lambda number: (number, os.getpid()))
    try:
        first = [pool.result(pool.submit(number, number)) for number in range(4)]
        assert [number for number, _ in first] == [0, 1, 2, 3]
        assert first[0][1] == first[2][1] != first[1][1]
        os.kill(first[0][1], signal.SIGKILL)
        again = [pool.result(one) for one in [pool.submit(number, number) for number in range(4)]]
        assert [number for number, _ in again] == [0, 1, 2, 3]
        assert first[0][1] not in {pid for _, pid in again}
        assert again[1][1] == first[1][1]
    finally:
        pool.close()


def test_a_call_that_is_waited_for_ends_when_its_hosts_are_stopped(cluster):
    pool = ActorPool(Ray(hosts=1), lambda: time.sleep)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(pool.result, pool.submit(0, 10_000))
        pool.close()
        with pytest.raises(RuntimeFailed, match="have been stopped"):
            waiting.result(timeout=60)


def test_tasks_that_fit_no_node_end_with_what_to_do(cluster, monkeypatch):
    monkeypatch.setattr("fedsim.runtime.ray.tasks.ROOM_S", 0.5)
    with pytest.raises(RuntimeFailed, match=r"no living node of the cluster has 20 CPUs; add nodes, then .* --resume"):
        list(spread(Ray(num_cpus_per_host=20), lambda number: number, [(1,)], 1, lambda: True))


# On this side: a host then runs `ray_host`, `client_memory`, `worker`, `jobs`, the algorithm and its kernel. Whoever
# awaits the hosts is woken up, from `running` on.
ON_HOSTS = """
    engine.run engine.commit engine.rounds engine.clock.compiled engine.clock.compiled.reader engine.learner
    algorithms.fald runtime.jobs runtime.ray runtime.ray.cluster runtime.ray.host runtime.ray.hosts
    running engine runtime.aggregation
    runtime.inline engine.recorder
"""


def test_a_round_on_client_hosts_passes_through_the_compiled_clock_and_the_door_to_the_hosts(cluster):
    asked = replace(scenario(rounds=5), devices=None)
    look = [lambda progress: None]  # so that rounds come one by one
    way = followed(lambda: fs.run(asked, runtime=Ray(hosts=2), observers=look, clock="compiled"))
    now_and_then = ("checks", "runtime.ray.private")  # the observer of this test; once a second, whether Ray is alive
    assert [module for module in way if module not in now_and_then] == ON_HOSTS.split()


def test_installed_packages_are_not_sent_with_their_code(monkeypatch):
    from ray import cloudpickle

    from fedsim.runtime.ray.host import carry_source

    sent = []
    monkeypatch.setattr(cloudpickle, "register_pickle_by_value", lambda module: sent.append(module.__name__))
    for part in (np.linalg.norm, replace, carry_source, test_installed_packages_are_not_sent_with_their_code):
        carry_source(part)
    assert sent == [__name__]
