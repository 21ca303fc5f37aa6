"""Private FedPAQ, figure 3: quantisation levels s (a) and active devices M (b), by round; budgets and heterogeneity."""

from dataclasses import replace
from math import log2

import _het
import numpy as np
from _exact import Problem, larger

import fedsim as fs
from fedsim import rng
from fedsim.reproduce import (
    agreement,
    count,
    every,
    exact,
    exact_range,
    identical,
    judge,
    ordered,
    pick,
    plots,
    some,
    superiority,
    within_range,
)

needs = ("mnist",)
paired = ("kind",)  # runs that differ in the quantiser alone share the other random numbers; others share none
MODES = ("plain", *_het.NOISES)


def kind(mode: str = "plain", s: int = 10, M: int = 10, het: int = 2, part: str = "all") -> str:
    """`part` is "all" rounds, the "start" (ten rounds) or "T<iterations> E<steps>"; s = 0 does not quantise."""
    return f"{mode} s={s} M={M} het={het} {part}"


LEVELS = [kind(mode, s) for mode in MODES for s in (0, 10, 1)]
ACTIVE = [kind(mode, M=1) for mode in MODES]
MORE = [kind(mode, M=M) for mode in MODES for M in (5, 50, 100)]
START = [kind(mode, M=M, part="start") for mode in MODES for M in (1, 10)]
OTHER = [kind(s=s, het=het) for het in (1, 10) for s in (0, 1)]
SAVED = [kind(s=1, M=100), kind(s=1, M=15, part="T1000 E1")]
COUPLED = [kind(M=E, het=het, part=f"T1000 E{E}") for het in (1, 2, 10) for E in (1, 10, 40)]  # M = E
paper = {"rounds": 100, "local_steps": 10}
quick = {"kind": [*LEVELS, *ACTIVE, *START, *OTHER]}
full = {"kind": [*quick["kind"], *MORE, *SAVED, *COUPLED]}


def scenario(*, kind: str = LEVELS[0], rounds: int = 100, local_steps: int = 10) -> fs.Scenario:
    mode, s, chosen, het, part, *steps = kind.split()
    each = 1 if part == "start" or (mode == "plain" and chosen == "M=10" and het == "het=2") else 5
    if part == "start":
        rounds = 10
    elif part != "all":
        local_steps = int(steps[0][1:])
        rounds = int(part[1:]) // local_steps
        each = rounds // 5
    return _het.scenario(
        ("fig3", mode, chosen, het, part, *steps), mode, levels=int(s[2:]), chosen=int(chosen[2:]),
        digits=int(het[4:]), rounds=rounds, local_steps=local_steps, every=each,
    )  # fmt: skip


# --- Exact -----------------------------------------------------------------------------------------------------------

DIM = 7850


def moments(v, s):
    """Return the mean and the variance of each coordinate of equation 20."""
    norm = np.linalg.norm(v)
    at = s * np.abs(v) / norm
    share = at - np.floor(at)
    mean = np.sign(v) * norm / s * (np.floor(at) * (1 - share) + (np.floor(at) + 1) * share)
    return mean, (norm / s) ** 2 * share * (1 - share)


def vectors():
    draw = np.random.default_rng(7)
    for d in (1, 2, 10, 1000, DIM):
        yield from (draw.standard_normal(d), np.ones(d), draw.standard_cauchy(d), np.eye(1, d)[0] + 1e-3)


@judge("full-accuracy-bits")
def full_accuracy():
    return count(fs.codecs.Identity("float32").length(DIM) / DIM, 32)


@judge("unbiased-not-eliminated")
def unbiased():
    found = {s: moments(np.random.default_rng(7).standard_normal(DIM), s) for s in (1, 10)}
    v = np.random.default_rng(7).standard_normal(DIM)
    means = identical([found[1][0], found[10][0]], [v, v])
    least = min(variance.sum() for _, variance in found.values())
    return every({"mean": means, "variance": exact(least > 0, f"at least {least:.3g}")})


@judge("qsgd-q")
def loss_of_qsgd():
    ratios = [
        moments(v, s)[1].sum() / (v @ v) / fs.codecs.QSGD(s).omega(v.size) for v in vectors() for s in (1, 2, 10, 100)
    ]
    return exact_range(max(ratios), 0, 1, name=f"at most this share of the bound over {len(ratios)} cases: ")


@judge("q-in-unit-interval")
def unit():
    q = {f"s = {s}": fs.codecs.QSGD(s).omega(DIM) for s in (1, 10)}
    proof = "E10: min(d/s^2, sqrt(d)/s) is above 1 for each s below sqrt(d) = 88.6."
    return every({key: exact_range(value, 0, 1, name="q = ") for key, value in q.items()}).refuted(proof)


@judge("q-falls-with-beta")
def falls():
    s = np.array([1, 2, 5, 10, 50])
    beta, q = DIM * np.log2(2 * s + 1), DIM**0.5 / s
    same = identical(q, 2 * DIM**0.5 / (2 ** (beta / DIM) - 1))
    return every({"value": same, "order": ordered(dict(zip(beta.round(), q, strict=True)))})


@judge("bits")
def bits():
    outcomes = {}
    for s in (1, 10):
        v, key = np.random.default_rng(1).standard_normal(DIM), rng.keys(1, rng.Stream.DATA)
        sent = 8 * len(fs.codecs.QSGD(s).encode(v, key))
        printed = DIM * log2(2 * s + 1) + 32
        outcomes[f"s = {s}"] = exact_range(sent, printed, printed + DIM + 7, published=f"{printed:,.0f} bits")
    return every(outcomes).because("E11: the code here has a fixed width; 7 bits fill the last byte.")


PRIVATE = Problem(private=True, rows=3000)


@judge("remark-7-q", name="q", values=(0.0, 0.5, 1.0, 5.0))
@judge("remark-7-lambda", name="spread", values=(0.0, 0.5, 1.0, 2.0))
@judge("remark-7-m", name="M", values=(20, 10, 5, 2, 1))
def remark_7(name, values):
    outcomes = {}
    for form, base in (("plain", Problem()), ("private", PRIVATE)):
        found = larger({v: replace(base, **{name: v}) for v in values}, 1000)
        for key, own in found.items():
            outcomes[f"{form}, {key}"] = ordered(own, increasing=True, name=f"by {name} ")
    return every(outcomes)


@judge("het-10")
def het_10(study):
    y = fs.data.load("mnist").y
    held = np.array([np.bincount(y[rows], minlength=10) for rows in _het.parts(10)])
    return count(int(np.ptp(held, axis=0).max()), 0, tolerance=1).because(
        "The largest difference between devices in their number of a digit; MNIST itself has 5421 to 6742 of each."
    )


# --- Runs ------------------------------------------------------------------------------------------------------------


def relative(study, s, mode="plain", het=2):
    """{round: relative increase of the loss over no quantiser}, by run; the runs share all other random numbers."""
    without, own = (_het.losses(study, kind=kind(mode, level, het=het)) for level in (0, s))
    return {k: (own[k] - without[k]) / without[k] for k in own}


def end(study, **settings):
    return _het.last(study, kind=kind(**settings))


@judge("fig3a-s-10", mode="plain")
@judge("fig3a-private-s-10-printed", mode="printed")
@judge("fig3a-private-s-10-mean", mode="mean")
def ten(study, mode):
    return _het.at_each({k: within_range(v, -0.01, 0.01) for k, v in relative(study, 10, mode).items()})


@judge("fig3a-s-1", mode="plain")
@judge("fig3a-private-s-1-printed", mode="printed")
@judge("fig3a-private-s-1-mean", mode="mean")
def one(study, mode):
    found = relative(study, 1, mode)
    return within_range(found[max(found)], 0.0, 0.10)


@judge("lesson-1")
def lesson_1(study):
    found = {het: relative(study, 1, het=het) for het in (1, 2, 10)}
    return every({f"HET_MNIST({het})": within_range(v[max(v)], 0.0, 0.10) for het, v in found.items()})


@judge("q-not-with-lambda")
def invariant(study):
    two, ten = (relative(study, 1, het=het) for het in (2, 10))
    return agreement(two[max(two)], ten[max(ten)], 0.05)


@judge("fig3a-s-1-stable")
def stable(study):
    with_one, without = (_het.rises(study, kind=kind(s=s)) for s in (1, 0))
    return within_range(with_one / without, -np.inf, 1.5)


def start(study, mode):
    """The largest rise among the first ten rounds by run, M = 1 and 10."""
    return [_het.rises(study, 10, kind=kind(mode, M=M, part="start")) for M in (1, 10)]


@judge("fig3b-unstable")
def unstable(study):
    one, ten = start(study, "plain")
    return superiority(one, 2 * ten).because("M = 1 against twice M = 10.")


@judge("fig3b-more-pronounced-printed", mode="printed")
@judge("fig3b-more-pronounced-mean", mode="mean")
def pronounced(study, mode):
    (one, ten), (plain_one, plain_ten) = start(study, mode), start(study, "plain")
    return superiority(one - ten, plain_one - plain_ten)


@judge("lesson-3-plain", mode="plain")
@judge("lesson-3-private-printed", mode="printed")
@judge("lesson-3-private-mean", mode="mean")
def lesson_3(study, mode):
    curves = {f"M = {M}": _het.losses(study, kind=kind(mode, M=M)) for M in (100, 50, 10, 5, 1)}
    return _het.ordered_curves(curves, higher=True)


@judge("lesson-3-more-printed", mode="printed")
@judge("lesson-3-more-mean", mode="mean")
def lesson_3_more(study, mode):
    own, plain = (end(study, mode=m, M=1) - end(study, mode=m) for m in (mode, "plain"))
    return superiority(own, plain)


@judge("savings-lesson")
def saved(study):
    own = {name: _het.last(study, kind=name) for name in SAVED}
    without = end(study, s=0)
    return _het.absent(own.values()) or some({k: superiority(v, without, higher=False) for k, v in own.items()})


@judge("remark-6-accelerated")
def accelerated(study):
    """Rounds to a loss of 1, by fives; 105 for a run that does not get there."""

    def rounds(het):
        values = _het.losses(study, kind=kind(s=0, het=het))
        own = [np.where(values[k] <= 1, k, 105) for k in sorted(values) if k % 5 == 0]
        return np.min(own, axis=0)

    return every({f"against HET_MNIST({het})": superiority(rounds(10), rounds(het), higher=False) for het in (1, 2)})


@judge("eq-19-larger-e")
def budget(study):
    loss = {(het, E): end(study, M=E, het=het, part=f"T1000 E{E}") for het in (1, 2, 10) for E in (1, 10, 40)}
    if missing := _het.absent(loss.values()):
        return missing
    outcomes = {}
    for E in (10, 40):
        for het in (1, 2):
            outcomes[f"E = {E}, HET_MNIST({het})"] = superiority(loss[het, E], loss[het, 1], higher=False)
            gains = [loss[h, 1] - loss[h, E] for h in (10, het)]
            outcomes[f"E = {E}, gain on HET_MNIST(10) and ({het})"] = superiority(*gains, higher=False)
    return every(outcomes)


def figure(study):
    levels = {0: "not quantised", 10: "s = 10", 1: "s = 1"}
    content = {
        f"(a) levels s, {mode}": {
            text: plots.curve(pick(study, kind=kind(mode, s)), "loss") for s, text in levels.items()
        }
        for mode in ("plain", "mean")
    }
    content["(b) active devices M, s = 10"] = {
        f"{mode}, M = {M}": plots.curve(pick(study, kind=kind(mode, M=M, part="start")), "loss")
        for mode in ("plain", "mean")
        for M in (1, 10)
    }
    return plots.panels(content, "communication rounds", "training loss")
