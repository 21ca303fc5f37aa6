"""Build the manual: sources for Sphinx in a temporary folder, a configuration in code, a site that needs no network.

Executed pages are cached by their code and the digest of fedsim's own files, outside the source tree. A warning or a
failing cell ends the build.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedsim import __version__
from fedsim.data.store import cache
from fedsim.docs import gallery, generated, papers
from fedsim.docs.sources import GENERATED, PAGES, SECTIONS, markdown, missing_extras, places, source, title
from fedsim.errors import InvalidInput, RuntimeFailed
from fedsim.scenario_file import shipped

NEEDED = ("sphinx", "myst_nb", "furo", "sphinx_design", "sphinx_copybutton", "sphinxcontrib.bibtex", "ipykernel")
EXTENSIONS = (
    "myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "sphinx_design",
    "sphinx_copybutton", "sphinxcontrib.bibtex", "fedsim.docs.docstrings", "fedsim.docs.mathml",
)  # fmt: skip
STATIC = ("manual.css",)


def build(out: Path, jobs: int = 2) -> dict[str, float]:
    """Write the site into `out`; return the seconds that each executed page took, which the cache keeps."""
    absent = [name for name in NEEDED if _absent(name)]
    if absent:
        raise InvalidInput(f"the manual needs {', '.join(absent)}; pip install 'fedsim-systems[docs]'")
    with tempfile.TemporaryDirectory(prefix="fedsim-manual-") as folder:
        work = Path(folder)
        write_sources(work / "source")
        store = cache() / "executed" / _digest() / "gallery"
        names = [name for name in shipped() if gallery.missing(name) is None]
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(lambda name: gallery.draw(work / "source", name, store), names))
        seconds = _run_sphinx(work, jobs)
        shutil.copytree(work / "site" / "html", out, dirs_exist_ok=True)
    (out / ".buildinfo").unlink(missing_ok=True)
    return seconds


def _run_sphinx(work: Path, jobs: int) -> dict[str, float]:
    """Make the site in `work / "site" / "html"`; raise RuntimeFailed with the failed cells."""
    from myst_nb.sphinx_ import NbMetadataCollector
    from sphinx.application import Sphinx

    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # of the pages: figures become outputs
    os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"  # kernels print no warning about frozen modules
    site = work / "site" / "html"
    app = Sphinx(
        work / "source", None, site, work / "doctrees", "html", confoverrides=configuration(work),
        warningiserror=True, parallel=jobs, status=None, warning=sys.stderr,
    )  # fmt: skip
    try:
        app.build()
    except Exception as error:
        failed = sorted((site / "reports").rglob("*.err.log"))
        raise RuntimeFailed("\n".join([str(error), *(log.read_text() for log in failed)])) from None
    if app.statuscode:
        raise RuntimeFailed("the manual was not built; the warnings above are errors")
    executed = {name: NbMetadataCollector.get_exec_data(app.env, name) for name in app.env.found_docs}
    return {name: float(data["runtime"]) for name, data in executed.items() if data and data["runtime"] is not None}


def unexecuted() -> dict[str, list[str]]:
    """Return the pages that need an extra that is not installed."""
    needs = {topic: missing_extras(path.read_text(encoding="utf-8")) for topic, path in markdown().items()}
    found = {topic: extras for topic, extras in needs.items() if extras}
    return {**found, **{f"gallery/{name}": [why] for name in shipped() if (why := gallery.missing(name))}}


def write_sources(folder: Path) -> None:
    """Write the sources of all pages."""
    pages, known = markdown(), places()
    listed = [topic for section in SECTIONS for topic in section.pages]
    if sorted(listed) != sorted([*pages, *GENERATED]):
        raise InvalidInput(f"docs/sources.py lists other pages than there are: {set(listed) ^ {*pages, *GENERATED}}")
    for topic, page in pages.items():
        _write(folder / f"{known[topic]}.md", source(topic, page.read_text(encoding="utf-8")))
    for name, text in generated.pages().items():
        _write(folder / name, text)
    titles = {topic: title(page.read_text(encoding="utf-8")) for topic, page in pages.items()}
    _write(folder / "index.md", generated.index(titles))
    for section in SECTIONS:
        _write(folder / f"{generated.slug(section)}.md", generated.contents(section, titles))
    for name in STATIC:
        _write(folder / "_static" / name, (PAGES / name).read_text(encoding="utf-8"))
    for picture in papers.pictures():
        target = folder / "_static" / "papers" / papers.place(picture)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, target)
    shutil.copy(PAGES / "references.bib", folder)
    _write(folder.parent / "templates" / "autosummary" / "class.rst", generated.CLASS)
    _write(folder.parent / "templates" / "autosummary" / "module.rst", generated.MODULE)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def configuration(work: Path) -> dict[str, Any]:
    """Return Sphinx's configuration."""
    return {
        "project": "fedsim",
        "author": "The fedsim maintainers",
        "release": __version__,
        "html_title": f"fedsim {__version__}",
        "extensions": list(EXTENSIONS),
        "templates_path": [str(work / "templates")],
        "html_static_path": [str(work / "source" / "_static")],
        "html_css_files": ["manual.css"],
        "html_theme": "furo",
        "html_theme_options": {"navigation_with_keys": False},
        "html_copy_source": False,
        "html_show_copyright": False,
        "html_show_sourcelink": False,
        "html_math_renderer": "mathml",
        "pygments_style": "tango",
        "default_role": "code",
        "myst_enable_extensions": ["dollarmath", "colon_fence", "deflist"],
        "myst_heading_anchors": 3,
        "nb_execution_mode": "cache",
        "nb_execution_cache_path": str(cache() / "executed" / _digest()),
        "nb_execution_in_temp": True,
        "nb_execution_timeout": 180,
        "nb_execution_raise_on_error": True,
        "nb_merge_streams": True,
        "autosummary_generate": True,
        "autodoc_typehints": "none",
        "autodoc_member_order": "bysource",
        "autodoc_class_signature": "mixed",
        "bibtex_bibfiles": ["references.bib"],
        "copybutton_exclude": ".linenos, .gp, .go",
    }


def _digest() -> str:
    """Return a digest of fedsim's code and scenarios, so that a page is executed again when they change."""
    made = blake2b(digest_size=8)
    root = PAGES.parent
    for path in sorted(path for path in root.rglob("*.py") if path.parent != PAGES):
        made.update(str(path.relative_to(root)).encode())
        made.update(path.read_bytes())
    return made.hexdigest()


def _absent(name: str) -> bool:
    package, _, inner = name.partition(".")
    if find_spec(package) is None:
        return True
    try:
        import_module(name)
    except ImportError:
        return bool(inner) or name in NEEDED
    return False
