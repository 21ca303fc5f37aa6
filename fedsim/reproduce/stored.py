"""Stored verdicts of forms that take long: `scenarios/papers/<paper>/results/<figure>.json`.

A file has the rows of one run of a figure with the date, version and machine, and digests of each claim, of the
scenario and of the code. A verdict whose digests differ from today's belongs to an older version and is not counted.

Digests ignore comments, docstrings and layout. The code is that of the scenario's algorithm, problem, participation
and codec, of all metrics and of the predicates, with what they import; the engine and the kernels are covered by the
pinned results of the tests.
"""

from __future__ import annotations

import ast
import json
import platform
from collections.abc import Iterable, Sequence
from dataclasses import astuple, replace
from datetime import UTC, datetime
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import fedsim
from fedsim.code_digest import imported_sources
from fedsim.errors import CorruptData
from fedsim.reproduce.claims import Claim
from fedsim.reproduce.figures import Figure
from fedsim.results import write_atomic
from fedsim.results.checksums import parsed

FORMAT = "fedsim-verdicts-1"
CODE = ("fedsim.algorithms", "fedsim.problems", "fedsim.metrics", "fedsim.rng", "fedsim.participation", "fedsim.codecs")
JUDGING = ("fedsim.reproduce.predicates", "fedsim.reproduce.judging", "fedsim.reproduce.studies")
Row = dict[str, Any]


def file_of(figure: Figure) -> Path:
    return figure.path.parent / "results" / f"{figure.name}.json"


def store(figure: Figure, form: str, rows: Sequence[Row], real_s: float) -> Path:
    """Write the rows of a form that has run, with what identifies it."""
    own = digests(figure, form)
    claims = {claim.id: claim_digest(claim) for claim in figure.claims}
    content = {
        "format": FORMAT, "paper": figure.paper, "figure": figure.name, "form": form,
        "date": datetime.now(UTC).date().isoformat(), "version": fedsim.__version__,
        "machine": f"{platform.machine()}, Python {platform.python_version()}", "real_s": round(real_s, 1),
        "digests": own,
        "rows": [{**row, "digest": claims[row["claim"]]} for row in rows if row["verdict"] != "not run"],
    }  # fmt: skip
    file = file_of(figure)
    file.parent.mkdir(exist_ok=True)
    write_atomic(file, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())
    return file


def load_stored(figure: Figure) -> dict[str, Row]:
    """Return the stored row of each claim with `date`, `version` and `current`; none without a file."""
    try:
        content: Any = parsed(file_of(figure))
    except FileNotFoundError:
        return {}
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CorruptData(f"{file_of(figure)} holds no stored verdicts; remove it")
    current = content["digests"] == digests(figure, content["form"])
    claims = {claim.id: claim_digest(claim) for claim in figure.claims}
    facts = {name: content[name] for name in ("date", "version", "machine")}
    return {
        row["claim"]: {**row, **facts, "current": current and row["digest"] == claims.get(row["claim"])}
        for row in content["rows"]
    }


def claim_digest(claim: Claim) -> str:
    """Return a digest of a claim without its history."""
    return _digest([astuple(replace(claim, history=()))])


def digests(figure: Figure, form: str) -> dict[str, str]:
    """Return the digests of the scenario and of the code behind a form of a figure."""
    source = figure.path.read_text(encoding="utf-8")
    beside = imported_sources(source)
    scenario = _digest(
        [_meaning(source), *(_meaning(path.read_text()) for path in beside.values()), figure.sweep(form)]
    )
    modules = set(JUDGING)
    if figure.file is not None:
        grid, fixed = figure.sweep(form)
        built = figure.file.build({**fixed, **{name: values[0] for name, values in grid.items()}})
        parts = (getattr(built, name, None) for name in ("problem", "algorithm", "participation"))
        modules |= {type(part).__module__ for part in parts if type(part).__module__.startswith("fedsim.")}
    return {"scenario": scenario, "code": _digest(_meaning(path.read_text()) for path in _closure(modules))}


def _closure(modules: Iterable[str]) -> list[Path]:
    """Return the files of these modules and of all modules in CODE that they import, ordered by name."""
    found: dict[str, Path] = {}
    todo = list(modules)
    while todo:
        name = todo.pop()
        path = _file(name)
        if name in found or path is None:
            continue
        found[name] = path
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(CODE):
                todo += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [found[name] for name in sorted(found)]


def _file(module: str) -> Path | None:
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:  # a function's name
        return None
    return Path(spec.origin) if spec is not None and spec.origin else None


def _meaning(source: str) -> str:
    """Return the syntax tree of a source without docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = node.body[1:]
    return ast.dump(tree)


def _digest(parts: Iterable[object]) -> str:
    digest = blake2b(digest_size=8)
    for part in parts:
        digest.update(repr(part).encode() + b"\0")
    return digest.hexdigest()
