"""What a driver may look at: the scenario's parts, who is there, and what is drawn. Nothing here ever changes."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.algorithms.arguments import rows_per_batch
from fedsim.arrays import Array, Numbers
from fedsim.errors import InvalidInput
from fedsim.old_engine.arrivals import NOT, UPLOAD, ClientPaths, VisitDraws, at_once
from fedsim.old_engine.round import Cohort
from fedsim.protocols import DeviceModel, NetworkModel, Visitors
from fedsim.rng import Draws, Stream
from fedsim.runtime.jobs import Setting

if TYPE_CHECKING:
    from fedsim.scenario import Scenario


class World:
    """The scenario as the clock sees it; replicas are named by their position 0 ... R - 1."""

    def __init__(self, scenario: Scenario, setting: Setting, skip: bool) -> None:
        parts = scenario.parts
        self.scenario, self.setting, self.skip = scenario, setting, skip
        self.problem, self.algorithm, self.policy = parts.problem, parts.algorithm, parts.policy
        self.sites = scenario.sites
        self.network, self.devices, self.budget = self.sites.network, parts.devices, scenario.budget
        self.replicas = np.asarray(scenario.replica_numbers, np.int64)
        self.population, self.weights = self.problem.clients, setting.weights
        self.paths = client_paths(self.network)
        self.always_on = self.devices is None or self.devices.always_available
        self.limit_s = np.inf if self.budget.seconds is None else self.budget.seconds
        self.reaches_all = scenario.reaches_all
        everybody = self.policy.always and self.always_on
        self.copies = self.reaches_all and self.network is not None and not everybody  # that take time
        self.reports_loss = "loss" in self.algorithm.kept

    @cached_property
    def cumulative(self) -> Array:
        """p_0, p_0 + p_1, ..., for policies that draw by weight."""
        return np.cumsum(self.weights)

    def copied(self, who: Cohort) -> Any:
        """How many copies of a broadcast go to clients that were not selected."""
        return self.population - who.sizes if self.reaches_all else 0

    def draws(
        self,
        stream: Stream,
        position: Numbers | slice,
        client: Numbers = 0,
        round: Numbers = 0,
        visit: Numbers = 0,
        single: bool = False,
    ) -> Draws:
        """An rng whose rows are these replicas, clients, rounds and visits."""
        backend = self.setting.backend
        key = backend.keys(
            self.setting.seed, stream, replica=self.replicas[position], client=client, round=round, visit=visit
        )
        return Draws(key, single, source=backend)

    def visit_draws(
        self, opened: Array, position: Array, client: Array, round: Numbers, visit: Numbers = 0
    ) -> VisitDraws:
        """What is drawn for visits that begin at `opened` (m,)."""
        devices, tie = self.devices, partial(self.ties, position, client, round, visit)
        drawn = at_once(len(client), tie)
        if devices is None:
            return drawn
        work = np.zeros(len(client)) + self.work_of(client)
        rng = self.draws(Stream.COMPUTE, position, client, round, visit)
        compute, phase, fraction = devices.compute_s(client, work, opened, rng), drawn.phase, drawn.fraction
        compute = np.asarray(compute, np.float64)
        _check(devices, "compute_s", compute, client, compute >= 0)
        if not devices.reliable:
            rng = self.draws(Stream.DROPOUT, position, client, round, visit)
            phase, fraction = map(np.asarray, devices.drop(client, opened, rng))
            _check(devices, "drop", phase, client, (phase >= NOT) & (phase <= UPLOAD))
            _check(devices, "drop", fraction, client, (fraction >= 0) & (fraction <= 1))
        return VisitDraws(compute, phase, fraction, tie)

    def ties(self, position: Array, client: Array, round: Numbers, visit: Numbers = 0) -> Array:
        """The places of visits among those that end at the same instant."""
        return np.asarray(self.draws(Stream.TIE, position, client, round, visit).uniform())

    def work_of(self, client: Array) -> Any:
        """Local steps of a visit, times rows a step where the devices' time counts them."""
        steps = np.asarray(self.algorithm.work(Visitors(client)), np.float64)
        if self.devices is None or not self.devices.per_example:
            return steps
        sizes, batch_size = self.problem.sizes[client], self.algorithm.batch_size
        return steps * (sizes if batch_size is None else rows_per_batch(batch_size, sizes, client))


def client_paths(network: NetworkModel | None) -> tuple[ClientPaths, ClientPaths] | None:
    """The paths down and up; asked of the network once, for it may have to work them out."""
    if network is None:
        return None
    asked = ((network.delay_s(up), network.stretch(up), network.bottleneck_bps(up)) for up in (False, True))
    down, up = (ClientPaths(*(np.broadcast_to(column, (network.clients,)) for column in columns)) for columns in asked)
    return down, up


def _check(devices: DeviceModel, method: str, value: Array, client: Array, right: Array) -> None:
    """Somebody's own devices may answer anything; the clock must not."""
    if np.shape(value) != client.shape or not right.all():
        raise InvalidInput(
            f"{type(devices.own).__name__}.{method} gave {value!r:.60} for {len(client)} visits; give one number per "
            "visit, seconds of at least 0, phases from 0 to 3, fractions from 0 to 1"
        )
