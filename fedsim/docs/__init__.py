"""Manual pages by topic: `fs.explain("job")`, `fedsim explain A5`."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from fedsim.errors import InvalidInput
from fedsim.results import Summary
from fedsim.text import short_repr

CODE = re.compile(r"[A-E]\d+")


def explain(topic: str | None = None) -> Summary:
    """Return the page of a topic, such as job, replies or view, or one decision by its code, such as A5."""
    pages = _pages()
    if topic is None:
        topics = [f"  {name:14}{text.splitlines()[0].partition(': ')[2]}" for name, text in pages.items()]
        codes = "  A5, C1, ...   one decision by the code that a docstring or an error gives"
        return Summary("\n".join(["fedsim explain TOPIC, or fs.explain(TOPIC):", *topics, codes]))
    if not isinstance(topic, str):
        raise InvalidInput(
            f"explain({short_repr(topic)}): name a topic, one of {', '.join(pages)}, or a code such as A5"
        )
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
        f"explain({short_repr(topic)}): there is no such page; choose one of {', '.join(pages)}, or a code such as A5"
    )


def _pages() -> dict[str, str]:
    """Return the text of every page by its stem; pages are in sub-folders by kind."""
    folder = Path(str(files("fedsim") / "docs"))
    return {page.stem: page.read_text(encoding="utf-8") for page in sorted(folder.rglob("*.md"), key=lambda p: p.stem)}
