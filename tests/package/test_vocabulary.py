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

# Parts of identifiers (split at "_" and at capitals), and what replaces them.
IDENTIFIERS = {
    "fold folds folded folding": "aggregate",
    "stretch stretches stretched": "block of rounds, or loss_factor",
    "alike": "block of rounds",
    "heard told": "received",
    "whoever somebody nobody everybody anybody": "clients, selected, all_clients",
    "presence": "availability",
    "kept": "local_only",
    "reach": "broadcast_to",
    "seal seals sealed": "checksum",
    "whole": "complete, or check_int",
    "refer refers referred": "fall back",
    "cramped": "needs_growth",
    "settle settles settled": "commit",
    "mend mends tidy forget forgets": "repair, clean, remove",
    "plan planner race advice knob knobs": "tune, Tuner, Recommendation, parameter",
    "board": "LiveTable",
    "dear dearer": "expensive",
    "anew": "again",
}
# Full names of modules, classes, functions, parameters and attributes: their parts have an ordinary meaning.
NAMES = {
    "Arrived": "Received",
    "Completed completed": "WithDefaults, with_defaults",
    "as_arrays": "to_columns",
    "many_rounds rounds_alike partial_rounds": "block of rounds",
    "ahead AHEAD made_ahead run_ahead jobs_ahead": "lookahead, prefetch",
    "copies": "unselected_broadcasts, or messages",
    "one_of positive quoted": "check_choice, check_positive, short_repr",
    "own_code": "code_digest",
    "skip": "timing_only",
}
# The same in folders where the words have no ordinary meaning.
NAMES_IN = {
    "fedsim/cli": {"leave leaving": "exit", "vary spend within": "grid, minimize, limits"},
    "fedsim/kernels": {"plane narrow wide": "dim2, small_dim, large_dim"},
    "fedsim/running": {"leave leaving": "exit"},
    "fedsim/runtime": {"leave leaving": "exit"},
    "fedsim/sweeps": {"vary spend within": "grid, minimize, limits"},
}
# Prose: docstrings, comments, messages, help texts, pages. Regular expressions, whole words, in any case.
PROSE = {
    r"folds?|folded|folding": "aggregate",
    r"stretch(?:es|ed)?": "block of rounds, or loss factor",
    r"at a go|alike": "in one call, equal, the same",
    r"(?:made|runs?|ran|running|computed|simulated) ahead(?! of)": "prefetched",
    r"heard|heard of|told": "received",
    r"whoever|somebody|nobody|everybody|anybody": "no client, all clients, a user",
    r"so many": "k, the number of",
    r"presence": "availability",
    r"`kept`": "`local_only`",
    r"seals?|sealed": "checksum",
    r"(?<!as a )whole(?! numbers?\b)": "complete, all of",
    r"cramped": "needs growth",
    r"settles?|settled": "commit",
    r"mends?|tidy(?! (?:table|data))|tidies|tidied|forgets?": "repair, clean, remove",
    r"planner|advice|knobs?": "tuner, recommendation, parameter",
    r"board": "live table",
    r"dear|dearer": "expensive",
    r"anew": "again",
    r"compute=[\"']skip[\"']": "timing_only=True",
    r"say it|say so|says so|loses? its way|loses? their way|learns? of|believes?|tells?": "personified code",
}
# Words of the table in the vocabulary that have an ordinary second meaning, left to the reader: why.
ORDINARY = {
    "ahead": "sites that run ahead of each other",
    "answer": "what a user's `close` or `select` returns",
    "iterate": "a point of an optimiser; a verb of Python",
    "leave": "flows leave a link",
    "reach, refer, race, plan, spend, within, vary": "plain verbs and nouns in prose",
    "many rounds": "plain English in prose",
    "on, off, there, who": "prepositions and pronouns",
    "order": "of events, of clients, of replies",
    "own, role": "replies.own, and the role of a node of a network, are public names",
    "room, skip, shown, quoted, positive, copies, kept, completed": "plain words in prose; names are tested",
    "wide, narrow, plane": "plain words outside kernels",
}
# (file, word): the reason. At most 30; one that is not needed any more fails.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("fedsim/metrics/diagnostics.py", "folded"): "the folded split R-hat of Vehtari et al. (2021)",
}


class Found(NamedTuple):
    path: str
    line: int
    word: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word} -> {self.instead}"


def by_word(table: dict[str, str]) -> dict[str, str]:
    return {word: instead for words, instead in table.items() for word in words.split()}


PARTS = by_word(IDENTIFIERS)
PATTERNS = [
    (re.compile(rf"(?<![\w/.-])(?:{words})(?![\w-])".replace(" ", r"[ \n]"), re.IGNORECASE), instead)
    for words, instead in PROSE.items()
]


def parts(name: str) -> list[str]:
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def in_name(path: str, line: int, name: str) -> Iterator[Found]:
    names = by_word(NAMES)
    for folder, table in NAMES_IN.items():
        names |= by_word(table) if path.startswith(f"{folder}/") else {}
    if name in names:
        yield Found(path, line, name, names[name])
    for part in parts(name):
        if part in PARTS:
            yield Found(path, line, part if part == name else f"{part} in {name}", PARTS[part])


def in_prose(path: str, line: int, text: str) -> Iterator[Found]:
    flat = re.sub(r"\s+", lambda gap: "\n" * gap[0].count("\n") or " ", text)
    for pattern, instead in PATTERNS:
        for match in pattern.finditer(flat):
            yield Found(path, line + flat.count("\n", 0, match.start()), " ".join(match[0].lower().split()), instead)


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


def test_no_word_of_the_tables_is_used() -> None:
    found = [each for path in every_file() for each in in_file(path)]
    if wrong := [str(each) for each in found if not excepted(each)]:
        pytest.fail(f"{len(wrong)} words of the tables:\n" + "\n".join(wrong), pytrace=False)


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
