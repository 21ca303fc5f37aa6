"""Imports point down, heavy libraries stay where they belong, and `import fedsim` stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "fedsim"
FILES = sorted(p.relative_to(PACKAGE) for p in PACKAGE.rglob("*.py"))

LAYERS = (  # top to bottom; a module imports from rows below its own, and within a row from those to its right
    ("cli",),
    ("flower", "reproduce", "sweeps"),
    ("testing", "running", "docs"),
    ("scenario_file", "settings", "scenario", "scenario_checks"),
    ("engine",),
    ("runtime",),
    ("algorithms", "problems"),
    ("analysis",),
    (
        "exchanges", "topologies", "devices", "network", "participation", "budget", "privacy", "metrics", "data",
        "codecs", "initial", "schedules",
    ),
    ("kernels",),
    ("protocols", "rules", "rng", "results", "code_digest", "readers", "per_client", "checks", "text", "renamed", "errors", "arrays"),
)  # fmt: skip
UPWARD = {
    ("results", "analysis")
}  # a result shows itself, result.summary(), with what reads results; loaded when asked
HOMES = {
    "simpy": "engine/clock/simpy/",
    "ray": "runtime/ray",
    "numba": "kernels/",
    "cupy": "kernels/cuda/device.py",
    "torch": "problems/torch",
    "jax": "problems/jax.py",
    "flwr": "flower/",
}
LAZY = {"dp_accounting", "networkx", "numba", "pandas", "pyarrow", "ray", "matplotlib", "cupy", "torch", "jax", "flwr"}


def concept(path):
    """The module's place in the table: its first name below fedsim; None for fedsim/__init__.py itself."""
    return path.parts[0].removesuffix(".py") if path.name != "__init__.py" or len(path.parts) > 1 else None


def loaded(tree):
    """All nodes but those for type checkers alone: what is named there is never imported."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            yield node
            yield from loaded(node)


def imports_of(tree):
    """Every module named by an import, wherever it stands, with its line."""
    for node in loaded(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute here"
            yield node.module, node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def parsed(path):
    return ast.parse((PACKAGE / path).read_text(), str(path))


def place(name):
    """Where a concept stands: its row, and its position in the row."""
    return next((i, names.index(name)) for i, names in enumerate(LAYERS) if name in names)


def allowed(importer, imported):
    if importer == imported or (importer, imported) in UPWARD:
        return True
    return place(importer) < place(imported)


@pytest.mark.parametrize("path", FILES, ids=str)
def test_imports_point_down(path):
    importer = concept(path)
    if importer is None:  # the front door names everything, lazily
        return
    known = set().union(*LAYERS)
    assert importer in known, f"fedsim.{importer} has no layer yet; give it one here and in the design"
    for name, line in imports_of(parsed(path)):
        parts = name.split(".")
        if parts[0] != "fedsim" or len(parts) == 1:
            continue
        if parts[1] in known:
            assert allowed(importer, parts[1]), f"line {line}: fedsim.{importer} may not import fedsim.{parts[1]}"
        else:
            assert (PACKAGE / f"{parts[1]}.py").exists() is False, f"line {line}: fedsim.{parts[1]} has no layer"


def test_the_rule_can_be_broken():
    assert not allowed("rng", "kernels")
    assert not allowed("kernels", "problems")
    assert not allowed("analysis", "engine")
    assert not allowed("problems", "algorithms")
    assert not allowed("participation", "devices")
    assert allowed("algorithms", "problems")
    assert allowed("scenario", "engine")
    assert allowed("engine", "participation")


@pytest.mark.parametrize("library", HOMES)
def test_a_library_is_imported_only_in_its_home(library):
    users = {str(p) for p in FILES if any(name.split(".")[0] == library for name, _ in imports_of(parsed(p)))}
    assert all(user.startswith(HOMES[library]) for user in users), users
    assert users or library not in ("simpy", "numba")


@pytest.mark.parametrize("path", FILES, ids=str)
def test_heavy_libraries_are_imported_inside_functions(path):
    """At the top of a file they stand only under TYPE_CHECKING, or at home."""
    for node in parsed(path).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for name, line in imports_of(ast.Module([node], [])):
                library = name.split(".")[0]
                at_home = library in HOMES and str(path).startswith(HOMES[library])
                assert library not in LAZY or at_home, f"line {line}: import {library} inside the function that uses it"


@pytest.mark.parametrize("path", FILES, ids=str)
def test_nothing_draws_from_a_stateful_generator(path):
    if path == Path("flower/process_state.py"):  # seeds the generators of apps, and restores them
        return
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Attribute) and node.attr == "random" and isinstance(node.value, ast.Name):
            assert node.value.id not in ("np", "numpy", "cupy"), f"line {node.lineno}: use fedsim.rng"
    names = {name.split(".")[0] for name, _ in imports_of(parsed(path))}
    assert "random" not in names
    assert "secrets" not in names


@pytest.mark.parametrize("path", FILES, ids=str)
def test_no_result_depends_on_elementary_functions_that_numpy_has_for_each_cpu(path):
    """With AVX-512 NumPy rounds exp, log and powers in another way; `math` and fedsim's own functions do not."""
    shown_only = concept(path) in {"analysis", "reproduce", "cli", "sweeps"}  # they read results and change no run
    excluded = {
        Path("kernels/reference/qsgd.py"),  # expected lengths are a figure of a codec, no part of a run
        Path("privacy/accountant.py"),  # dp_accounting, which takes what is rounded here, uses NumPy's functions itself
    }
    if shown_only or path in excluded:
        return
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "np":
            varying = {"exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "power", "float_power", "cbrt"}
            assert node.attr not in varying, f"line {node.lineno}: use math, rng.elementary.log64 or an own function"


@pytest.mark.parametrize("path", FILES, ids=str)
def test_only_the_command_line_prints(path):
    if concept(path) != "cli":
        for node in ast.walk(parsed(path)):
            printing = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
            assert not printing, f"line {node.lineno}"


@pytest.mark.parametrize("path", [p for p in FILES if concept(p) == "kernels"], ids=str)
def test_kernels_keep_the_order_of_arithmetic(path):
    """fastmath and parallel loops would let a job's bits depend on its place in the batch."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.keyword) and node.arg in ("fastmath", "parallel"):
            assert isinstance(node.value, ast.Constant), f"line {node.value.lineno}"
            assert node.value.value is False, f"line {node.value.lineno}"


def loaded_by(code):
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; print(*sorted(sys.modules))"],
        capture_output=True, text=True, check=True, cwd=PACKAGE.parent, timeout=100,
    )  # fmt: skip
    return set(done.stdout.split())


def test_importing_fedsim_loads_nothing_heavy():
    heavy = {*LAZY, "scipy", "simpy", "typer", "rich", "arviz", "plotly", "torch", "threadpoolctl"}
    assert not heavy & loaded_by("import fedsim")


def test_a_scenario_can_be_written_without_loading_compilers_tables_or_clusters():
    code = (
        "import fedsim as fs; fs.Scenario(problem=fs.problems.GaussianMean([[[1.0], [2.0]]], [[1.0]]), "
        "algorithm=fs.algorithms.FALD(step_size=0.1), budget=fs.Budget(rounds=1))"
    )
    assert not {"numba", "pandas", "pyarrow", "ray", "matplotlib", "cupy", "torch"} & loaded_by(code)
