"""Two nodes of Ray on this machine, by two `ray start` on the loopback interface, for tests that end one of them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import fedsim as fs
from fedsim.scenario_file import load_file
from tools.slow_run import MAIN, SECONDS, begin, child, write_scenarios

STOPPED_S = 60  # from a death to a checkpoint and the command that resumes
ROUNDS = 40


class Nodes:
    """Two nodes with these numbers of CPUs, a token, and a folder for the commands that join them."""

    def __init__(self, folder, head_cpus, other_cpus, **environment):
        self.folder, self.scratch = folder, Path(tempfile.mkdtemp(prefix="n-"))
        self.token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": os.urandom(16).hex(), **environment}
        write_scenarios(folder)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        port = self.address.rpartition(":")[2]
        self.head = self._start("--head", f"--port={port}", f"--temp-dir={self.scratch}", cpus=head_cpus)
        self._wait(1)
        self.other = self._start(f"--address={self.address}", cpus=other_cpus)
        self._wait(2)

    def _start(self, *words, cpus):
        own = {n: v for n, v in os.environ.items() if not n.startswith("RAY_")}
        quiet = (
            ("--include-dashboard=false", "--disable-usage-stats") if "--head" in words else ("--disable-usage-stats",)
        )
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--node-ip-address=127.0.0.1"]
        return subprocess.Popen(
            [*command, f"--num-cpus={cpus}", *quiet, *words], env=own | self.token, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def _wait(self, nodes):
        """Wait until this number of nodes has joined."""
        code = WAIT.format(address=self.address, nodes=nodes)
        subprocess.run([sys.executable, "-c", code], env=os.environ | self.token, check=True, timeout=SECONDS)

    def begin(self, *words, program=MAIN, file="slow.py", rounds=ROUNDS):
        more = ("--runtime", "ray", "--address", self.address, "--out", "out", "--set", f"rounds={rounds}")
        return begin(self.folder, "run", file, *more, *words, program=program, **self.token)

    def hosts_of(self, node):
        """How many client hosts run at a node."""
        pid = child(node.pid, "raylet")
        names = []
        for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with suppress(OSError):
                names.append(Path(f"/proc/{one}/cmdline").read_text())
        return sum(name.startswith("ray::Host") for name in names)

    def kill_raylet(self):
        """Kill the second node at once, as when its machine is lost."""
        pid = child(self.other.pid, "raylet")
        os.kill(pid, signal.SIGKILL)

    def stop(self):
        for node in (self.other, self.head):
            with suppress(OSError):
                os.killpg(node.pid, signal.SIGKILL)
            node.wait()
        for entry in Path("/proc").glob("[0-9]*"):  # Ray starts some processes in sessions of their own
            with suppress(OSError):
                if str(self.scratch) in (entry / "cmdline").read_text():
                    os.kill(int(entry.name), signal.SIGKILL)
        shutil.rmtree(self.scratch, ignore_errors=True)


WAIT = """
import sys, time
from ray._raylet import GcsClient
from ray.scripts.scripts import main
limit = time.monotonic() + 120
while time.monotonic() < limit:
    try:
        alive = [n for n in GcsClient(address={address!r}).get_all_node_info().values() if n.state == 0]
        if len(alive) >= {nodes}:
            sys.exit(0)
    except Exception:
        pass
    time.sleep(0.5)
sys.exit("the nodes do not come up")
"""


def inline(nodes, rounds=ROUNDS):
    return fs.run(load_file(nodes.folder / "slow.py").build({"rounds": rounds})).fingerprint


def resumed(nodes):
    """The fingerprint after the command that an interrupted or failed run printed."""
    subprocess.run(
        [sys.executable, "-c", MAIN, "resume", "out", "--quiet"], cwd=nodes.folder, check=True, timeout=SECONDS
    )
    return fs.load(nodes.folder / "out").fingerprint
