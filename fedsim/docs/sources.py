"""The sections of the manual, and its Markdown pages as sources for Sphinx.

A page is plain Markdown, which `fedsim explain` prints as it is. On the site

- a `python` block is executed and its output follows;
- a `python`, `toml` or `csv` block whose first line is `# file: NAME` is written to the page's working folder;
- the lines of an `sh` block are executed, and what they print follows;
- a `fedsim explain TOPIC` in code style is a link to that page.

Other blocks (`bash`, `text`, ...) are shown only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

PAGES = Path(__file__).parent
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n?", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# file: (\S+)\n")
LINK = re.compile(r"`fedsim\s+explain\s+([a-z][\w-]*)`")
IMPORT = re.compile(r"^\s*(?:import|from) (\w+)", re.MULTILINE)
EXTRAS = {"torch": "torch", "jax": "jax", "flwr": "flower", "dp_accounting": "privacy", "plotly": "report"}
NOTEBOOK = "---\nfile_format: mystnb\nkernelspec:\n  name: python3\n---\n\n"


@dataclass(frozen=True)
class Section:
    """A part of the manual: its title and its pages, in the order of reading."""

    title: str
    pages: tuple[str, ...]


SECTIONS = (
    Section("Start", ("install", "first-run", "time-to-accuracy")),
    Section(
        "Tutorials",
        (
            "stragglers", "asynchronous", "pytorch", "algorithm", "policy", "network", "gossip", "bayesian",
            "compression", "privacy", "sweeps", "hosts", "tuning", "flower-app",
        ),
    ),
    Section("How-to", ("slurm", "ray", "kuberay", "ci", "from-flower", "your-flower-app", "reproduce")),
    Section(
        "Explanation",
        ("virtual-time", "exactness", "determinism", "decisions", "refutations", "combinations"),
    ),
    Section("Your own parts", ("job", "replies", "view", "rng", "metric", "problem", "devices", "codec")),
    Section("Results", ("gallery", "papers", "frameworks", "speed")),
    Section("Reference", ("api", "cli", "troubleshooting", "glossary", "changelog", "cite")),
)  # fmt: skip
GENERATED = ("gallery", "papers", "api", "cli", "changelog", "cite")


def markdown() -> dict[str, Path]:
    """Return every page of the package by its topic."""
    return {page.stem: page for page in sorted(PAGES.rglob("*.md"), key=lambda path: path.stem)}


def places() -> dict[str, str]:
    """Return the place of every page on the site by its topic, without a suffix."""
    written = {topic: str(path.relative_to(PAGES).with_suffix("")) for topic, path in markdown().items()}
    return {**written, **{topic: topic for topic in GENERATED}}


def title(text: str) -> str:
    """Return the title of a page, without its topic."""
    found = text.splitlines()[0].removeprefix("# ").partition(": ")[2]
    return found if found.startswith("fedsim") else found[:1].upper() + found[1:]


def missing_extras(text: str) -> list[str]:
    """Return the extras that the blocks of a page need and that are not installed."""
    code = "\n".join(body for language, body in BLOCK.findall(text) if language in ("python", "sh"))
    modules = set(IMPORT.findall(code))
    if "fs.flower" in code or "fedsim flower" in code:
        modules.add("flwr")
    if "fedsim report" in code or ".report(" in code:
        modules.add("plotly")
    return sorted(EXTRAS[name] for name in modules if name in EXTRAS and find_spec(name) is None)


def source(topic: str, text: str) -> str:
    """Return a page as a source for Sphinx, with cells for what is executed."""
    body = text.partition("\n")[2]
    absent = missing_extras(text)
    head = f"# {title(text)}\n\n```{{rst-class}} shown-as\n```\n`fedsim explain {topic}` prints this page.\n"
    if absent:
        needed = ",".join(absent)
        note = f"Not executed in this build: `pip install 'fedsim-systems[{needed}]'` installs what it needs."
        return f"{head}\n:::{{warning}}\n{note}\n:::\n{linked(topic, body)}"
    cells = BLOCK.sub(lambda block: _cell(block[1], block[2], block[0]), linked(topic, body))
    return f"{NOTEBOOK if '{code-cell}' in cells else ''}{head}{cells}"


def linked(topic: str, text: str) -> str:
    """Return the text with a link for each `fedsim explain TOPIC`."""
    known = places()
    here = Path(known[topic]).parent

    def link(found: re.Match[str]) -> str:
        name = found[1]
        return f"[{found[0]}](/{known[name]}.md)" if name in known and name != topic else found[0]

    return "".join(part if part.startswith("```") else LINK.sub(link, part) for part in _parts(text)).replace(
        "](/", f"]({'../' * len(here.parts)}"
    )


def _parts(text: str) -> Iterator[str]:
    """Yield prose and blocks in turn."""
    end = 0
    for block in BLOCK.finditer(text):
        yield text[end : block.start()]
        yield block[0]
        end = block.end()
    yield text[end:]


def _cell(language: str, body: str, block: str) -> str:
    if found := FILE.match(body):
        hidden = f"from fedsim.docs.cells import write\nwrite({found[1]!r}, {body!r})"
        return block + _hidden(hidden)
    if language == "python":
        return "```{code-cell} ipython3\n" + body + "```\n"
    if language == "sh":
        return block + _hidden(f"from fedsim.docs.cells import commands\ncommands({body!r})")
    return block


def _hidden(code: str) -> str:
    return f"\n```{{code-cell}} ipython3\n:tags: [remove-input]\n\n{code}\n```\n"
