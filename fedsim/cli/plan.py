"""`fedsim plan`: the planner from the words on the command line to its answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedsim import settings as texts
from fedsim.analysis import units
from fedsim.cli.run import voices
from fedsim.cli.stopping import stopping
from fedsim.errors import InvalidInput
from fedsim.protocols import Runtime
from fedsim.runtime.ray import Ray
from fedsim.sweeps import Event
from fedsim.sweeps.planner import plan as search


def plan(
    file: str, goal: str, vary: Sequence[str], spend: str, within: Sequence[str], *, seeds: int, out: Path | None,
    given: Sequence[str], jobs: int | None, quiet: bool, runtime: Runtime,
) -> int:  # fmt: skip
    """Say what was found; the exit code is 1 if nothing reaches the goal within the limits."""
    knobs = {name: texts.axis(text) for name, text in texts.pairs(vary, "--vary").items()}
    limits = {name: _number(name, text) for name, text in texts.pairs(within, "--within").items()}
    say = voices(quiet)[0]

    def failed(event: Event) -> None:
        if event.state == "failed":
            say(f"failed  {event.order.run} {event.reason}")

    with stopping() as stop:
        advice = search(
            file, knobs, goal, spend, limits, out=out, settings=texts.pairs(given, "--set"), seeds=seeds, jobs=jobs,
            runtime=runtime if isinstance(runtime, Ray) else None, observers=(failed,), stop=stop,
            say=lambda line: say(f"try     {line}"),
        )  # fmt: skip
    lines = [piece for line in advice.lines() for piece in units.wrapped(line, units.width(), indent=8)]
    say("", *lines)
    if out is not None:
        say(f"kept    {out}", f"next    fedsim report {out}")
    return 0 if advice.met else 1


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"--within {name}={text}: give a number, such as {name}=3600") from None
