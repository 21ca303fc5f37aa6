"""Manual pages by topic: `fs.explain("job")`, `fedsim explain A5`."""

from __future__ import annotations

import re
from pathlib import Path

from fedsim.docs.sources import SECTIONS, markdown
from fedsim.errors import InvalidInput
from fedsim.results import Summary
from fedsim.text import short_repr

CODE = re.compile(r"[A-E]\d+")


def explain(topic: str | None = None) -> Summary:
    """Return the page of a topic, such as job, replies or view, or one decision by its code, such as A5."""
    pages = _pages()
    if topic is None:
        wide = max(map(len, pages)) + 2
        lines = ["fedsim explain TOPIC, or fs.explain(TOPIC):"]
        for section in SECTIONS:
            listed = [name for name in section.pages if name in pages]
            lines += ["", section.title] if listed else []
            lines += [f"  {name:{wide}}{pages[name].splitlines()[0].partition(': ')[2]}" for name in listed]
        lines += ["", f"  {'A5, C1, ...':{wide}}one decision by the code that a docstring or an error gives"]
        return Summary("\n".join(lines))
    if not isinstance(topic, str):
        raise InvalidInput(f"explain({short_repr(topic)}): name a topic; fedsim explain, or fs.explain(), lists them")
    name = topic.strip().strip("()")
    if name.lower() in pages:
        return Summary(pages[name.lower()].rstrip())
    if CODE.fullmatch(name.upper()):
        found = re.search(
            rf"^{name.upper()}\. .*?(?=^[A-E]\d+\. |^## |\Z)", pages["decisions"], re.MULTILINE | re.DOTALL
        )
        if found:
            return Summary(found[0].rstrip())
    raise InvalidInput(
        f"explain({short_repr(topic)}): there is no such page; fedsim explain, or fs.explain(), lists them"
    )


def site_folder() -> Path:
    """Return the folder of the manual as a site, of this version, which `fedsim docs` opens."""
    from fedsim import __version__
    from fedsim.data.store import cache

    return cache() / "manual" / __version__


def _pages() -> dict[str, str]:
    """Return the text of every page by its topic."""
    return {topic: page.read_text(encoding="utf-8") for topic, page in markdown().items()}
