"""`fedsim reproduce`: the papers' claims as a table, figure by figure as they are done."""

from __future__ import annotations

from pathlib import Path

from fedsim.analysis import units
from fedsim.cli.report import report
from fedsim.cli.run import voices
from fedsim.cli.stopping import stopping
from fedsim.errors import InvalidInput
from fedsim.reproduce.run import CLAIMS, FigureProgress, Verdict
from fedsim.reproduce.run import reproduce as carry_out

WORDS = {True: "held", False: "not held", None: "not run"}
COLUMN = 10


def reproduce(asked: str | None, *, quick: bool, full: bool, jobs: int | None, out: Path | None, quiet: bool) -> int:
    """Judge the claims of what is asked; the exit code says whether all of it ran, not whether it held."""
    if quick and full:
        raise InvalidInput("--quick and --full: choose one of them (without either it is --quick)")
    form = "full" if full else "quick"
    out = out if out is not None else Path("runs") / f"reproduce-{form}"
    say, _ = voices(quiet)
    wide = units.width()

    def tell(progress: FigureProgress) -> None:
        if progress.verdicts is None:
            say(f"{progress.figure.paper}/{progress.figure.name}  {units.many(progress.runs, 'run')}")
            return
        lines = [line for verdict in progress.verdicts for line in claim_lines(verdict, wide)]
        title = units.wrapped(
            f"{progress.figure.paper}/{progress.figure.name}  {progress.figure.title}", wide, indent=2
        )
        if progress.not_drawn:
            lines += units.wrapped(f"  not drawn: {progress.not_drawn}", wide, indent=4)
        say(*title, *lines, f"  {units.seconds(progress.real_s)}", "")

    with stopping() as stop:
        verdicts, failures = carry_out(asked, out=out, form=form, jobs=jobs, observer=tell, stop=stop)
    say(*count_lines(verdicts), f"claims  {out / CLAIMS}", f"page    {_page(out)}")
    for failure in failures:
        say(f"failed  {failure}")
    return 1 if failures else 0


def _page(out: Path) -> str:
    """The path of the page about all claims, or what it needs."""
    try:
        return str(report([out]))
    except InvalidInput as error:
        return str(error)


def claim_lines(verdict: Verdict, wide: int) -> list[str]:
    """A row of the table: verdict and claim, then our figure, the paper's, and why where they differ."""
    word = WORDS[verdict["held"]]
    expected = "" if verdict["expected"] == "holds" else f" [{verdict['expected']}]"
    rows = [f"  {word:{COLUMN}}{verdict['claim']}{expected}"]
    pad = " " * (COLUMN + 2)
    if verdict["ours"]:
        rows.append(f"{pad}ours       {verdict['ours']}")
    rows.append(f"{pad}published  {verdict['published']}")
    if verdict["held"] is not True or verdict["expected"] != "holds":
        rows.append(f"{pad}why        {verdict['why']}")
    return [
        line for i, row in enumerate(rows) for line in units.wrapped(row, wide, indent=COLUMN + (2 if i == 0 else 13))
    ]


def count_lines(verdicts: list[Verdict]) -> list[str]:
    """How many claims held, of those that can and of the others."""
    count = {word: sum(v["held"] is held for v in verdicts) for held, word in WORDS.items()}
    can = [v for v in verdicts if v["expected"] == "holds" and v["held"] is not None]
    held = sum(v["held"] for v in can)
    return [
        f"{units.many(len(verdicts), 'claim')}: " + ", ".join(f"{n} {word}" for word, n in count.items()),
        f"of {len(can)} that can hold and were run, {held} did",
    ]
