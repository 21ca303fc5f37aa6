"""One name for one thing: words that fedsim does not use, in identifiers, docstrings, comments, messages and pages."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]


class Row(NamedTuple):
    """A term of fedsim and the words that it replaces."""

    term: str
    parts: str = ""  # of identifiers, which are split at "_" and at capitals
    names: str = ""  # full identifiers, whose parts have an ordinary meaning
    prose: str = ""  # a regular expression of words and phrases, in any case
    only: str | tuple[str, ...] = "fedsim/"  # where its names are searched


TABLE = (
    Row("aggregate", parts="fold folds folded folding", prose=r"folds?|folded|folding"),
    Row("block of rounds, in one call", names="many_rounds rounds_alike partial_rounds", prose=r"at a go"),
    Row("block of rounds, or loss_factor", parts="stretch stretches stretched", prose=r"stretch(?:es|ed)?"),
    Row("the same, equal", parts="alike", prose=r"alike"),
    Row(
        "lookahead, prefetch",
        names="ahead AHEAD made_ahead run_ahead jobs_ahead",
        prose=r"(?:made|runs?|ran|running|computed|simulated) ahead(?! of)",
    ),
    Row("received", parts="heard told", names="Arrived", prose=r"heard|heard of|told"),
    Row(
        "no client, all clients, a user",
        parts="whoever somebody nobody everybody anybody",
        prose=r"whoever|somebody|nobody|everybody|anybody",
    ),
    Row("k, the number of", prose=r"so many"),
    Row("availability, online, offline", parts="presence", prose=r"presence"),
    Row("local_only", parts="kept", prose=r"`kept`"),
    Row("broadcast_to", parts="reach"),
    Row("unselected_broadcasts, or messages", names="copies"),
    Row("timing_only", names="skip", prose=r"compute=[\"']skip[\"']"),
    Row("with_defaults", names="Completed"),
    Row("to_columns", names="as_arrays"),
    Row("code_digest", names="own_code"),
    Row("checksum", parts="seal seals sealed", prose=r"seals?|sealed"),
    Row("complete, all of, or check_int", parts="whole", prose=r"(?<!as a )whole(?! numbers?\b)"),
    Row("fall back", parts="refer refers referred"),
    Row("needs_growth", parts="cramped", prose=r"cramped"),
    Row("check_choice, check_positive, short_repr", names="one_of positive quoted"),
    Row("commit", parts="settle settles settled", prose=r"settles?|settled"),
    Row(
        "repair, clean, publish, remove",
        parts="mend mends tidy forget forgets",
        prose=r"mends?|tidy(?! (?:table|data))|tidies|tidied|forgets?",
    ),
    Row("exit", names="leave leaving", only=("fedsim/cli/", "fedsim/running/", "fedsim/runtime/")),
    Row(
        "tune, Tuner, Recommendation, parameter",
        parts="plan planner race advice knob knobs",
        prose=r"planner|advice|knobs?",
    ),
    Row("grid, minimize, limits", names="vary spend within", only=("fedsim/cli/", "fedsim/sweeps/")),
    Row("LiveTable", parts="board", prose=r"board"),
    Row("dim2, small_dim, large_dim", names="plane narrow wide", only="fedsim/kernels/"),
    Row("expensive", parts="dear dearer", prose=r"dear|dearer"),
    Row("again", parts="anew", prose=r"anew"),
    Row(
        "a verb for code: store, return, print, raise",
        prose=r"say it|say so|says so|loses? its way|loses? their way|learns? of|believes?|tells?",
    ),
)
# Left out, because they have an ordinary second meaning; a reader decides:
# ahead (of each other: sites over gossip), answer (of a user's function), iterate (of an optimiser; a verb of Python),
# leave (flows leave a link), many rounds, on, off, there, who, order (of events and clients), own and role (public names
# of replies and of nodes); in prose also completed, copies, kept, narrow, plan, plane, positive, quoted, race, reach,
# refer, room, shown, skip, spend, vary, wide, within.
# (file, word): the reason. At most 30; one that is not needed any more fails.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("fedsim/metrics/diagnostics.py", "folded"): "the folded split R-hat of Vehtari et al. (2021)",
}


class Found(NamedTuple):
    path: str
    line: int
    word: str
    term: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word} -> {self.term}"


PARTS = {word: row.term for row in TABLE for word in row.parts.split()}
NAMES = [(row.only, name, row.term) for row in TABLE for name in row.names.split()]
PATTERNS = [
    (re.compile(rf"(?<![\w/.-])(?:{row.prose})(?![\w-])".replace(" ", r"[ \n]"), re.IGNORECASE), row.term)
    for row in TABLE
    if row.prose
]


def parts(name: str) -> list[str]:
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def in_name(path: str, line: int, name: str) -> Iterator[Found]:
    for folder, word, term in NAMES:
        if name == word and path.startswith(folder):
            yield Found(path, line, name, term)
    for part in parts(name):
        if part in PARTS:
            yield Found(path, line, part if part == name else f"{part} in {name}", PARTS[part])


def in_prose(path: str, line: int, text: str) -> Iterator[Found]:
    flat = re.sub(r"\s+", lambda gap: "\n" * gap[0].count("\n") or " ", text)
    for pattern, term in PATTERNS:
        for match in pattern.finditer(flat):
            yield Found(path, line + flat.count("\n", 0, match.start()), " ".join(match[0].lower().split()), term)


def defined(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Names of classes, functions, parameters, attributes and module constants, with their lines."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr
        if isinstance(node, ast.ClassDef | ast.Module):
            for statement in node.body:
                targets = statement.targets if isinstance(statement, ast.Assign) else []
                targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
                for target in targets:
                    for leaf in ast.walk(target):
                        if isinstance(leaf, ast.Name):
                            yield leaf.lineno, leaf.id


def comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def in_python(path: str, source: str) -> Iterator[Found]:
    tree = ast.parse(source)
    for line, name in defined(tree) if path.startswith("fedsim/") else ():  # not in scenarios, which are users' files
        yield from in_name(path, line, name)
    for line, comment in comments(source):
        yield from in_prose(path, line, comment)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.fullmatch(r"--[a-z-]+", node.value):
                yield from in_name(path, node.lineno, node.value.strip("-").replace("-", "_"))
            elif re.search(r"\s", node.value.strip()):
                yield from in_prose(path, node.lineno, node.value)


def in_path(path: str) -> Iterator[Found]:
    for step in Path(path).with_suffix("").parts:
        yield from in_name(path, 0, step.replace("-", "_"))


def every_file() -> list[Path]:
    files = [
        path
        for folder, kinds in (("fedsim", "py md js cu"), ("scenarios", "py"))
        for kind in kinds.split()
        for path in (ROOT / folder).rglob(f"*.{kind}")
        if "fedsim/scenarios" not in path.as_posix() and "__pycache__" not in path.parts
    ]
    return sorted([*files, ROOT / "README.md", ROOT / "CONTRIBUTING.md"])


def in_file(path: Path) -> list[Found]:
    name, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    inside = in_python(name, text) if path.suffix == ".py" else in_prose(name, 1, text)
    return [*in_path(name), *inside]


def excepted(found: Found) -> tuple[str, str] | None:
    keys = [(found.path, word) for word in re.split(r" in ", found.word)]
    return next((key for key in keys if key in EXCEPTIONS), None)


def test_no_word_of_the_table_is_used() -> None:
    found = [each for path in every_file() for each in in_file(path)]
    if wrong := [str(each) for each in found if not excepted(each)]:
        pytest.fail(f"{len(wrong)} words of the table:\n" + "\n".join(wrong), pytrace=False)


def test_exceptions_are_few_and_needed() -> None:
    used = {excepted(each) for path in every_file() for each in in_file(path)}
    assert len(EXCEPTIONS) <= 30
    assert [key for key in EXCEPTIONS if key not in used] == []


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def fold(x): pass", ["fold"]),
        ("class RunPlan:\n    many_rounds: int = 0", ["plan in RunPlan", "many_rounds"]),
        ("def f(own_code, *, a_kept=1): pass", ["own_code", "kept in a_kept"]),
        ("self.made_ahead = 1", ["made_ahead"]),
        ('def f():\n    """Return so\n    many."""', ["so many"]),
        ('raise E(f"{x}: nobody is on")', ["nobody"]),
        ("x = 1  # all at a go", ["at a go"]),
        ('option("--own-code", help="A whole number.")', ["own_code"]),
        ('x = "a whole folder"', ["whole"]),
        ("folder = unfolded = plane = kept", []),
        ("def folder(planet, copied, lookahead): pass", []),
        ('x = "Give a whole number; sites run ahead of each other."', []),
    ],
)
def test_the_scan_finds_words_as_parts_of_names_and_in_prose(source: str, words: list[str]) -> None:
    assert sorted(each.word for each in in_python("fedsim/example.py", source)) == sorted(words)


def test_the_scan_gives_the_line() -> None:
    (found,) = in_python("fedsim/example.py", 'def f():\n    """Return.\n\n    It is told so.\n    """')
    assert str(found) == "fedsim/example.py:4: told -> received"
