"""`fs.testing.check` tells a sound part of a scenario from a broken one, and says a failure as a failure."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

import fedsim as fs
from fedsim.errors import InvalidInput
from fedsim.testing import Broken, check

SIZES = (4, 1, 7)


class Quadratic:
    """sum_i |theta - x_i|^2 / 2 over rows of three clients, as someone outside the package would write it."""

    clients, dim, sizes = 3, 2, np.array(SIZES)

    def __init__(self):
        rng = np.random.default_rng(0)
        self.x = [rng.normal(size=(n, 2)) for n in SIZES]

    def gradient(self, theta, client, rows=None):
        x = self.x[client] if rows is None else self.x[client][rows]
        return len(x) * theta - x.sum(axis=0)

    def loss(self, theta):
        x = np.concatenate(self.x)
        return ((theta[:, None] - x) ** 2).sum(axis=2).mean(axis=1) / 2

    def potential(self, theta, client, rows=None):
        x = self.x[client] if rows is None else self.x[client][rows]
        return ((theta - x) ** 2).sum() / 2


class IgnoresRows(Quadratic):
    def gradient(self, theta, client, rows=None):
        return super().gradient(theta, client)


class MeansOverRows(Quadratic):
    def gradient(self, theta, client, rows=None):
        return super().gradient(theta, client, rows) / (1 if rows is None else len(rows))


class ZeroLoss(Quadratic):
    def loss(self, theta):
        return np.zeros(len(theta))


class Uphill(Quadratic):
    def loss(self, theta):
        return -super().loss(theta)


class ForgetsACoordinate(Quadratic):
    def loss(self, theta):
        x = np.concatenate(self.x)
        return ((theta[:, None] - x)[..., 0] ** 2).mean(axis=1) / 2


class OneNumber(Quadratic):
    def loss(self, theta):
        return super().loss(theta).mean()


class HalfThePotential(Quadratic):
    def potential(self, theta, client, rows=None):
        return super().potential(theta, client, rows) / 2


class TheWholePotential(Quadratic):
    def potential(self, theta, client, rows=None):
        return sum(super(TheWholePotential, self).potential(theta, c) for c in range(3))


class PotentialIgnoresRows(Quadratic):
    def potential(self, theta, client, rows=None):
        return super().potential(theta, client)


class PotentialWithoutClient(Quadratic):
    def potential(self, theta):
        return ((theta[:, None] - np.concatenate(self.x)) ** 2).sum(axis=(1, 2)) / 2


class Mixed(Quadratic):
    """Batched potentials in which neighbours enter."""

    def potentials(self, theta, clients, rows=None):
        own = [None if rows is None else rows[0][rows[1][i] : rows[1][i + 1]] for i in range(len(theta))]
        each = np.array([self.potential(t, c, r) for t, c, r in zip(theta, clients, own, strict=True)])
        return each + 1e-14 * each.sum()


class Summed(Quadratic):
    """A loss may be a sum instead of a mean."""

    def loss(self, theta):
        return len(np.concatenate(self.x)) * super().loss(theta)


class Weighted(Quadratic):
    """With weights of its own a problem may mean sum_c p_c (mean loss of c)."""

    weights = np.array([0.5, 0.3, 0.2])

    def loss(self, theta):
        own = [((theta[:, None] - x) ** 2).sum(axis=2).mean(axis=1) / 2 for x in self.x]
        return self.weights @ np.array(own)


@pytest.mark.parametrize(
    "broken, message",
    [
        (IgnoresRows, r"IgnoresRows: gradient\(theta, 0, rows\) .* does not add up .* it ignores rows"),
        (MeansOverRows, r"does not add up to gradient\(theta, 0\): off by .* plain sum"),
        (ZeroLoss, "ZeroLoss: loss does not have the slope of the clients' gradients"),
        (Uphill, "loss does not have the slope of the clients' gradients"),
        (ForgetsACoordinate, "loss does not have the slope of the clients' gradients"),
        (OneNumber, r"loss\(theta\) has shape \(\) for theta \(2, 2\); it must be \(2,\)"),
        (
            HalfThePotential,
            r"client 0's potential does not have the slope of its gradient over all its rows: .* off by 0\.5",
        ),
        (TheWholePotential, "client 0's potential does not have the slope .* it is the sum over all clients"),
        (PotentialIgnoresRows, "client 0's potential does not have the slope of its gradient over some of its rows"),
        (Mixed, "a full potential's bits depend on its neighbours in the batch"),
    ],
)
def test_a_broken_problem_is_refused_with_what_is_wrong(broken, message):
    with pytest.raises(Broken, match=message):
        check(broken())


@pytest.mark.parametrize("sound", [Quadratic, Summed, Weighted])
def test_a_sound_problem_passes(sound):
    held = check(sound())
    assert "loss has the slope of the clients' gradients" in held
    assert "client 2's gradients over parts of its rows add up" in held
    assert "client 2's potential has the slope of its gradient over some of its rows" in held
    assert not any("client 1's gradients" in text for text in held)  # one row has no parts


def test_a_potential_without_a_client_is_refused():
    says = (
        r"PotentialWithoutClient.potential\(theta\) takes no client and rows; write potential\(theta, client, rows=None"
    )
    with pytest.raises(InvalidInput, match=says):
        check(PotentialWithoutClient())
    with pytest.raises(InvalidInput, match=says):
        fs.Scenario(PotentialWithoutClient(), fs.algorithms.FALD(1e-3), fs.Budget(rounds=1))


problems = fs.problems
OURS = {
    "Gaussian": problems.GaussianMean.synthetic(3, 4, samples=8),
    "linear, with a prior": problems.LinearRegression.from_arrays(
        np.random.default_rng(1).normal(size=(9, 2)), np.arange(9.0), [0, 4, 9], 0.5, 3.0
    ),
    "logistic": problems.LogisticRegression.synthetic(3, 4, samples=8, prior_precision=2.0),
    "logistic, unscaled pixels": problems.LogisticRegression(
        [(255 * np.random.default_rng(2).random((20, 5)), np.arange(20) % 2)], prior_precision=1.0
    ),
    "softmax": problems.SoftmaxRegression.synthetic(3, 4, classes=3, samples=8, dtype=np.float64),
    "softmax, float32": problems.SoftmaxRegression.synthetic(3, 4, classes=3, samples=8, dtype=np.float32),
}


@pytest.mark.parametrize("name", OURS)
def test_our_own_problems_pass(name):
    assert check(OURS[name])


TICKS = itertools.count()


class Forgetful:
    """A policy that is another one every time."""

    def select(self, view, rng):
        return np.array([next(TICKS) % view.clients])

    def close(self, view):
        return float("inf")


class Backwards:
    """Devices whose time runs backwards."""

    def compute_s(self, clients, work, now_s, rng):
        return -np.ones(len(clients))


class Crowd(Backwards):
    def compute_s(self, clients, work, now_s, rng):
        return np.full(len(clients), float(len(clients)))


class Careless:
    """A policy that draws its ten clients from NumPy's global generator."""

    def select(self, view, rng):
        return np.random.permutation(view.clients)[:10]

    def close(self, view):
        return float("inf")


class Tired:
    """Devices that are slower with every call."""

    def __init__(self):
        self.calls = 0

    def compute_s(self, clients, work, now_s, rng):
        self.calls += 1
        return work * float(self.calls)


class Latched:
    """Devices that remember the latest time that they were asked about."""

    latest_s = 0.0

    def compute_s(self, clients, work, now_s, rng):
        self.latest_s = max(self.latest_s, float(now_s.max()))
        return work + self.latest_s


class Flickering:
    """Devices whose availability is drawn once a call."""

    def compute_s(self, clients, work, now_s, rng):
        return work

    def next_available(self, clients, now_s, rng):
        return now_s + next(TICKS)

    def available_until(self, clients, now_s, rng):
        return now_s + 1.0


class ByLoss:
    """The ten clients with the largest losses, of forty."""

    history = True

    def select(self, view, rng):
        ids = view.sample_available(40)
        return ids[np.argsort(-np.nan_to_num(view.last(ids, "loss"), nan=np.inf), kind="stable")[:10]]

    def close(self, view):
        return float("inf")


class Miscounting(fs.codecs.Identity):
    def quantise(self, values, key):
        decoded, bits = super().quantise(values, key)
        return decoded, bits + 64


@pytest.mark.parametrize(
    "broken, message",
    [
        (Forgetful(), "Forgetful: replay is not exact: "),
        (Backwards(), r"Backwards: a compute time is \[-1\.\]; they must be finite"),
        (Careless(), "Careless: replay is not exact: "),
        (Tired(), "Tired: replay is not exact: the same visits asked twice gave other answers"),
        (Latched(), "Latched: replay is not exact: "),
        (Flickering(), "Flickering: replay is not exact: "),
        (Crowd(), "Crowd: a visit depends on its neighbours"),
        (Miscounting(), "Miscounting: bits do not count the bytes"),
    ],
)
def test_other_broken_parts_are_refused(broken, message):
    with pytest.raises(Broken, match=message):
        check(broken)


@pytest.mark.parametrize(
    "sound", [fs.participation.uniform(3), fs.devices.lognormal(1e-3, sigma=0.5), fs.codecs.QSGD(4)], ids=repr
)
def test_sound_parts_pass(sound):
    assert len(check(sound)) >= 2


@pytest.mark.parametrize(
    "policy",
    [ByLoss(), fs.participation.uniform(60), fs.participation.first(3, of=20)],
    ids=lambda policy: type(policy).__name__,
)
def test_policies_that_select_more_than_a_few_clients_are_checked(policy):
    with warnings.catch_warnings():
        warnings.simplefilter("error", fs.errors.ResultWarning)  # losses are reported
        assert check(policy)


def test_what_is_no_part_of_a_scenario_is_refused():
    with pytest.raises(InvalidInput, match="not an algorithm, a problem"):
        check(3)
