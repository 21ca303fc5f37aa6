"""Pages that are made from the code and the files beside it: contents, API, commands, changelog, citation."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterable
from types import ModuleType

import fedsim as fs
from fedsim.docs import gallery, papers
from fedsim.docs.cells import output
from fedsim.docs.sources import PAGES, SECTIONS, Section, places

CLONE = PAGES.parents[1]  # what a wheel does not have is left out: changelog, citation
CLASS = """{{ objname | escape | underline }}

.. currentmodule:: {{ module }}

.. autoclass:: {{ objname }}
   :members:
"""
MODULE = """{{ objname | escape | underline }}

.. automodule:: {{ fullname }}
   :members:
"""
TITLES = {  # short titles, for the lists of pages
    "gallery": "Gallery", "papers": "Papers and claims", "api": "API by task", "cli": "Commands",
    "changelog": "Changelog", "cite": "Cite", "frameworks": "Compare with other tools", "speed": "Benchmarks",
    "glossary": "Glossary", "troubleshooting": "Troubleshooting", "virtual-time": "Virtual time",
    "exactness": "What is exact", "determinism": "Determinism", "decisions": "Decisions about the papers",
    "refutations": "Refutations", "combinations": "Combinations", "install": "Installation", "first-run": "First run",
}  # fmt: skip
TASKS: tuple[tuple[str, str, tuple[str, ...]], ...] = (  # title, sentence, names or modules of fs
    ("Describe a scenario", "The frozen record of everything that a run depends on.",
     ("Scenario", "Budget", "Target", "Record", "initial", "schedules")),
    ("Choose a problem and its data", "What the clients hold and what they minimise or sample.", ("problems", "data")),
    ("Choose an algorithm", "Optimisers, samplers and references.", ("algorithms",)),
    ("Describe the network", "Links with bandwidth, latency and loss, and who exchanges models.",
     ("Network", "network", "topologies", "exchanges")),
    ("Describe devices and participation", "How long clients compute, when they are online, whom a round selects.",
     ("devices", "participation")),
    ("Compress and account for privacy", "What is on the wire, and what it reveals.", ("codecs", "privacy")),
    ("Measure", "Columns of accuracy, calibration and distance to the posterior.", ("metrics",)),
    ("Run", "One scenario, on this machine or on Ray.", ("run", "arun", "Inline", "Ray", "load", "replay", "Result")),
    ("Sweep and tune", "Many settings of one scenario file.", ("sweep", "tune", "Study")),
    ("Analyse", "Tables, figures and pages from results.", ("analysis",)),
    ("Run a Flower app", "An unmodified app on the virtual clock.", ("flower",)),
    ("Write your own parts", "Contracts and the suite that checks them.", ("protocols", "testing", "explain")),
    ("Handle errors", "The exceptions that fedsim raises on purpose.", ("errors",)),
)  # fmt: skip


def pages() -> dict[str, str]:
    """Return the generated pages by the path of their source."""
    made: dict[str, str] = {"cli.md": cli(), "changelog.md": changelog(), "cite.md": cite(), "papers.md": papers.page()}
    return {**made, **gallery.pages(), **api()}


def slug(section: Section) -> str:
    """Return the name of a section's own page."""
    return "section-" + re.sub(r"\W+", "-", section.title.lower())


def index(titles: dict[str, str]) -> str:
    """Return the first page: the question, and all sections with their pages."""
    lines = ["# fedsim", "", (fs.__doc__ or "").split("\n")[0], ""]
    lines += ["It executes the actual algorithms on a virtual clock, so one run measures accuracy, uncertainty,"]
    lines += ["communication and time together. Begin with [the installation](start/install.md) and"]
    lines += ["[the first run](start/first-run.md).", ""]
    for section in SECTIONS:
        lines += [f"## {section.title}", "", *_links(section, titles), ""]
    lines += ["```{toctree}", ":hidden:", ":maxdepth: 2", "", *(slug(section) for section in SECTIONS), "```"]
    return "\n".join(lines) + "\n"


def contents(section: Section, titles: dict[str, str]) -> str:
    """Return the page of a section: the list of its pages."""
    known = places()
    listed = [f"{_title(topic, titles)} <{known[topic]}>" for topic in section.pages]
    return "\n".join([f"# {section.title}", "", "```{toctree}", ":maxdepth: 1", "", *listed, "```", ""])


def _title(topic: str, titles: dict[str, str]) -> str:
    return TITLES[topic] if topic in TITLES else titles[topic]


def _links(section: Section, titles: dict[str, str]) -> list[str]:
    known = places()
    return [f"- [{_title(topic, titles)}]({known[topic]}.md)" for topic in section.pages]


# --- API, commands, changelog, citation --------------------------------------------------------------


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|$#~^])", r"\\\1", text)


def api() -> dict[str, str]:
    """Return a page for each task with a summary table, and the list of tasks."""
    made = {}
    tasks = []
    for title, sentence, names in TASKS:
        place = "api/" + re.sub(r"\W+", "-", title.lower())
        tasks.append(f"{title} <{place}>")
        lines = [f"# {title}", "", sentence, ""]
        modules = [name for name in names if inspect.ismodule(getattr(fs, name))]
        if single := [name for name in names if name not in modules]:
            lines += _summary(f"fedsim.{name}" for name in single)
        for name in modules:
            module = getattr(fs, name)
            lines += [f"## fs.{name}", "", _escaped((module.__doc__ or "").split("\n")[0]), ""]
            lines += _summary(f"fedsim.{name}.{member}" for member in members(module))
        made[f"{place}.md"] = "\n".join(lines)
    head = [
        "# API by task",
        "",
        "`import fedsim as fs`; names load on first use.",
        "",
        "```{toctree}",
        ":maxdepth: 1",
        "",
    ]
    return {"api.md": "\n".join([*head, *tasks, "```", ""]), **made}


def _summary(names: Iterable[str]) -> list[str]:
    """Return a table of names with the first lines of their docstrings, and a page for each."""
    head = ["```{eval-rst}", ".. autosummary::", "   :toctree: names", "   :nosignatures:", ""]
    return [*head, *(f"   ~{name}" for name in names), "```", ""]


def members(module: ModuleType) -> list[str]:
    """Return the documented functions, classes and modules that a module exports."""
    named = getattr(module, "__all__", None)
    if named is None:
        named = [n for n, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    values = {n: getattr(module, n) for n in named if not n.startswith("_")}
    kinds = (inspect.isfunction, inspect.isclass, inspect.ismodule)
    return [n for n, value in values.items() if value.__doc__ and any(kind(value) for kind in kinds)]


def cli() -> str:
    """Return the help of every command."""
    listing = "import typer; from fedsim.cli.app import app; print(*typer.main.get_command(app).commands)"
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)
    lines = [
        ("fedsim", "fedsim --help"),
        *((f"fedsim {name}", f"fedsim {name} --help") for name in done.stdout.split()),
    ]
    return "# Commands\n\n" + "\n".join(f"## {name}\n\n```text\n{output(line).rstrip()}\n```\n" for name, line in lines)


def changelog() -> str:
    """Return the changelog of the clone."""
    path = CLONE / "CHANGELOG.md"
    return path.read_text(encoding="utf-8") if path.is_file() else "# Changelog\n\nIt is in the source repository.\n"


def cite() -> str:
    """Return how to cite fedsim, and the papers whose algorithms it executes."""
    path = CLONE / "CITATION.cff"
    facts = path.read_text(encoding="utf-8") if path.is_file() else f"title: fedsim\nversion: {fs.__version__}\n"
    head = "# Cite\n\nCite fedsim, and the paper of the algorithm that you run. `CITATION.cff` in the repository:\n\n"
    return f"{head}```yaml\n{facts}```\n\n## References\n\n```{{bibliography}}\n:all:\n```\n"
