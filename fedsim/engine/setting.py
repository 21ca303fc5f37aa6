"""What the jobs of a scenario have in common, put together once."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsim.problems import weights_of
from fedsim.runtime.jobs import Setting


def setting_of(scenario: Any, backend: Any) -> Setting:
    """What the jobs of a scenario have in common."""
    rows = {}
    if scenario.network is not None:
        for up, name in ((True, "uplink"), (False, "downlink")):
            for column in ("delay_s", "bottleneck_bps"):
                value = np.asarray(getattr(scenario.network, column)(up))
                rows[f"{name}_{column}"] = np.broadcast_to(value, (scenario.problem.clients,))
    if hasattr(scenario.devices, "dropout_of"):
        rows["dropout"] = scenario.devices.dropout_of(np.arange(scenario.problem.clients))
    weights = weights_of(scenario.problem)
    return Setting(scenario.problem, weights, scenario.seed, np.dtype(scenario.dtype), backend, rows)
