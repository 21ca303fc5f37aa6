"""The short path with users' own parts: a batched policy that waits for all visits, and devices."""

from __future__ import annotations

from typing import cast

import numpy as np

from fedsim.arrays import Array
from fedsim.engine.checks import refuse_endless
from fedsim.engine.clock.compiled import CompiledClock
from fedsim.engine.view import AllReplicasView, cohorts_of
from fedsim.kernels import KernelState
from fedsim.kernels.clock.state import DONE, NEEDS_GROWTH, GivenCohorts, Openings, Out
from fedsim.protocols import View


class OwnPartsClock(CompiledClock):
    """A compiled clock that asks the parts of a star for the cohorts of all replicas, round by round."""

    def advance(self, active: Array, out: Out) -> int:
        """Run the kernel up to the present round; return why it ended."""
        from fedsim.kernels.clock.uncontended import given_round

        assert isinstance(self.now, Openings)
        closed = self.now.closed_rounds
        while len(active) and (round := int(closed[active].max()) + 1) <= self.rounds:
            active = active[closed[active] == round - 1]  # the others are out of time
            given = self.cohorts(active, round)
            if int(out.counts["visits"][0]) + len(given.chosen) > len(out.visits.client):
                return NEEDS_GROWTH
            if (status := int(given_round(self.tables, self.now, given, self.cohort, out, active))) != DONE:
                return status
            active = active[closed[active] == round]
        return DONE

    def cohorts(self, active: Array, round: int) -> GivenCohorts:
        """Ask the policy and the devices for the visits of a round."""
        system, view = self.system, AllReplicasView(self.system, active, round)
        answer = np.asarray(system.policy.select(cast(View, view), view.rng))
        row, client, multiplicity = cohorts_of(answer, system.population)
        assert isinstance(self.now, Openings)
        opened_s = self.now.sites["opens_s"][active, 0][row]
        drawn = system.draw_visits(active[row], client, round, opened_s, ordered=False)
        offsets = np.searchsorted(row, np.arange(len(active) + 1))
        return GivenCohorts(offsets, np.ascontiguousarray(client), np.ascontiguousarray(multiplicity), drawn)

    def found(self) -> KernelState:
        """Return where the machine code of this clock is."""
        from fedsim.kernels.cache import kernel_state
        from fedsim.kernels.clock.uncontended import given_round

        active = np.arange(1)
        return kernel_state(
            given_round, self.tables, self.now, self.cohorts(active, 1), self.cohort, self.carried, active
        )

    async def refuse(self, active: Array) -> None:
        assert isinstance(self.now, Openings)
        refuse_endless(int(self.now.closed_rounds[active].min()) + 1)
