"""The papers' promises as printed, and the accountant against dp_accounting's own composition of events."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import dataclass, replace
from types import SimpleNamespace

import dp_accounting as dp
import dp_accounting.rdp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim import privacy, schedules
from fedsim.errors import InvalidInput
from fedsim.privacy import fald, fedpaq
from fedsim.privacy.accountant import ORDERS, curve, to_epsilon

DELTA = 1e-5
BALANCED = np.full(10, 0.1)
THEOREM = {
    "step_size": 1e-6, "local_steps": 10, "rounds": 5, "weights": BALANCED, "sensitivity": 1.0, "drawn": 5,
    "fraction": 0.1, "delta0": 1e-6,
}  # fmt: skip


def theorem(**changes):
    return fald.guarantee(**(THEOREM | changes))


def visit(n=10, rows=100, used=100, step_size=1e-4, sensitivity=1.0, **more):
    """FA-LD's mechanism for n clients, equal by default."""
    sizes = np.broadcast_to(rows, (n,))
    return fald.mechanism(
        step_size=step_size, local_steps=more.pop("local_steps", 3), sizes=sizes,
        used=np.broadcast_to(used, (n,)), weights=sizes / sizes.sum(), sensitivity=sensitivity, **more,
    )  # fmt: skip


def event(rows, used, multiplier):
    gaussian = dp.GaussianDpEvent(multiplier)
    return gaussian if used == rows else dp.SampledWithoutReplacementDpEvent(rows, used, gaussian)


def composition(*events_and_counts, orders=ORDERS, delta=DELTA):
    """dp_accounting's epsilon of (event, how often)."""
    accountant = dp.rdp.RdpAccountant(orders, dp.NeighboringRelation.REPLACE_ONE)
    for one, count in events_and_counts:
        accountant.compose(dp.SelfComposedDpEvent(one, count))
    return accountant.get_epsilon(delta)


# --- FA-LD's theorem ------------------------------------------------------------------------------


def test_scheme_ii_with_plain_sums_gives_the_value_computed_by_hand():
    # e1 = 2 sqrt(1e-6 ln(1.25e6) / 0.1) = 0.023697, eK = 0.236970, et = ln(1 + (e^eK - 1) / 2) = 0.125488
    got = theorem()
    assert got.epsilon == pytest.approx(5 * 0.125488, rel=1e-5)
    assert got.delta == pytest.approx(5 * 0.5 * 10 * 0.1 * 1e-6, rel=1e-12)
    assert got.valid
    assert got.note == ""


def test_scheme_i_charges_clients_drawn_more_than_once():
    # two draws of two clients: s = 1 with probability 1/2, s = 2 with 1/4; D_s = 1.25 (d0 / 1.25)^(1/s^2)
    got = theorem(step_size=1e-9, local_steps=1, fraction=1.0, weights=[0.5, 0.5], drawn=2, rounds=1, scheme="I")
    e1 = 2 * math.sqrt(1e-9 * math.log(1.25e6) / 0.5)
    twice = (math.exp(e1) - 1) / (math.exp(e1 / 2) - 1) * 1.25 * (1e-6 / 1.25) ** 0.25
    assert got.delta == pytest.approx(0.5 * 1e-6 + 0.25 * twice, rel=1e-9)
    assert got.epsilon == pytest.approx(math.log(1 + 0.75 * (math.exp(e1) - 1)), rel=1e-9)


def test_the_schemes_agree_when_one_of_equal_clients_is_drawn():
    one, two = (theorem(scheme=s, drawn=1, delta1=1e-7, delta2=1e-7) for s in ("I", "II"))
    assert one.epsilon == pytest.approx(two.epsilon, rel=1e-12)
    assert one.delta == pytest.approx(two.delta, rel=1e-12)


def test_scheme_i_takes_the_likeliest_client_where_they_differ():
    weights = np.array([0.4, *[0.6 / 9] * 9])
    got = theorem(scheme="I", weights=weights, drawn=2, delta0=1e-6)
    single = theorem(weights=weights, drawn=10, rounds=1).epsilon  # full participation: a visit without amplification
    assert got.epsilon == pytest.approx(5 * math.log(1 + (1 - 0.6**2) * (math.exp(single) - 1)), rel=1e-12)


def test_advanced_composition_is_used_only_where_it_is_paid_for_and_smaller():
    plain = theorem(rounds=10_000, step_size=1e-9)
    paid = theorem(rounds=10_000, step_size=1e-9, delta2=1e-6)
    assert paid.epsilon < plain.epsilon / 5
    assert paid.delta == pytest.approx(plain.delta + 1e-6, rel=1e-12)
    assert theorem(rounds=2, delta2=1e-6).epsilon == theorem(rounds=2).epsilon  # plain sums are smaller for two rounds
    steps = theorem(local_steps=1000, step_size=1e-9, delta1=1e-6)
    assert steps.epsilon < theorem(local_steps=1000, step_size=1e-9).epsilon / 3
    assert steps.delta == pytest.approx(5 * 0.5 * (1000 * 0.1 * 1e-6 + 1e-6), rel=1e-12)


@settings(max_examples=40)
@given(
    st.sampled_from(["I", "II"]),
    st.floats(1e-12, 1e-3),
    st.floats(0, 0.9),
    st.integers(1, 9),
    st.integers(1, 1000),
    st.sampled_from([0.0, 1e-6]),
)
def test_epsilon_grows_with_step_size_correlation_participation_and_time(scheme, eta, rho, drawn, rounds, slack):
    here = {"scheme": scheme, "step_size": eta, "correlation": rho, "drawn": drawn, "rounds": rounds}
    here |= {"delta1": slack, "delta2": slack}
    base = theorem(**here).epsilon
    larger = [{"step_size": 2 * eta}, {"correlation": rho + 0.09}, {"temperature": 0.5}, {"drawn": drawn + 1}]
    for change in [*larger, {"rounds": rounds + 1}, {"sensitivity": 2.0}]:
        assert theorem(**here | change).epsilon > base, change


def test_only_the_ratio_of_step_size_to_private_noise_matters():
    base = theorem()
    same = theorem(step_size=3e-6, temperature=4.0, correlation=0.5)
    assert same.epsilon == pytest.approx(base.epsilon, rel=1e-12)
    assert same.base_epsilon == pytest.approx(base.base_epsilon, rel=1e-12)


@pytest.mark.parametrize("change", [{"correlation": 1.0}, {"temperature": 0.0}], ids=str)
def test_without_private_noise_there_is_no_privacy(change):
    got = theorem(**change)
    assert got.epsilon == math.inf
    assert not got.valid
    assert "no noise" in got.note
    assert (visit(**change).rdp(np.array([0]), 0) == np.inf).all()


def test_the_theorem_holds_up_to_its_largest_step_size():
    limit = 0.1**2 * 0.1 / math.log(1.25e6)
    assert theorem(step_size=limit * (1 - 1e-12)).valid
    beyond = theorem(step_size=limit * 1.01)
    assert not beyond.valid
    assert "step_size of at most 7.12e-05" in beyond.note
    assert theorem(step_size=limit).base_epsilon == pytest.approx(1)


def test_huge_exponents_stay_finite_or_infinite_but_never_fail():
    far = theorem(step_size=1e3, local_steps=1000, delta1=1e-6, delta2=1e-6, drawn=1)
    each = 2 * math.sqrt(1e3 * math.log(1.25e6) / 0.1)
    assert far.epsilon == pytest.approx(5 * (1000 * each - math.log(10)), rel=1e-9)
    assert theorem(step_size=1e3, local_steps=1000, scheme="I", drawn=2000).delta == math.inf


def test_a_delta_of_one_or_more_is_called_no_promise():
    got = theorem(scheme="I", drawn=10, rounds=1000)
    assert got.delta > 1
    assert "guarantees nothing" in got.note


@pytest.mark.parametrize(
    "change",
    [
        {"scheme": "III"},
        {"drawn": 11},
        {"delta0": 0.0},
        {"delta1": 1.0},
        {"fraction": 1.5},
        {"step_size": math.inf},
    ],
    ids=str,
)
def test_the_theorem_refuses_what_it_cannot_speak_of(change):
    with pytest.raises(InvalidInput, match=next(iter(change))):
        theorem(**change)


# --- Private FedPAQ's formulas --------------------------------------------------------------------


def test_the_noise_is_the_printed_equation_51():
    eta, steps, b, n, clip, epsilon, delta = 0.1, 10, 12, 600, 1.5, 0.4, 1e-4
    printed = 128 * clip**2 * b**2 * math.log(1.25 * steps * b / (n * delta)) / (n * epsilon) ** 2 * steps**4 * eta**2
    reach = fedpaq.sensitivity("paper", clip, steps * eta)
    assert fedpaq.noise_sigma(reach, epsilon, delta, steps * b / n) == pytest.approx(math.sqrt(printed), rel=1e-12)
    assert fedpaq.sensitivity("tight", clip, steps * eta) == reach / 2


def test_the_gaussian_mechanism_alone_gives_the_value_computed_by_hand():
    assert fedpaq.gaussian_sigma(2.0, 0.5, 1e-5) == pytest.approx(4 * math.sqrt(2 * 11.736069), rel=1e-7)


@given(st.floats(1e-3, 1), st.floats(1e-3, 1), st.integers(1, 20))
def test_amplification_stays_below_the_bound_of_equation_15(epsilon, g, batches):
    independent = fedpaq.amplified_epsilon(epsilon, g / batches, batches)
    split = fedpaq.amplified_epsilon(epsilon, g)
    assert independent <= split * (1 + 1e-12)
    assert split <= 2 * g * epsilon


def test_the_papers_own_setting_is_not_covered_by_its_proof():
    paper = fedpaq.guarantee(1.0, 1e-4, 0.2)
    assert (paper.base_epsilon, paper.valid) == (2.5, False)
    assert "one client in one round" in paper.note
    assert fedpaq.guarantee(0.4, 1e-4, [0.2, 0.5]).valid
    assert not fedpaq.guarantee(0.4, 1e-4, [0.2, 0.1]).valid


def test_an_unknown_kind_of_sensitivity_is_answered_with_the_known_ones():
    with pytest.raises(InvalidInput, match=r"'paper'.*'tight'"):
        fedpaq.sensitivity("loose", 1.0, 1.0)


# --- Renyi divergences ----------------------------------------------------------------------------


def test_a_mechanism_on_all_rows_has_the_gaussian_divergence():
    assert np.array_equal(curve(3.0, 50, 50), ORDERS / 18)


def test_subsampled_divergences_are_those_of_dp_accounting_where_they_help():
    accountant = dp.rdp.RdpAccountant(ORDERS, dp.NeighboringRelation.REPLACE_ONE)
    accountant.compose(event(600, 120, 3.0))
    got = curve(3.0, 600, 120)
    assert np.array_equal(got, np.minimum(accountant.rdp, ORDERS / 18))
    assert np.array_equal(got[3:20], accountant.rdp[3:20])


@given(st.lists(st.floats(0, 50), min_size=len(ORDERS), max_size=len(ORDERS)), st.floats(1e-9, 0.5))
def test_the_change_into_epsilon_is_that_of_dp_accounting(rdp, delta):
    expected = dp.rdp.compute_epsilon(ORDERS, rdp, delta)[0]
    assert to_epsilon(np.array(rdp), delta) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_few_orders_lose_little():
    dense = composition((event(600, 120, 3.0), 100), orders=None)
    sparse = composition((event(600, 120, 3.0), 100))
    assert dense <= sparse <= 1.02 * dense


@pytest.mark.parametrize("delta", [1e-4, 1e-5, 1e-8])
def test_epsilon_is_within_two_percent_of_that_of_a_dense_grid_of_orders(delta):
    dense = np.concatenate([np.arange(1.05, 4, 0.05), np.geomspace(4, 1024, 1500)])
    for slope in np.geomspace(-math.log(delta) / 1024**2, 2, 60):  # Gaussian noise: divergence = slope x order
        bound = slope * dense + np.log1p(-1 / dense) - np.log(delta * dense) / (dense - 1)
        if bound.min() > 0:
            assert to_epsilon(slope * ORDERS, delta) <= 1.02 * bound.min(), (slope, dense[bound.argmin()])


def test_a_step_of_fald_has_the_multiplier_computed_by_hand():
    # noise sqrt(2 * 1e-4 * 0.5 * 0.75 / 0.1), sensitivity 1e-4 * 2 / (0.2 * 0.1): 0.02739 / 0.01
    mechanism = visit(used=20, sensitivity=2.0, temperature=0.5, correlation=0.5)
    assert mechanism.multiplier[0] * mechanism.scales(0) == pytest.approx([2.7386128] * 3, rel=1e-7)


def test_fedpaqs_multiplier_is_the_same_in_every_round_and_halves_when_tight():
    paper = fedpaq.mechanism(epsilon=1.0, delta=1e-4, sizes=np.array([600]), used=np.array([120]))
    assert paper.constant
    assert paper.multiplier[0] == pytest.approx(2 * math.sqrt(2 * math.log(2500)) * 0.4, rel=1e-12)
    tight = fedpaq.mechanism(epsilon=1.0, delta=1e-4, sizes=np.array([600]), used=np.array([120]), kind="tight")
    assert tight.multiplier[0] == paper.multiplier[0] / 2


def test_a_client_that_never_took_part_has_given_nothing_away():
    got = privacy.epsilons(visit(), np.array([0, 1, 7, *[0] * 7]), DELTA)
    assert got[0] == 0
    assert 0 < got[1] < got[2]
    assert (privacy.epsilons(visit(correlation=1.0), np.array([0, 1, *[0] * 8]), DELTA)[:2] == [0, math.inf]).all()


def test_rounding_where_clients_differ_in_many_ways_errs_on_the_safe_side():
    rows = np.arange(100, 140)
    many, few = visit(40, rows, 20), visit(40, rows, 20)
    assert many.kinds == 40
    for client in (0, 39):
        alone = replace(few, rows=rows[[client]], used=few.used[[client]], multiplier=few.multiplier[[client]])
        exact = privacy.epsilons(alone, np.array([50]), DELTA)[0]
        rounded = to_epsilon(50 * many.rdp(many.kind[[client]], 0), DELTA)[0]
        assert exact <= rounded <= 1.15 * exact


# --- The ledger -----------------------------------------------------------------------------------


def test_the_ledger_follows_realised_participation_like_a_composition_of_events():
    mechanism = visit(used=20)
    z = float(mechanism.multiplier[0] * mechanism.scales(0)[0])
    ledger = privacy.Ledger(mechanism, 3, DELTA)
    ledger.add(np.array([0, 0, 1]), np.array([4, 5, 5]), 0)
    ledger.add(np.array([0, 1, 1]), np.array([4, 6, 7]), 1)
    once, twice = (composition((event(100, 20, z), 3 * visits)) for visits in (1, 2))
    assert ledger.epsilon() == pytest.approx([twice, once, 0.0], rel=1e-12)
    assert ledger.visits.sum(axis=1).tolist() == [3, 3, 0]


def test_the_worst_client_need_not_be_the_one_that_came_most_often():
    mechanism = visit(2, np.array([10, 1000]), np.array([10, 1000]))  # the small client's noise hides least
    ledger = privacy.Ledger(mechanism, 1, DELTA)
    ledger.add(np.zeros(3, int), np.array([0, 1, 1]), 0)
    assert ledger.epsilon() == pytest.approx(privacy.epsilons(mechanism, [1, 0], DELTA)[:1], rel=1e-12)
    ledger.add(np.zeros(300, int), np.ones(300, int), 0)
    assert ledger.epsilon() == pytest.approx(privacy.epsilons(mechanism, [0, 302], DELTA)[1:], rel=1e-12)


def test_a_ledger_of_noise_that_varies_by_round_charges_the_rounds_taken_part_in():
    mechanism = visit(step_size=schedules.inverse_time(1.0, 1000.0), local_steps=2)
    ledger = privacy.Ledger(mechanism, 2, DELTA)
    ledger.add(np.array([0, 1]), np.array([3, 3]), 0)
    ledger.add(np.array([0, 0, 1]), np.array([3, 3, 4]), np.array([90, 90, 50]))  # asynchronous: twice from one version
    charged = [event(100, 100, float(mechanism.multiplier[0] * math.sqrt(t + 1000))) for t in (0, 1, 180, 181)]
    first = composition((charged[0], 1), (charged[1], 1), (charged[2], 2), (charged[3], 2))
    second = composition((charged[0], 1), (charged[1], 1))
    assert ledger.epsilon() == pytest.approx([first, second], rel=1e-12)


def test_varying_noise_on_minibatches_is_rounded_to_the_safe_side():
    schedule = schedules.inverse_time(0.1, 1000.0)
    varying, steady = visit(used=20, step_size=schedule), visit(used=20, step_size=1e-4)
    got, exact = (to_epsilon(50 * m.rdp(np.array([0]), 0), DELTA)[0] for m in (varying, steady))
    assert 0.99 * exact <= got <= 1.1 * exact  # the first round's step sizes are within 0.2 % of 1e-4


def test_a_restored_ledger_goes_on_as_if_nothing_had_happened():
    for step_size in (1e-4, schedules.inverse_time(1.0, 1000.0)):
        mechanism = visit(step_size=step_size)
        complete, halves = privacy.Ledger(mechanism, 2, DELTA), privacy.Ledger(mechanism, 2, DELTA)
        for ledger in (complete, halves):
            ledger.add(np.array([0, 1]), np.array([1, 2]), 0)
        resumed = privacy.Ledger(mechanism, 2, DELTA)
        resumed.restore({name: a.copy() for name, a in halves.state().items()})
        for ledger in (complete, resumed):
            ledger.add(np.array([0, 0]), np.array([1, 9]), 1)
        assert np.array_equal(complete.epsilon(), resumed.epsilon())
        assert complete.epsilon()[0] > complete.epsilon()[1] > 0


def test_an_empty_entry_changes_nothing():
    ledger = privacy.Ledger(visit(), 2, DELTA)
    ledger.add(np.empty(0, int), np.empty(0, int), 0)
    assert not ledger.epsilon().any()


def test_accounts_that_would_not_fit_are_refused_with_the_way_out():
    mechanism = visit(1_000_000, step_size=schedules.inverse_time(1.0, 1000.0))
    with pytest.raises(InvalidInput, match="constant step size, or run fewer replicas"):
        privacy.Ledger(mechanism, 300, DELTA)


def test_counts_alone_are_refused_where_the_noise_varies():
    with pytest.raises(InvalidInput, match="Ledger"):
        privacy.epsilons(visit(step_size=schedules.inverse_time(1.0, 10.0)), np.ones(10), DELTA)


# --- The metric, and the comparison ---------------------------------------------------------------


@dataclass(frozen=True)
class Noisy:
    """An algorithm as far as the metric is concerned."""

    def mechanism(self, problem, sensitivity):
        return visit(problem.clients, sensitivity=sensitivity)


def test_the_metric_reads_the_ledger_that_it_made():
    metric = privacy.spent(DELTA, sensitivity=1.0)
    ledger = metric.ledger(Noisy(), SimpleNamespace(clients=10), 2)
    view = SimpleNamespace(ledger=ledger)
    assert (metric.columns, metric.per_replica) == (("epsilon",), True)
    assert metric.evaluate(view)["epsilon"].tolist() == [0, 0]
    ledger.add(np.array([1]), np.array([0]), 0)
    expected = composition((event(100, 100, float(visit().multiplier[0] * 100)), 3))
    assert metric.evaluate(view)["epsilon"] == pytest.approx([0, expected], rel=1e-12)


def test_the_metric_refuses_what_it_cannot_account_for():
    with pytest.raises(InvalidInput, match="object has no privacy mechanism"):
        privacy.spent(DELTA).ledger(object(), None, 1)
    with pytest.raises(InvalidInput, match="does not clip"):
        privacy.spent(DELTA).ledger(Noisy(), SimpleNamespace(clients=10), 1)
    with pytest.raises(InvalidInput, match="delta"):
        privacy.spent(0.0)
    with pytest.raises(InvalidInput, match="sensitivity"):
        privacy.spent(DELTA, sensitivity=-1.0)


def test_a_comparison_shows_what_the_papers_per_round_promise_leaves_out():
    paper = fedpaq.guarantee(0.3, 1e-4, 0.2)
    mechanism = fedpaq.mechanism(epsilon=0.3, delta=1e-4, sizes=np.full(100, 600), used=np.full(100, 120))
    one, hundred = (privacy.compare(paper, mechanism, visits) for visits in (1, 100))
    assert one.accountant < paper.epsilon < hundred.accountant
    assert one.paper is paper


def test_beyond_the_proof_only_the_doubled_sensitivity_keeps_the_papers_promise():
    paper = fedpaq.guarantee(1.0, 1e-4, 0.2)
    assert not paper.valid
    found = {
        kind: privacy.compare(
            paper,
            fedpaq.mechanism(epsilon=1.0, delta=1e-4, sizes=np.array([600]), used=np.array([120]), kind=kind),
            visits=1,
        ).accountant
        for kind in ("paper", "tight")
    }
    assert found == pytest.approx({"paper": 0.361, "tight": 1.168}, abs=0.001)


def test_a_comparison_with_the_theorem_is_made_at_its_own_delta():
    mechanism = visit(used=10, step_size=1e-6, local_steps=10)
    paper = theorem()
    got = privacy.compare(paper, mechanism, 5)
    z = float(mechanism.multiplier[0] * 1e3)
    assert got.accountant == pytest.approx(composition((event(100, 10, z), 50), delta=paper.delta), rel=1e-9)
    assert got.accountant < paper.epsilon
    assert privacy.compare(paper, mechanism, 0).accountant == 0


def test_a_comparison_of_varying_noise_adds_up_its_rounds():
    mechanism = visit(step_size=schedules.inverse_time(1.0, 1000.0))
    ledger = privacy.Ledger(mechanism, 1, DELTA)
    for round in range(4):
        ledger.add(np.array([0]), np.array([0]), round)
    paper = privacy.Guarantee(1.0, DELTA, 1.0, True)
    assert privacy.compare(paper, mechanism, 4).accountant == pytest.approx(ledger.epsilon()[0], rel=1e-12)


def test_importing_privacy_does_not_load_dp_accounting():
    code = "import sys, fedsim.privacy; print('dp_accounting' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.strip() == "False"
