"""The gallery: a page for each scenario that ships, with the picture that its command draws."""

from __future__ import annotations

import ast
import os
from importlib.util import find_spec
from pathlib import Path

import fedsim as fs
from fedsim.docs.cells import output
from fedsim.scenario_file import shipped

SETTINGS = {  # where a scenario as it ships needs data that fedsim does not contain
    "fashion_mnist": "--set data=digits --set batch_size=20",
    "lenet": "--set data=digits --set clients=30",
}
HEAD = """# Gallery

Every picture was drawn by the command on its page. `fedsim list` lists these scenarios.

"""


def pages() -> dict[str, str]:
    """Return the gallery and its pages by the path of their source."""
    made, cards = {}, []
    for name, path in shipped().items():
        code = path.read_text(encoding="utf-8")
        summary, _, rest = (ast.get_docstring(ast.parse(code)) or name).partition("\n")
        title, _, about = summary.rstrip(".").partition(": ")
        absent = missing(name)
        image = f"/_static/gallery/{name}.png"
        made[f"gallery/{name}.md"] = "\n".join(
            [
                f"# {title}\n\n{about[:1].upper() + about[1:]}\n{rest}\n",
                f"```sh\nfedsim run {name} {SETTINGS.get(name, '')}".rstrip() + "\n```\n",
                f"Not drawn in this build: {absent}\n" if absent else f"![{title}]({image})\n",
                f":::{{dropdown}} scenarios/{name}.py\n```python\n{code}```\n:::\n",
            ]
        )
        top = "" if absent else f":img-top: {image}\n"
        text = about[:1].upper() + about[1:]
        cards.append(f"::::{{grid-item-card}} {title}\n:link: gallery/{name}\n:link-type: doc\n{top}\n{text}\n::::\n")
    listed = "\n".join(f"gallery/{name}" for name in shipped())
    grid = ":::::{grid} 1 1 2 2\n:gutter: 2\n\n" + "".join(cards) + ":::::\n"
    return {"gallery.md": f"{HEAD}{grid}\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n", **made}


def missing(name: str) -> str | None:
    """Return what a scenario needs and this installation lacks; None: it can be run."""
    if name == "lenet" and find_spec("torch") is None:
        return "it needs PyTorch, `pip install 'fedsim-systems[torch]'`."
    if name == "credit":
        try:
            fs.data.load("credit")
        except fs.errors.InvalidInput:
            return "it needs the data set `credit` in the folder that `FEDSIM_DATA` names."
    return None


def draw(source: Path, name: str, store: Path) -> None:
    """Put the picture of a scenario into the sources; run the scenario if `store` lacks its picture."""
    picture = store / f"{name}.png"
    if not picture.is_file():
        store.mkdir(parents=True, exist_ok=True)
        folder = source.parent / f"run-{name}"
        output(f"fedsim run {name} {SETTINGS.get(name, '')} --quiet --out {folder}", source.parent)
        os.replace(folder / f"{name}.png", picture)
    target = source / "_static" / "gallery" / picture.name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(picture.read_bytes())
