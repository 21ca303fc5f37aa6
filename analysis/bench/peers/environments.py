"""A virtual environment for each peer, made once from the package index by name; none is a dependency of fedsim."""

from __future__ import annotations

import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Peer:
    """Someone to be timed: the script that runs it, what to install, and which environment it shares."""

    script: str
    packages: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    own: bool = True  # False: this interpreter, where fedsim is
    slow: bool = False  # minutes a workload: it comes after all others


TORCH = (
    "torch==2.13.0"  # installed first and held there: what a peer would choose may be another build, of many gigabytes
)
OURS = {
    "fedsim": Peer("fedsim_run", options=("--threads", "1"), own=False),
    "fedsim (2 threads)": Peer("fedsim_run", options=("--threads", "2"), own=False),
    "fedsim (no clock)": Peer("fedsim_run", options=("--threads", "1", "--clock", "0"), own=False),
    "fedsim (Ray)": Peer("fedsim_run", options=("--ray", "1"), own=False),
}
PEERS = {
    "fedjax": Peer("fedjax_run", ("fedjax==0.0.17", "jax==0.10.2")),
    "pfl": Peer("pfl_run", (TORCH, "pfl[pytorch]==0.6.0")),
    "fluke": Peer("fluke_run", (TORCH, "fluke-fl==0.8.1")),
    "flower": Peer("flower_run", ("flwr[simulation]==1.41.0",), slow=True),
    **OURS,
}
BARE = {"bare": Peer("bare", own=False), "bare (fresh subsets)": Peer("bare", options=("--fresh", "1"), own=False)}


def python_of(name: str, peer: Peer, folder: Path) -> str:
    """The interpreter that runs the peer; its environment is made where it is missing, and a failure is told."""
    if not peer.own:
        return sys.executable
    home = folder / name
    python, whole = home / "bin" / "python", home / "installed"
    if not whole.exists():
        print(f"making an environment for {name}: {' '.join(peer.packages)}", flush=True)
        venv.create(home, with_pip=True, clear=True)
        held = home / "held.txt"
        held.write_text(f"{TORCH}\n")
        for package in peer.packages:
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", str(held)]
            done = subprocess.run([*pip, package], capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{name} cannot be installed: {done.stderr.strip()[-300:]}")
        whole.touch()
    return str(python)
