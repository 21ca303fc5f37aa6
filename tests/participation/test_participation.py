"""Policies: whom they select (chi-square over all outcomes, p > 1e-6), how they weigh, when they close."""

from __future__ import annotations

import math
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from oracles import moments
from scipy import stats

import fedsim as fs
from fedsim import participation
from fedsim.engine.view import AllReplicasView, cohorts_of
from fedsim.errors import InvalidInput
from fedsim.kernels.cpu import draws
from fedsim.protocols import as_policy
from fedsim.rng import Draws
from fedsim.runtime.aggregation import declared_weights

P = np.array([0.05, 0.15, 0.2, 0.25, 0.35])
N = len(P)
REPLICAS = 40_000


def selected(policy, weights=P, replicas=REPLICAS, seed=3):
    """Return the policy's answer for many replicas in one call."""
    system = SimpleNamespace(
        weights=weights, cumulative_weights=np.cumsum(weights), population=len(weights),
        problem=SimpleNamespace(sizes=np.ones(len(weights))),
        draws=lambda stream, replica, site, round: Draws(draws.keys(seed, stream, replica=replica), source=draws),
    )  # fmt: skip
    view = AllReplicasView(system, np.arange(replicas), 1)
    return policy.select(view, view.rng)


def p_value(counts, expected):
    counts, expected = np.asarray(counts, float), np.asarray(expected, float)
    return stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts) - 1)


def weights_of_rounds(policy, weights=P, replicas=REPLICAS):
    """The random weight vectors a (replicas, clients) of rounds in which all selected clients reply."""
    row, client, multiplicity = cohorts_of(np.asarray(selected(policy, weights, replicas)), len(weights))
    starts = np.searchsorted(row, np.arange(replicas + 1))
    out = np.zeros((replicas, len(weights)))
    weighting = as_policy(policy).weighting
    out[row, client] = declared_weights(weighting, weights[client], multiplicity, starts, len(weights))
    return out


# --- Who is selected --------------------------------------------------------------------------------------


def test_full_selects_all_clients():
    answer = selected(participation.full(), replicas=3)
    assert answer.tolist() == [list(range(N))] * 3


def test_uniform_selects_every_subset_equally_often():
    answer = np.sort(selected(participation.uniform(3)), axis=1)
    codes = (answer * N ** np.arange(3)).sum(axis=1)
    subsets = [sum(c * N**i for i, c in enumerate(s)) for s in combinations(range(N), 3)]
    counts = [np.count_nonzero(codes == s) for s in subsets]
    assert sum(counts) == REPLICAS
    assert p_value(counts, [REPLICAS / len(subsets)] * len(subsets)) > 1e-6


def test_with_replacement_draws_clients_independently_by_their_weight():
    answer = selected(participation.with_replacement(2))
    counts = np.bincount(answer[:, 0] * N + answer[:, 1], minlength=N * N)
    assert p_value(counts, REPLICAS * np.outer(P, P).ravel()) > 1e-6


@pytest.mark.parametrize("weights", [np.full(3, 1 / 3), np.full(7, 1 / 7), np.array([1e-12, 1 - 1e-12]), np.ones(1)])
def test_draws_with_replacement_stay_among_the_clients(weights):
    """Cumulative weights may fall short of one by a rounding error."""
    answer = selected(participation.with_replacement(50), weights, 2000)
    assert answer.min() >= 0
    assert answer.max() <= len(weights) - 1


@pytest.mark.parametrize("probability", [0.3, (0.1, 0.3, 0.5, 0.7, 1.0)])
def test_bernoulli_tosses_a_coin_for_every_client(probability):
    mask = selected(participation.bernoulli(probability))
    q = np.broadcast_to(probability, (N,))
    chance = np.array([np.prod(np.where([(code >> c) & 1 for c in range(N)], q, 1 - q)) for code in range(2**N)])
    counts = np.bincount((mask * 2 ** np.arange(N)).sum(axis=1), minlength=2**N)
    possible = chance > 0
    assert counts[~possible].sum() == 0
    assert p_value(counts[possible], REPLICAS * chance[possible]) > 1e-6


@pytest.mark.parametrize("policy", [participation.first(2), participation.deadline(3.0), participation.buffered(2)])
def test_policies_without_a_cohort_size_select_all_clients(policy):
    assert selected(policy, replicas=2).tolist() == [list(range(N))] * 2


@pytest.mark.parametrize(
    "policy", [participation.first(2, of=4), participation.deadline(3.0, of=4), participation.buffered(2, of=4)]
)
def test_policies_with_a_sample_size_ask_so_many(policy):
    answer = np.sort(selected(policy), axis=1)
    assert answer.shape == (REPLICAS, 4)
    left_out = N * (N - 1) // 2 - answer.sum(axis=1)
    assert p_value(np.bincount(left_out, minlength=N), [REPLICAS / N] * N) > 1e-6


def test_rounds_and_replicas_are_selected_separately():
    first, again, other = (selected(participation.uniform(2), replicas=50, seed=seed) for seed in (3, 3, 4))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert len({tuple(sorted(row)) for row in first.tolist()}) > 5


# --- From answers to cohorts ----------------------------------------------------------------------------------


def test_a_client_drawn_twice_runs_once_with_multiplicity_two():
    row, client, multiplicity = cohorts_of(np.array([[3, 1, 3], [0, 0, 0]]), N)
    assert row.tolist() == [0, 0, 1]
    assert client.tolist() == [1, 3, 0]
    assert multiplicity.tolist() == [1, 2, 3]


def test_masks_and_empty_rounds_make_cohorts():
    mask = np.zeros((3, N), bool)
    mask[0, [1, 4]] = mask[2, 0] = True
    row, client, multiplicity = cohorts_of(mask, N)
    assert row.tolist() == [0, 0, 2]
    assert client.tolist() == [1, 4, 0]
    assert multiplicity.tolist() == [1, 1, 1]


@pytest.mark.parametrize("answer", [[[0, 5]], [[-1, 2]]])
def test_clients_that_do_not_exist_are_refused(answer):
    with pytest.raises(InvalidInput, match="numbered 0 to 4"):
        cohorts_of(np.array(answer), N)


# --- Weights ----------------------------------------------------------------------------------------------


def weights_by(policy, replies):
    return declared_weights(as_policy(policy).weighting, *replies)


def arrived(clients, multiplicity=None, starts=None):
    clients = np.array(clients)
    ones = np.ones(len(clients), np.int64)
    return (
        P[clients],
        ones if multiplicity is None else np.array(multiplicity),
        np.array(starts or [0, len(clients)]),
        N,
    )


EXACT = {
    "full, all": (participation.full(), arrived(range(N)), P),
    "full, some lost": (participation.full(), arrived([1, 3]), [0.375, 0.625]),
    "with replacement": (participation.with_replacement(4), arrived([0, 2, 4], [2, 1, 1]), [0.5, 0.25, 0.25]),
    "with replacement, one lost": (participation.with_replacement(4), arrived([0, 2], [2, 1]), [2 / 3, 1 / 3]),
    "uniform": (participation.uniform(2), arrived([1, 4]), [0.5, 0.5]),
    "uniform, one lost": (participation.uniform(2), arrived([4]), [1.0]),
    "uniform, normalised": (participation.uniform(2, weighting="normalised"), arrived([1, 4]), [0.3, 0.7]),
    "uniform, scaled": (participation.uniform(2, weighting="scaled"), arrived([1, 4]), [0.375, 0.875]),
    "bernoulli": (participation.bernoulli(0.5), arrived([1, 4]), [0.3, 0.7]),
    "first": (participation.first(2), arrived([1, 4]), [0.3, 0.7]),
    "deadline": (participation.deadline(1.0), arrived([1, 4]), [0.3, 0.7]),
    "buffered": (participation.buffered(2), arrived([1, 4]), [0.3, 0.7]),
}


@pytest.mark.parametrize("case", EXACT)
def test_replies_are_weighed_exactly(case):
    policy, replies, expected = EXACT[case]
    assert np.allclose(weights_by(policy, replies), expected, rtol=1e-15)


@pytest.mark.parametrize("case", EXACT)
def test_a_round_without_replies_has_no_weights(case):
    none = (np.empty(0), np.empty(0, np.int64), np.array([0, 0]), N)
    assert weights_by(EXACT[case][0], none).shape == (0,)


def test_replicas_are_weighed_apart():
    replies = arrived([1, 4, 0, 1, 4], starts=[0, 2, 2, 5])
    found = weights_by(participation.bernoulli(0.5), replies)
    assert np.allclose(found, [0.3, 0.7, *(P[[0, 1, 4]] / P[[0, 1, 4]].sum())])
    alone = weights_by(participation.bernoulli(0.5), arrived([0, 1, 4]))
    assert found[2:].tobytes() == alone.tobytes()


EQUAL = np.full(N, 1 / N)
SCHEMES = {
    "full": (participation.full(), P, moments.full(P)),
    "with replacement": (participation.with_replacement(3), P, moments.with_replacement(P, 3)),
    "uniform": (participation.uniform(3), EQUAL, moments.uniform(EQUAL, 3)),
    "scaled": (
        participation.uniform(3, weighting="scaled"), P, moments.uniform_subsets(P, 3, lambda members: members * N / 3),
    ),
    "normalised": (
        participation.uniform(3, weighting="normalised"), P,
        moments.uniform_subsets(P, 3, lambda members: members / members.sum()),
    ),
    "bernoulli": (participation.bernoulli(0.4), P, moments.bernoulli(P, 0.4)),
}  # fmt: skip


@pytest.mark.parametrize("scheme", SCHEMES)
def test_random_weights_have_the_schemes_first_and_second_moments(scheme):
    policy, weights, (first, second) = SCHEMES[scheme]
    a = weights_of_rounds(policy, weights)
    products = np.einsum("rc,re->rce", a, a)
    for found, exact in ((a, first[:-1]), (products, second[:-1, :-1])):
        error = found.std(axis=0, ddof=1) / np.sqrt(REPLICAS)
        assert np.all(np.abs(found.mean(axis=0) - exact) <= 5 * error + 1e-12)


@pytest.mark.parametrize("scheme", ["full", "with replacement", "uniform", "normalised"])
def test_weights_of_a_round_sum_to_one(scheme):
    policy, weights, _ = SCHEMES[scheme]
    assert np.allclose(weights_of_rounds(policy, weights, 500).sum(axis=1), 1, rtol=1e-14)


def test_scheme_one_and_scaled_subsets_are_unbiased_and_normalised_subsets_are_not():
    assert np.allclose(SCHEMES["scaled"][2][0][:-1], P)
    assert np.allclose(SCHEMES["with replacement"][2][0][:-1], P)
    assert np.abs(SCHEMES["normalised"][2][0][:-1] - P).max() > 0.01


# --- Closing ----------------------------------------------------------------------------------------------


WAITING = [
    participation.full(),
    participation.with_replacement(2),
    participation.uniform(2),
    participation.bernoulli(0.5),
]


def view(now=5.0, opened=1.0, arrived=(), in_flight=()):
    return SimpleNamespace(
        now_s=now, opened_s=opened, arrived=np.array(arrived), in_flight=np.array(in_flight),
        selected=np.array([*arrived, *in_flight]),
    )  # fmt: skip


@pytest.mark.parametrize("policy", WAITING)
def test_waiting_policies_close_when_nothing_is_outstanding(policy):
    assert policy.close(view(arrived=[1], in_flight=[2])) == math.inf
    assert policy.close(view(arrived=[1, 2])) == 5.0
    assert policy.close(view()) == 5.0


@pytest.mark.parametrize("policy", [participation.first(2), participation.buffered(2)])
def test_counting_policies_close_at_the_reply_they_wait_for(policy):
    assert policy.close(view(arrived=[1], in_flight=[2, 3])) == math.inf
    assert policy.close(view(arrived=[1, 2], in_flight=[3])) == 5.0


def test_a_deadline_is_counted_from_the_opening():
    assert participation.deadline(3.0).close(view(in_flight=[1])) == 4.0


CLOCKS = ["simpy", "compiled"]


def rounds_of(policy, ends_s, clock, lost=(), replicas=2, rounds=2):
    """Run rounds whose visits end these seconds after the opening; uploads of the clients in `lost` are lost there."""
    n = len(ends_s)
    upload = [float(c in lost) for c in range(n)]
    return fs.run(
        fs.Scenario(
            problem=fs.problems.Payload(n, parameters=1), algorithm=fs.algorithms.FedAvg(0.1), replicas=replicas,
            devices=fs.devices.constant(ends_s, dropout={"upload": upload} if any(upload) else 0.0),
            participation=policy, budget=fs.Budget(rounds=rounds), record=fs.Record(events=True),
        ),
        timing_only=True, clock=clock,
    )  # fmt: skip


def seconds_and_arrivals(result):
    """Return how long each round was open, and the clients whose replies arrived in each."""
    table, events = result.rounds, result.events
    arrived = events[events["event"] == "upload"].groupby(["replica", "round"])["client"].agg(sorted)
    keys = list(zip(table["replica"], table["round"], strict=True))
    return (table["closed_s"] - table["opened_s"]).tolist(), [arrived.get(key, []) for key in keys]


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("policy", [participation.full(), participation.with_replacement(60), participation.uniform(3)])
def test_waiting_policies_close_with_their_last_visit_whatever_its_outcome(policy, clock):
    seconds, arrived = seconds_and_arrivals(rounds_of(policy, [2.0, 7.0, 3.0], clock, lost=[1]))
    assert seconds == [7.0] * 4
    assert arrived == [[0, 2]] * 4


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_round_without_clients_closes_at_once(clock):
    result = rounds_of(participation.bernoulli(0.02), [2.0, 7.0, 3.0], clock, replicas=50)
    empty = result.rounds["selected"] == 0
    assert empty.sum() > 50
    assert (result.rounds["closed_s"] == result.rounds["opened_s"])[empty].all()


FIRST_TWO = {
    "the two quickest": ([5.0, 2.0, 9.0, 3.0], [], 3.0, [1, 3]),
    "a dropout is no reply": ([5.0, 2.0, 9.0, 3.0], [1], 5.0, [0, 3]),
    "too few replies: wait for the last visit": ([5.0, 2.0, 9.0], [1, 2], 9.0, [0]),
}


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("case", FIRST_TWO)
def test_the_first_two_replies_close_the_round(case, clock):
    ends_s, lost, expected_s, expected = FIRST_TWO[case]
    seconds, arrived = seconds_and_arrivals(rounds_of(participation.first(2), ends_s, clock, lost))
    assert seconds == [expected_s] * 4
    assert arrived == [expected] * 4


@pytest.mark.parametrize("clock", CLOCKS)
def test_replies_of_one_instant_arrive_in_a_drawn_order(clock):
    result = rounds_of(participation.first(2), [3.0, 3.0, 3.0], clock, replicas=1000)
    seconds, arrived = seconds_and_arrivals(result)
    assert set(seconds) == {3.0}
    pairs = [arrived.count(list(pair)) for pair in combinations(range(3), 2)]
    assert sum(pairs) == 2000
    assert p_value(pairs, [2000 / 3] * 3) > 1e-6


@pytest.mark.parametrize("clock", CLOCKS)
def test_replicas_close_apart(clock):
    ends_s = [2.0, 3.0, 5.0, 8.0, 9.0]
    seconds, arrived = seconds_and_arrivals(rounds_of(participation.first(2, of=3), ends_s, clock, replicas=40))
    assert seconds == [ends_s[second] for _, second in arrived]
    assert set(seconds) == {3.0, 5.0, 8.0}  # the second of three


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_deadline_keeps_replies_in_time_and_closes_early_when_all_have_arrived(clock):
    assert seconds_and_arrivals(rounds_of(participation.deadline(4.0), [2.0, 4.0, 9.0], clock)) == (
        [4.0] * 4,
        [[0, 1]] * 4,
    )
    assert seconds_and_arrivals(rounds_of(participation.deadline(4.0), [2.0, 3.0], clock)) == ([3.0] * 4, [[0, 1]] * 4)


# --- Refusals ---------------------------------------------------------------------------------------------

WRONG = {
    "no client": (lambda: participation.uniform(0), r"uniform\(0\): give an integer of at least 1"),
    "a negative number": (lambda: participation.with_replacement(-3), r"with_replacement\(-3\)"),
    "half a client": (lambda: participation.uniform(2.5), r"uniform\(2.5\)"),
    "a word": (lambda: participation.uniform("all"), r"uniform\(all\)"),
    "NaN clients": (lambda: participation.uniform(math.nan), r"uniform\(nan\)"),
    "infinitely many": (lambda: participation.with_replacement(math.inf), r"with_replacement\(inf\)"),
    "nothing": (lambda: participation.uniform(None), r"uniform\(None\)"),
    "an unknown weighting": (lambda: participation.uniform(2, weighting="fair"), "choose 'normalised' or 'scaled'"),
    "probability zero": (lambda: participation.bernoulli(0), r"bernoulli\(0\): give a probability in \(0, 1\]"),
    "probability above one": (lambda: participation.bernoulli([0.5, 1.5]), r"in \(0, 1\]"),
    "probability NaN": (lambda: participation.bernoulli(math.nan), r"in \(0, 1\]"),
    "a word for a probability": (lambda: participation.bernoulli("half"), "probability"),
    "a matrix of probabilities": (lambda: participation.bernoulli([[0.5]]), "probability"),
    "no probabilities": (lambda: participation.bernoulli([]), "probability"),
    "first of too few": (lambda: participation.first(5, of=3), r"cannot wait for 5 of 3"),
    "first none": (lambda: participation.first(0), r"first\(0\)"),
    "a deadline in the past": (lambda: participation.deadline(-1.0), r"deadline\(-1.0\)"),
    "a deadline that never comes": (lambda: participation.deadline(math.inf), r"deadline\(inf\)"),
    "a deadline of no client": (lambda: participation.deadline(1.0, of=0), r"deadline\(of=0\)"),
    "an empty buffer": (lambda: participation.buffered(0), r"buffered\(0\)"),
    "more than exist": (
        lambda: participation.uniform(60).check(50),
        r"participation.uniform\(60\): only 50 clients exist; use at most 50",
    ),
    "waiting for more than exist": (
        lambda: participation.first(60).check(50),
        "at most 50",
    ),
    "asking more than exist": (
        lambda: participation.deadline(1.0, of=60).check(50),
        "at most 50",
    ),
    "probabilities for others": (
        lambda: participation.bernoulli([0.5, 0.5]).check(3),
        "2 probabilities for 3 clients",
    ),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_wrong_policies_are_refused_in_one_sentence(mistake):
    build, words = WRONG[mistake]
    with pytest.raises(InvalidInput, match=words) as caught:
        build()
    assert "\n" not in str(caught.value)


def test_more_draws_than_clients_are_fine_with_replacement():
    participation.with_replacement(60).check(50)
    assert selected(participation.with_replacement(60), replicas=2).shape == (2, 60)


def test_policies_are_values_whose_fields_are_their_arguments():
    assert participation.uniform(3) == participation.uniform(3)
    assert participation.uniform(3) != participation.uniform(4)
    assert participation.bernoulli([0.5, 1]).probability == (0.5, 1.0)
    assert hash(participation.first(2, of=3)) == hash(participation.first(2, of=3))
    assert participation.deadline(2, of=4).seconds == 2.0
