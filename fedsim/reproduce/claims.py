"""Claims: sentences of the papers and the criterion of each, read from `scenarios/papers/<paper>/claims.toml`."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fedsim.errors import InvalidInput
from fedsim.scenario_file import scenarios_folder

KINDS = ("superiority", "equivalence", "rate", "count", "exact", "refuted", "not-at-hand")


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper and the criterion of what it claims.

    `figure` is the figure file that has the runs, or "". `seen_before` is True where the outcome was known when the
    criterion was written; `history` has earlier wordings, settings and limits.
    """

    id: str
    figure: str
    quote: str
    where: str
    metric: str
    comparison: str
    tolerance: str | float
    reason: str
    kind: str
    seen_before: bool
    history: tuple[str, ...]


KEYS = tuple(field.name for field in fields(Claim))


def papers() -> dict[str, Path]:
    """Return the file of claims of each paper."""
    return {file.parent.name: file for file in sorted((scenarios_folder() / "papers").glob("*/claims.toml"))}


def load(paper: str) -> tuple[Claim, ...]:
    """Return a paper's claims, in the order of its file."""
    known = papers()
    if paper not in known:
        raise InvalidInput(f"load({paper!r}): this paper has no claims.toml; choose among {', '.join(known)}")
    return read(known[paper])


def read(file: Path) -> tuple[Claim, ...]:
    """Read and check a file of claims; figures are the files beside it."""
    name = f"{file.parent.name}/{file.name}"
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{name}: not valid TOML ({error}); correct it") from None
    tables = content.get("claim")
    if set(content) != {"claim"} or not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        raise InvalidInput(f"{name}: it must have [[claim]] tables and nothing else")
    found = tuple(_claim(f"{name}: claim {number}", table) for number, table in enumerate(tables, 1))
    figures = {path.stem for path in file.parent.glob("[!_]*.py")}
    for claim in found:
        if claim.figure and claim.figure not in figures:
            raise InvalidInput(
                f"{name}: {claim.id}: figure {claim.figure!r} has no file; choose among "
                f"{', '.join(sorted(figures))}, or give ''"
            )
    if twice := [id for id, count in Counter(claim.id for claim in found).items() if count > 1]:
        raise InvalidInput(f"{name}: the id {twice[0]!r} occurs more than once; ids must differ")
    return found


def _claim(where: str, table: Mapping[str, Any]) -> Claim:
    """Check one table; runs of white space become one space."""
    where = f"{where} ({table['id']})" if isinstance(table.get("id"), str) else where
    if missing := [key for key in KEYS if key not in table]:
        raise InvalidInput(f"{where}: the key {missing[0]!r} is missing; add it")
    if unknown := [key for key in table if key not in KEYS]:
        raise InvalidInput(f"{where}: unknown key {unknown[0]!r}; the keys are {', '.join(KEYS)}")
    own: dict[str, Any] = {
        key: " ".join(value.split()) if isinstance(value, str) else value for key, value in table.items()
    }
    for key in KEYS:
        number = key == "tolerance" and isinstance(own[key], int | float) and not isinstance(own[key], bool)
        if key not in ("seen_before", "history") and not number and not isinstance(own[key], str):
            raise InvalidInput(f"{where}: {key} is {own[key]!r}; give text{' or a number' * (key == 'tolerance')}")
        if own[key] == "" and key != "figure":
            raise InvalidInput(f"{where}: {key} is empty; fill it in")
    if own["kind"] not in KINDS:
        raise InvalidInput(f"{where}: kind is {own['kind']!r}; choose among {', '.join(KINDS)}")
    if not isinstance(own["seen_before"], bool):
        raise InvalidInput(f"{where}: seen_before is {own['seen_before']!r}; give true or false")
    history = own.pop("history")
    if not isinstance(history, list) or not all(isinstance(text, str) and text.strip() for text in history):
        raise InvalidInput(f"{where}: history is {history!r}; give a list of sentences, or []")
    return Claim(**own, history=tuple(" ".join(text.split()) for text in history))


NOT_RUN, NOT_RUN_KEYS = "not_run.toml", ("cost", "not_comparable", "not_at_hand")


def not_run(paper: str) -> dict[str, tuple[str, str]]:
    """Return {id: (verdict, reason)} of the claims that a paper's `not_run.toml` gives up; none without the file.

    The file has up to three tables of `id = "reason"`: [cost] with the measured or extrapolated cost, [not_comparable],
    and [not_at_hand] for missing data.
    """
    file = papers()[paper].with_name(NOT_RUN)
    if not file.is_file():
        return {}
    name = f"{paper}/{NOT_RUN}"
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{name}: not valid TOML ({error}); correct it") from None
    known, found = {claim.id for claim in load(paper)}, {}
    for key, table in content.items():
        if key not in NOT_RUN_KEYS or not isinstance(table, dict):
            raise InvalidInput(f"{name}: unknown table {key!r}; the tables are {', '.join(NOT_RUN_KEYS)}")
        for id, reason in table.items():
            if id not in known or id in found:
                raise InvalidInput(f"{name}: {id!r} is no claim of {paper}, or is given twice; correct it")
            if not isinstance(reason, str) or not reason.strip():
                raise InvalidInput(f"{name}: {id} has no reason; give a sentence")
            found[id] = ("not comparable" if key == "not_comparable" else "not run", " ".join(reason.split()))
    return found
