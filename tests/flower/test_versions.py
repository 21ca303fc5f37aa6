"""The same app has the same timeline, contents and bytes on every version of flwr, as far as these do not differ in flwr.

The pinned values hold on flwr 1.22.0 and 1.41.0. From 1.38 on a message also names the ServerApp's task: 2 bytes more.
Links here have a latency and no bandwidth, so that these bytes take no time.
"""

from __future__ import annotations

from hashlib import sha256
from importlib.util import find_spec

import numpy as np
import pytest

import fedsim as fs

PINNED = {  # nodes, visits, bits down and up without the task, digest of the timeline
    "numpy_fedavg": (8, 24, 191904, 137136, "cc9b750d06a83fa1"),
    "torch_net": (4, 16, 854272, 474624, "921d0c12a1d870b9"),
    "sklearn_logistic": (5, 18, 204144, 129616, "6dc4fbd17645ee8a"),
    "analytics": (6, 8, 20032, 27968, "7088c9bafe3cd3ce"),
    "custom_strategy": (6, 18, 192528, 173328, "1f0c7162fa1cc1dc"),
    "asynchronous": (6, 14, 172256, 171600, "6d04c471077e872f"),
}
CONTENTS = {  # of all messages, where these do not depend on a library's matrix products
    "analytics": "f2e6abdba50d82e5",
    "custom_strategy": "8e2c958326d88375",
    "asynchronous": "55e2501ac8905812",
}
NEEDS = {"torch_net": "torch", "sklearn_logistic": "sklearn"}
COLUMNS = ["client", "round", "select", "download", "compute", "end_s", "outcome"]
pytestmark = pytest.mark.filterwarnings("ignore::fedsim.errors.ResultWarning")


def task_bits():
    return 16 if find_spec("flwr.supercore.task_identity") else 0


def hexed(value):
    return value.hex() if isinstance(value, float) else str(value)


@pytest.mark.parametrize("name", PINNED)
def test_timelines_bytes_and_contents_are_those_of_every_version(apps, star, name):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    nodes = PINNED[name][0]
    network = star(nodes, uplink_bps=np.inf, downlink_bps=np.inf, latency_s=np.linspace(0.01, 0.05, nodes))
    devices = fs.devices.lognormal(median_step_s=1e-3, sigma=0.5, dropout=0.1, per_example=True)
    result = fs.flower.run(apps / name, network=network, devices=devices, seed=1)
    table = result.visits
    rows = "\n".join(" ".join(map(hexed, row)) for row in table[COLUMNS].itertuples(index=False))
    sent, received = int((table["down_bits"] > 0).sum()), int((table["bits"] > 0).sum())
    bits = int(table["down_bits"].sum()) - task_bits() * sent, int(table["bits"].sum()) - task_bits() * received
    found = nodes, len(table), *bits, sha256(rows.encode()).hexdigest()[:16]
    assert found == PINNED[name]
    if name in CONTENTS:
        assert result.manifest["flower"]["digest"] == CONTENTS[name]
