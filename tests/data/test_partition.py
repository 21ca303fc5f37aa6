"""Partitioners: every row has exactly one client, shares are those asked for, and the split is the same everywhere."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import fedsim as fs
from fedsim import rng
from fedsim.data import (
    dirichlet,
    dominant,
    draw_label_counts,
    iid,
    label_counts,
    natural,
    pathological,
    quantity,
    shards,
)
from fedsim.data.partition import log_gamma_draws
from fedsim.errors import InvalidInput

Y = np.repeat(np.arange(10), [60, 50, 40, 70, 60, 55, 45, 60, 80, 80])  # 600 rows
EVERY = {
    "iid": lambda y, n, seed: iid(y, n, seed),
    "dirichlet": lambda y, n, seed: dirichlet(y, n, 0.3, seed),
    "dirichlet, balanced": lambda y, n, seed: dirichlet(y, n, 0.3, seed, self_balancing=True),
    "pathological": lambda y, n, seed: pathological(y, n, 3, seed),
    "pathological, in order": lambda y, n, seed: pathological(y, n, 3, seed, "deterministic"),
    "pathological, first in order": lambda y, n, seed: pathological(y, n, 3, seed, "first-deterministic"),
    "shards": lambda y, n, seed: shards(y, n, 2, seed),
    "quantity": lambda y, n, seed: quantity(y, n, 1.5, seed),
    "dominant": lambda y, n, seed: dominant(y, n, seed=seed),
}
every_partitioner = pytest.mark.parametrize("name", EVERY)


@every_partitioner
@settings(max_examples=15)
@given(clients=st.integers(4, 40), seed=st.integers(0, 2**40))
def test_every_row_has_exactly_one_client_and_every_client_a_row(name, clients, seed):
    parts = EVERY[name](Y, clients, seed)
    assert len(parts) == clients
    assert all(len(p) for p in parts)
    assert all(p.dtype == np.int64 for p in parts)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(Y)))


@every_partitioner
def test_a_split_is_a_function_of_its_seed(name):
    first, again, other = EVERY[name](Y, 12, 4), EVERY[name](Y, 12, 4), EVERY[name](Y, 12, 5)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=True))


GOLDEN = {  # of the row numbers, client by client
    "iid": "802f92d2af75",
    "dirichlet": "0d5a788e8c38",
    "dirichlet, balanced": "c643909b2457",
    "pathological": "424b1c005d69",
    "pathological, in order": "52b82a0f6b0f",
    "pathological, first in order": "5d34088160c8",
    "shards": "f95881c8b21b",
    "quantity": "ee1a86507ce4",
    "dominant": "d39683ed4f08",
}


@every_partitioner
def test_a_split_is_the_same_on_every_machine(name):
    text = "|".join(" ".join(map(str, p)) for p in EVERY[name](Y, 12, 4))
    assert hashlib.sha256(text.encode()).hexdigest()[:12] == GOLDEN[name]


def test_iid_clients_have_as_many_rows_as_can_be():
    assert sorted(map(len, iid(Y, 7))) == [85, 85, 86, 86, 86, 86, 86]


@pytest.mark.parametrize("alpha", [0.05, 0.3, 1.0, 5.0])
def test_gamma_variates_have_their_law(alpha):
    key = rng.keys(3, rng.Stream.DATA, client=np.arange(4000))
    drawn = np.exp(log_gamma_draws(key, np.full(4000, alpha)))
    assert stats.kstest(drawn, stats.gamma(alpha).cdf).pvalue > 0.01


def test_dirichlet_shares_have_the_mean_and_variance_of_their_law():
    """Shares of one class over 20 clients: mean 1/20, variance (1/20)(19/20) / (20 alpha + 1)."""
    y, alpha = np.zeros(4000, int), 0.5
    share = np.array([[len(p) for p in dirichlet(y, 20, alpha, s, min_partition_size=0)] for s in range(200)]) / 4000
    assert np.allclose(share.sum(axis=1), 1)
    exact = 0.05 * 0.95 / (20 * alpha + 1)
    assert abs(share.var() / exact - 1) < 0.12
    lopsided = np.array([len(p) for p in dirichlet(y, 2, [30.0, 10.0], 1)]) / 4000
    assert abs(lopsided[0] - 0.75) < 0.25


def test_dirichlet_keeps_to_the_least_size_that_was_asked_for():
    assert min(map(len, dirichlet(Y, 40, 0.05, 1, min_partition_size=10))) >= 10
    digits = fs.data.load("digits")
    assert min(map(len, dirichlet(digits.y, clients=100, alpha=0.3, seed=1))) >= 1


def test_self_balancing_keeps_clients_from_growing_far_beyond_their_share():
    free, held = (max(map(len, dirichlet(Y, 10, 0.2, 3, self_balancing=b))) for b in (False, True))
    assert held <= 60 + 80 < free + 80


def test_pathological_clients_have_exactly_so_many_classes():
    for mode in ("random", "deterministic", "first-deterministic"):
        table = label_counts(Y, pathological(Y, 15, 3, 2, mode)).drop(columns="rows")
        assert ((table > 0).sum(axis=1) == 3).all()
        assert ((table > 0).sum(axis=0) > 0).all()
    ordered = label_counts(Y, pathological(Y, 10, 2, 0, "deterministic")).drop(columns="rows").to_numpy()
    assert (np.diag(ordered) > 0).all()
    assert (ordered[np.arange(10), (np.arange(10) + 1) % 10] > 0).all()
    assert ordered[0, 0] == 30  # 60 rows of class 0, shared with client 9


def test_two_shards_hold_at_most_a_few_labels():
    parts = shards(np.repeat(np.arange(10), 60), 30, 2, 1)  # 60 shards of 10 rows, none across a label
    assert all(len(p) == 20 for p in parts)
    assert max(len(np.unique(np.repeat(np.arange(10), 60)[p])) for p in parts) <= 2


def test_quantities_are_in_proportion_to_lognormal_draws():
    draws = rng.normal(rng.keys(7, rng.Stream.DATA, round=1, client=np.arange(5)), 1)[:, 0]
    found = np.array([len(p) for p in quantity(Y, 5, 0.8, 7)])
    assert np.abs(found - 600 * np.exp(0.8 * draws) / np.exp(0.8 * draws).sum()).max() <= 1
    assert [len(p) for p in quantity(Y, 5, 0.0)] == [120] * 5


def test_dominant_labels_have_the_papers_shares():
    """20 clients, 10 labels of 1,000 rows: 400 of the own label and 10 of each other, 980 of a label in all."""
    y = np.repeat(np.arange(10), 1000)
    exact = label_counts(y, dominant(y, 20, leftover="drop")).drop(columns="rows").to_numpy().copy()
    own = np.arange(20) % 10
    assert (exact[np.arange(20), own] == 400).all()
    assert exact.sum() == 9800
    exact[np.arange(20), own] = 10
    assert (exact == 10).all()
    dealt = label_counts(y, dominant(y, 20)).drop(columns="rows").to_numpy()
    assert np.abs(dealt[np.arange(20), own] - 400 / 0.98).max() <= 1
    assert dealt.sum() == 10_000


def test_natural_ids_are_clients():
    parts = natural(["b", "a", "b", "c", "a"])
    assert [p.tolist() for p in parts] == [[1, 4], [0, 2], [3]]


def test_the_table_and_the_picture_count_labels_per_client():
    parts = [np.array([0, 1, 60]), np.array([2])]
    table = label_counts(Y, parts)
    assert table.loc[0, 0] == 2
    assert table.loc[0, 1] == 1
    assert table["rows"].tolist() == [3, 1]
    figure = draw_label_counts(Y, iid(Y, 5))
    assert sum(bar.get_height() for bar in figure.axes[0].patches) == 600


REFUSED = {
    r"iid\(clients=601\): there are 600 rows": lambda: iid(Y, 601),
    r"iid\(clients=0\)": lambda: iid(Y, 0),
    r"dirichlet\(alpha=0\)": lambda: dirichlet(Y, 5, 0),
    "one for each of 5 clients": lambda: dirichlet(Y, 5, [1.0, 2.0]),
    r"min_partition_size=200\): 5 clients share 600 rows": lambda: dirichlet(Y, 5, 1, min_partition_size=200),
    "there are 10 classes; use at most 10": lambda: pathological(Y, 5, 11),
    "set classes_per_client=4": lambda: pathological(Y, 3, 2),
    "class_assignment_mode='sorted'": lambda: pathological(Y, 9, 2, 0, "sorted"),
    "need more than 600 rows": lambda: shards(Y, 301, 2),
    r"quantity\(sigma=-1\)": lambda: quantity(Y, 5, -1),
    "would have 245 % of class 0": lambda: dominant(Y, 50, leftover="drop"),
    "no client gets class": lambda: dominant(Y, 5, rest=0.0),
    "ids have shape": lambda: natural([]),
    "give one per row": lambda: iid(Y[:, None], 5),
    r"row 3 has 2 clients": lambda: label_counts(Y, [[3], [3]]),
    "has row 600": lambda: label_counts(Y, [[600]]),
    "is empty": lambda: label_counts(Y, [np.array([1]), np.array([], int)]),
    "give a list of arrays of row numbers": lambda: label_counts(Y, [0.5]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_impossible_splits_are_refused_with_a_remedy(message):
    with pytest.raises(InvalidInput, match=message):
        REFUSED[message]()
