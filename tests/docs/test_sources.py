"""Pages become sources of the site: cells, files, commands and links; docstrings become reStructuredText."""

from __future__ import annotations

import json
import subprocess
import webbrowser
from pathlib import Path

import pytest

import fedsim as fs
from fedsim.cli.app import call
from fedsim.docs import cells, docstrings, generated, papers, sources
from fedsim.docs.sources import GENERATED, SECTIONS, markdown, places

PAGE = """# toy: try it

Read `fedsim explain policy` and `fedsim
explain job`.

```python
print(1)
```

```python
# file: a/study.py
x = 1
```

```sh
fedsim list
```

```bash
fedsim explain policy
```
"""


def test_every_page_is_in_one_section() -> None:
    listed = [topic for section in SECTIONS for topic in section.pages]
    assert sorted(listed) == sorted([*markdown(), *GENERATED])


def test_a_page_has_a_cell_for_each_block_that_is_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "places", lambda: {"toy": "tutorials/toy", **places()})
    text = sources.source("toy", PAGE)
    assert "# Try it\n" in text
    assert text.count("{code-cell}") == 3
    assert "```{code-cell} ipython3\nprint(1)\n```" in text
    assert "write('a/study.py', '# file: a/study.py\\nx = 1\\n')" in text
    assert "commands('fedsim list\\n')" in text
    assert "[`fedsim explain policy`](../tutorials/policy.md)" in text
    assert "(../job.md)" in text
    assert text.count("tutorials/policy.md") == 1, "a block has no links"


def test_a_page_whose_extra_is_missing_is_shown_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "find_spec", lambda name: None if name == "torch" else object())
    text = sources.source("pytorch", markdown()["pytorch"].read_text())
    assert "pip install 'fedsim-systems[torch]'" in text
    assert "{code-cell}" not in text
    assert sources.missing_extras("```python\nimport fedsim as fs\nfs.flower.run('x')\n```\n") == []


def test_commands_of_a_page_run_and_a_failure_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cells.write("a/b.txt", "text")
    assert Path("a/b.txt").read_text() == "text"
    cells.commands("fedsim explain \\\n    A5\n")
    assert "A5. Who computes" in capsys.readouterr().out
    with pytest.raises(RuntimeError, match=r"exit code 2(.|\n)*there is no such page"):
        cells.commands("fedsim explain nonsense\n")
    with pytest.raises(ValueError, match="holds fedsim commands"):
        cells.commands("ls\n")


@pytest.mark.parametrize("topic", markdown())
def test_blocks_that_are_only_shown_have_no_syntax_error(topic: str) -> None:
    yaml = pytest.importorskip("yaml")
    for language, body in sources.BLOCK.findall(markdown()[topic].read_text()):
        if language == "bash":
            done = subprocess.run(["bash", "-n"], input=body, capture_output=True, text=True, check=False)
            assert done.stderr == ""
        elif language == "yaml":
            assert yaml.safe_load(body)


def test_docstrings_become_restructured_text() -> None:
    lines = [
        "First * line|.",
        "",
        "| a | b |",
        "|---|---|",
        "| `x|y` | 1 |",
        "",
        "text:",
        "",
        "    code * here",
        "- one",
        "more",
    ]
    text = "\n".join(docstrings.as_rst(lines))
    assert r"First \* line\|." in text
    assert ".. list-table::\n   :header-rows: 1" in text
    assert "::\n\n    code * here" in text
    assert "- one\n\nmore" in text


def test_the_page_of_claims_counts_verdicts_only_of_stored_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paper = tmp_path / "toy"
    paper.mkdir()
    claim = 'id = "{}"\nquote = "A * b."\nwhere = "figure 1"\ntolerance = "0.1"\nkind = "rate"\n'
    (paper / "claims.toml").write_text("".join(f"[[claim]]\n{claim.format(name)}" for name in ("one", "two")))
    monkeypatch.setattr(papers, "PAPERS", tmp_path)
    assert "2 claims: 2 rate. No results are stored yet, so no verdict is shown." in papers.page()
    (paper / "results").mkdir()
    (paper / "results" / "fig1.json").write_text(json.dumps({"rows": [{"claim": "one", "verdict": "held"}]}))
    text = papers.page()
    assert "Verdicts: held 1, not run 1." in text
    assert "**one** (rate; held), figure 1" in text
    assert r"> A \* b" in text


def test_every_public_name_is_on_a_page_of_the_api() -> None:
    text = "\n".join(generated.api().values())
    tasks = [name for _, _, names in generated.TASKS for name in names]
    assert sorted(set(fs.__all__) - set(tasks)) == ["rng"], "its page is fedsim explain rng"
    for name in ("fedsim.run", "fedsim.algorithms.FALD", "fedsim.participation.first", "fedsim.errors.InvalidInput"):
        assert f"   ~{name}\n" in text


def test_docs_opens_the_site_or_explains_how_to_build_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open_new_tab", opened.append)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert call(["docs"]) == 2
    assert "python -m fedsim.docs build" in capsys.readouterr().err
    page = tmp_path / "fedsim" / "manual" / fs.__version__ / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text("the manual")
    assert call(["docs"]) == 0
    assert opened == [page.as_uri()]
    assert str(page) in capsys.readouterr().out
