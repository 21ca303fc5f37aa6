"""Every rule gives the same bits in Python and compiled, for inf, nan, -0.0, ties and integers over 2**53."""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import sys
from inspect import signature
from math import inf, nan
from pathlib import Path

import numpy as np
import pytest

import fedsim
from fedsim.kernels.clock import compiled_rules
from fedsim.kernels.compiler import KernelDispatcher, dispatched_by
from fedsim.rules import availability, closing, visits
from fedsim.rules.availability import OnlineLaw
from fedsim.rules.closing import Closing
from fedsim.rules.draws import Key

FLOATS = (0.0, -0.0, 0.1, 0.5, 1.0, 1.5, 2.0, 3.75, 1e-300, 1e300, 2.0**53, 2.0**53 + 2, 2.0**63, -1.0, inf, -inf, nan)
INTEGERS = (0, 1, 2, 3, 4, 7, 1000, 2**31, 2**53 - 1, 2**53 + 1, 2**62)
POSITIVE = (0.1, 0.3, 1.0, 1.7, 60.0, 1e-9, 1e9)
TIMES = (0.0, -0.0, 0.1, 0.3, 0.6, 0.9, 1.0, 1.7, 2.0, 6.0, 59.99999999999999, 60.0, 1234.5, 1e6, 1e300, inf, nan)
WORDS = (0, 1, 2, 5, 2**31 - 1, 2**31, 2**32 - 1, 0x9E3779B9, 0x40000000, 0xC0000001)
UNITS = (2.0**-53, 0.1, 0.25, 0.5, 0.7071067811865475, 0.7071067811865476, 0.999, 1.0 - 2.0**-53)
STARTS, ENDS = np.array([0.0, 1.0, 4.0, 0.5, 2.0]), np.array([0.6, 3.0, 6.0, 1.0, 2.5])  # two clients: three and two
LAWS = [
    OnlineLaw(), OnlineLaw(availability.MARKOV, 1.0, 0.6), OnlineLaw(availability.MARKOV, 1e-9, 1e9),
    OnlineLaw(availability.DIURNAL, 0.5, 0.25, 2.0), OnlineLaw(availability.DIURNAL, 0.3, nan, 0.3),
    OnlineLaw(availability.DIURNAL, 0.0, 0.0, 1.7), OnlineLaw(availability.DIURNAL, 1.0, 1.0, 60.0),
    OnlineLaw(availability.INTERVALS, 0.0, 0.0, inf, 0, 3), OnlineLaw(availability.INTERVALS, 0.0, 0.0, 6.0, 0, 3),
    OnlineLaw(availability.INTERVALS, 0.0, 0.0, 6.0, 3, 5), OnlineLaw(availability.INTERVALS, 0.0, 0.0, 6.0, 5, 5),
]  # fmt: skip
KEYS = [Key(1, 2, 3, 4), Key(0, 0, 0, 0), Key(2**32 - 1, 2**31, 7, 2**32 - 1)]
CLOSINGS = [
    Closing(),
    Closing(closing.AT_REPLIES, 2.0),
    Closing(closing.AT_DEADLINE, 1.5),
    Closing(1, inf),
    Closing(2, inf),
]
DROPOUTS = [
    visits.Dropout(),
    visits.Dropout(0.1, 0.2, 0.3),
    visits.Dropout(0.0, 1.0, 0.0),
    visits.Dropout(nan, inf, -0.0),
]
DRAWS = [
    visits.Drawn(seconds, drop, fraction, 5) for seconds in FLOATS for drop in range(4) for fraction in (0.0, 0.3, 1.0)
]
BY_NAME = {  # what a parameter may be; all others are any float or integer by their annotation
    "kind": (0, 1, 2, 8), "tie": (0, 1, 2**30 - 1), "number": (0, 5, 2**28 - 1), "loss_factor": (1.0, 1.25, 3.0),
    "bandwidth_bps": (1e-3, 3.0, 1e6, inf), "bits": (0, 1, 999, 2**53 + 1, 2**62), "key": KEYS, "law": LAWS,
    "closing": CLOSINGS, "starts_s": (STARTS,), "ends_s": (ENDS,), "high": WORDS, "low": WORDS, "block": (0, 1, 2**32 - 1),
    "step": (0, 1, 2**31), "stream": (4, 8), "replica": WORDS, "client": WORDS, "visit": (0, 3, 2**24 - 1), "round": (0, 1, 2, 6, 2**31),
    "seed_low": WORDS, "seed_high": WORDS, "lane": (0, 1, 2, 3, 9), "below": (1, 2, 3, 1000, 2**31 - 1), "u": UNITS,
    "on_s": POSITIVE, "off_s": POSITIVE, "cell_s": POSITIVE, "length_s": POSITIVE, "period_s": (*POSITIVE, inf),
    "cell": (0.0, 1.0, 77.0, 2.0**40), "turn": (0, 1), "every": (0, 1, 2, 5), "fraction": (0.0, 0.3, 0.5, 1.0), "phase": (0.0, 0.4, nan),
    "dropout": DROPOUTS, "drawn": DRAWS, "uploading": (False, True), "at": (0, 1, 2), "start": (0.0, 0.25, 1.0), "k": (0.0, 1.0, -1.0, 2.0**52),
}  # fmt: skip
BY_RULE = {  # where a name means something narrower
    ("log", "x"): UNITS, ("slowdown", "a"): (0.1, 0.5, 2.0), ("slowdown", "drawn"): UNITS, ("slowdown", "law"): (0, 1, 2, 3), ("philox", "k0"): WORDS,
    ("philox", "k1"): WORDS, **{("philox", f"c{i}"): WORDS for i in range(4)},
    ("markov_is_online", "now_s"): TIMES[:13], ("last_call_s", "now_s"): TIMES[:13], ("next_call_s", "now_s"): TIMES[:13],
    ("tie_of", "u"): UNITS, ("rank", "kind"): tuple(range(1, 9)), ("diurnal_end_s", "phase"): (0.0, 0.4),
    ("candidate", "left"): (1, 2, 1000, 2**31 - 1), ("latest_interval", "law"): LAWS[7:], ("interval_end_s", "law"): LAWS[7:10],
}  # fmt: skip
BY_RULE_NAMES = {rule: [n for r, n in BY_RULE if r == rule] for rule, _ in BY_RULE}
SLOW = {"last_call_s", "markov_is_online", "online_s", "offline_s", "markov_in_range"}  # empty cells are walked through
RULES = [rule for module in compiled_rules.RULES for rule in compiled_rules.rules_of(module)]


def bits_of(value: object) -> object:
    """Return a value that compares equal only to the same bits."""
    if isinstance(value, tuple):
        return tuple(map(bits_of, value))
    if isinstance(value, float):
        return "nan" if value != value else struct.pack("<d", value)
    return (type(value) is bool or isinstance(value, np.bool_), int(value))


def arguments_of(rule, g: random.Random) -> tuple:
    out = []
    for name, parameter in signature(rule).parameters.items():
        values = BY_RULE.get((rule.__name__, name)) or BY_NAME.get(name)
        if values is None:
            values = TIMES if name.endswith("now_s") else FLOATS if parameter.annotation == "float" else INTEGERS
        out.append(g.choice(values))
    if rule.__name__ in SLOW:  # a mean of 1e-9 s and a time of 1e6 s are 1e15 cells
        law = next((a for a in out if isinstance(a, OnlineLaw)), None)
        if (law is not None and law.a == 1e-9) or any(isinstance(a, float) and a in (1e-9, 1e9) for a in out[1:]):
            out[0] = g.choice((0.0, 0.3) if "now_s" in BY_RULE_NAMES.get(rule.__name__, ()) else (0.0, 0.3, 1e300, nan))
    return tuple(out)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.__module__.split('.')[-1]}.{rule.__name__}")
def test_a_rule_has_the_same_bits_in_python_and_compiled(rule) -> None:
    names = ", ".join(signature(rule).parameters)
    scope = {"rule": rule}
    exec(f"def call({names}): return rule({names})", scope)
    call, g = dispatched_by(KernelDispatcher)(scope["call"]), random.Random(rule.__name__)
    for _ in range(200):
        arguments = arguments_of(rule, g)
        assert bits_of(call(*arguments)) == bits_of(rule(*arguments)), arguments


def test_a_first_instant_sends_nothing_and_a_rounding_error_costs_no_bit() -> None:
    assert visits.bits_sent(0.0, 800, 1.0, inf) == 0
    assert visits.bits_sent(1e-300, 800, 1.0, inf) == 800
    assert (0.6 - 0.1) * 9600 == 4800.0
    assert visits.bits_sent(0.7 - 0.2, 9600, 1.0, 9600.0) == 4800
    assert 0.7 - 0.2 < 0.5  # 4799.999... bits
    assert visits.bits_sent(0.5, 800, 1.25, 1000.0) == 400
    assert visits.flow_bits_sent(500.0, 800, 1.25) == 400


def test_the_phase_of_a_dropout_follows_the_probabilities_in_order() -> None:
    dropout = visits.Dropout(0.1, 0.2, 0.3)
    phases = [visits.drop_phase(u, dropout) for u in (0.05, 0.1, 0.29, 0.31, 0.59, 0.61)]
    assert phases == [
        visits.BEFORE,
        visits.IN_COMPUTE,
        visits.IN_COMPUTE,
        visits.IN_UPLOAD,
        visits.IN_UPLOAD,
        visits.NO_DROP,
    ]


def test_events_of_one_instant_are_ordered_by_kind_then_keyed_number_then_client() -> None:
    kinds = (
        closing.FLOW_END,
        closing.PROGRESS,
        closing.ARRIVAL,
        closing.BREAK,
        closing.OFFLINE,
        closing.DEADLINE,
        closing.MERGE,
        closing.OPENING,
    )
    ranks = [
        closing.rank(kind, tie, client) for kind in (*kinds, closing.SHARING) for tie in (0, 9) for client in (0, 3)
    ]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) == len(ranks)
    assert {closing.kind_of(r) for r in ranks} == set(range(1, 10))
    assert {closing.number_of(r) for r in ranks} == {0, 3}


def test_a_repeated_answer_does_not_close_a_round_and_a_new_answer_of_now_does() -> None:
    assert not closing.closes_now(5.0, 5.0, 5.0, 1)
    assert closing.closes_now(5.0, inf, 5.0, 1)
    assert closing.closes_now(inf, inf, 5.0, 0)
    assert closing.first_closing_s(-1.0, 3.0) == 3.0


def test_the_kernel_cache_follows_the_rules(tmp_path) -> None:
    """A kernel that calls a rule is compiled again when the rule's file was edited, and only then."""
    shutil.copytree(
        Path(fedsim.__file__).parent, tmp_path / "fedsim", ignore=shutil.ignore_patterns("__pycache__", "*.md")
    )
    (tmp_path / "fedsim" / "kernels" / "probe.py").write_text(
        "from fedsim.kernels.cache import jit\nfrom fedsim.kernels.clock import compiled_rules\nfrom fedsim.rules import closing\n\n\n"
        "@jit\ndef due(round, every):\n    return closing.merge_due(round, every)\n"
    )
    code = "from fedsim.kernels.probe import due; print(due(6, 3), due(6, 4), sum(due.stats.cache_hits.values()))"

    def output() -> str:
        own = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        command = [sys.executable, "-B", "-c", code]
        return subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, text=True, check=True).stdout

    assert output() == "True False 0\n"
    assert output() == "True False 1\n"
    rule = tmp_path / "fedsim" / "rules" / "closing.py"
    rule.write_text(rule.read_text().replace("round % every == 0", "round % every == 2"))
    assert output() == "False True 0\n"
