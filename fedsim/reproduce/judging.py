"""Verdicts on claims, what a judge returns, and the decorator that registers a judge.

    @judge("fig1b-level-alpha-0", alpha=0.0)   # the keywords are arguments of the judge
    @judge("fig1b-level-alpha-1", alpha=1.0)
    def level(study, alpha):
        return within_range(per_seed(study, "w2", alpha=alpha), 5e-4, 2e-3)

A judge without the argument `study` uses no runs, such as one that evaluates exact moments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from fedsim.errors import InvalidInput

Verdict = Literal["refuted", "not held", "inconclusive", "held", "not comparable", "not run"]
VERDICTS: tuple[Verdict, ...] = ("refuted", "not held", "inconclusive", "held", "not comparable", "not run")
COUNTED: tuple[Verdict, ...] = VERDICTS[:4]


@dataclass(frozen=True)
class Outcome:
    """The result of judging a claim.

    `seeds` is the number of independent seeds behind `interval`, None for exact values. `change` is what would change
    the verdict.
    """

    verdict: Verdict
    ours: str
    published: str = ""
    interval: tuple[float, float] | None = None
    seeds: int | None = None
    change: str = ""
    why: str = ""

    def because(self, why: str) -> Outcome:
        """Return this outcome with the reason that explains it."""
        return replace(self, why=f"{self.why} {why}".strip())

    def refuted(self, proof: str) -> Outcome:
        """Return "refuted" in place of "not held", with the proof; a claim that holds stays held.

        Only exact values refute: an interval over seeds is no proof.
        """
        if self.seeds is not None:
            raise InvalidInput(f"refuted({proof!r}): the outcome is a sample of {self.seeds} seeds; use exact values")
        return replace(self, verdict="refuted", why=proof) if self.verdict == "not held" else self


def every(outcomes: Mapping[str, Outcome]) -> Outcome:
    """Return the conjunction of outcomes: held if each is held, not held if any is not."""
    found = [one.verdict for one in outcomes.values()]
    order: tuple[Verdict, ...] = ("not held", "refuted", "not comparable", "not run", "inconclusive")
    return _joined(outcomes, next((verdict for verdict in order if verdict in found), "held"))


def some(outcomes: Mapping[str, Outcome]) -> Outcome:
    """Return the disjunction of outcomes: held if any is held, not held if none can be."""
    found = [one.verdict for one in outcomes.values()]
    order: tuple[Verdict, ...] = ("held", "inconclusive", "not run", "not comparable")
    return _joined(outcomes, next((verdict for verdict in order if verdict in found), "not held"))


def _joined(outcomes: Mapping[str, Outcome], verdict: Verdict) -> Outcome:
    if not outcomes:
        raise InvalidInput("no outcomes to combine; give at least one")
    counts = [one.seeds for one in outcomes.values() if one.seeds is not None]
    only = next(iter(outcomes.values())) if len(outcomes) == 1 else None

    def joined(name: str) -> str:
        parts = {key: getattr(one, name) for key, one in outcomes.items() if getattr(one, name)}
        same = len(set(parts.values())) == 1 and len(parts) == len(outcomes)
        return next(iter(parts.values())) if same else "; ".join(f"{key}: {text}" for key, text in parts.items())

    return Outcome(
        verdict, joined("ours"), joined("published"), only.interval if only else None, min(counts) if counts else None,
        joined("change"), joined("why"),
    )  # fmt: skip


Function = TypeVar("Function", bound=Callable[..., Any])


def judge(id: str, **arguments: object) -> Callable[[Function], Function]:
    """Register a function as the judge of a claim, to be called with these arguments."""

    def register(function: Function) -> Function:
        own: dict[str, dict[str, object]] = function.__dict__.setdefault("judges", {})
        if id in own:
            raise InvalidInput(f"judge({id!r}): {function.__name__} judges this claim already; remove one of them")
        own[id] = arguments
        return function

    return register


@dataclass(frozen=True)
class Judge:
    """A registered judge of one claim."""

    id: str
    function: Callable[..., Any]
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def needs_study(self) -> bool:
        return "study" in inspect.signature(self.function).parameters

    def __call__(self, study: object) -> Outcome:
        found = self.function(**self.arguments, **({"study": study} if self.needs_study else {}))
        if not isinstance(found, Outcome):
            raise InvalidInput(f"the judge of {self.id} returned {type(found).__name__}; return an outcome")
        return found


def judges_of(names: Mapping[str, Any]) -> dict[str, Judge]:
    """Return the judges among the names of a figure file by claim."""
    found: dict[str, Judge] = {}
    for function in dict.fromkeys(value for value in names.values() if inspect.isfunction(value)):
        for id, arguments in getattr(function, "judges", {}).items():
            if id in found:
                raise InvalidInput(f"the claim {id!r} has two judges; remove one of them")
            found[id] = Judge(id, function, arguments)
    return found
