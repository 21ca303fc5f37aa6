"""The README runs as it stands; links, paths, topics and titles of all pages. The site's build runs the other pages."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

import fedsim
from fedsim.cli.app import call

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DOCS = ROOT / "fedsim" / "docs"
PAGES = {str(path.relative_to(ROOT)): path.read_text() for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]}
OTHERS = [ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "fedsim" / "engine" / "README.md"]
INSTALLING = (
    "python3 -m venv .venv && .venv/bin/pip install -e . && .venv/bin/fedsim run scenarios/quickstart.py",
    "python3 -m venv .venv && .venv/bin/pip install -e '.[test]' && .venv/bin/pytest",
)
EXTRAS = ("dp_accounting", "arviz", "plotly", "pooch", "cupy", "torch", "jax")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[str]:
    return [line for block in blocks(text, "sh") for line in block.splitlines() if line not in INSTALLING]


def test_python_blocks_run_and_print_what_the_readme_shows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the base installation alone."""
    for name in EXTRAS:
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    shared: dict[str, object] = {}
    for block in blocks(README, "python"):
        exec(compile(block, "README.md", "exec"), shared)
    assert blocks(README, "text")
    assert "".join(blocks(README, "text")) == capsys.readouterr().out


def test_commands_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    for line in commands(README):
        program, *arguments = shlex.split(line)
        assert program == "fedsim"
        assert call(arguments) == 0, line


@pytest.mark.parametrize("page", [page for page in PAGES if page != "README.md"])
def test_a_block_of_commands_holds_fedsim_commands(page: str) -> None:
    """The site's build runs them; what it cannot run, such as sbatch, is in a bash block."""
    lines = "\n".join(blocks(PAGES[page], "sh")).replace("\\\n", " ").splitlines()
    assert [line for line in lines if not line.startswith("fedsim ")] == []


def test_both_installation_lines_stand_in_the_readme_for_ci_to_run() -> None:
    lines = README.splitlines()
    assert [lines.count(line) for line in INSTALLING] == [1, 1]
    script = (ROOT / ".ci" / "run").read_text()
    ends = re.findall(r"\$\(line '(.*?)'\)", script)
    found = [line for end in ends for line in lines if re.search(rf"^python3 -m venv .*{end}$", line)]
    assert sorted(found) == sorted(INSTALLING)


@pytest.mark.parametrize("page", [*PAGES, *(str(path.relative_to(ROOT)) for path in OTHERS)])
def test_links_and_paths_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    linked = [(ROOT / page).parent / link for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", text)]
    named = [ROOT / path for path in re.findall(r"`((?:fedsim|scenarios|tests|analysis|\.ci)/[\w/.*-]*)`", text)]
    assert [str(path) for path in linked + named if not list(ROOT.glob(str(path.resolve().relative_to(ROOT))))] == []


def test_explain_topics_that_pages_name_exist() -> None:
    topics = {path.stem for path in DOCS.rglob("*.md")}
    assert len(topics) == len(list(DOCS.rglob("*.md"))), "two pages have the same stem"
    for page, text in PAGES.items():
        named = re.findall(r"fedsim\s+explain\s+([a-z][\w-]*)", text)
        assert [name for name in named if name not in topics] == [], page


@pytest.mark.parametrize("page", [page for page in PAGES if page != "README.md"])
def test_a_page_starts_with_its_topic_and_a_title_that_fits_the_list_of_topics(page: str) -> None:
    topic, _, title = PAGES[page].splitlines()[0].partition(": ")
    assert topic == f"# {Path(page).stem}"
    assert 0 < len(title) <= 64


def test_the_citation_names_this_release() -> None:
    version = re.search(r"^version: ([\d.]+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert version
    assert re.fullmatch(rf"{re.escape(version[1])}(\.dev\d+)?", fedsim.__version__)
    assert f"## [{version[1]}]" in (ROOT / "CHANGELOG.md").read_text()
