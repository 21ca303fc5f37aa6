"""The manual as a site, built once: no warning, links that lead somewhere, pages that need no network and fit a phone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("sphinx", reason="needs the extra docs: pip install -e '.[docs]'")
pytestmark = pytest.mark.slow
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


class Links(HTMLParser):
    """The links of a page, what it loads, and its anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors.update(given[name] or "" for name in ("id", "name") if name in given)
        if tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.append(given["href"] or "")
        elif given.get("src"):
            self.loads.append(given["src"] or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the manual; its executed pages are cached between calls, as for a user."""
    out = tmp_path_factory.mktemp("manual")
    command = [sys.executable, "-m", "fedsim.docs", "build", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    return {path: Links(path) for path in sorted(site.rglob("*.html"))}


def test_every_link_leads_to_a_page_and_an_anchor(site: Path, pages: dict[Path, Links]) -> None:
    broken = []
    for path, found in pages.items():
        for link in found.links + found.loads:
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            anchor = unquote(url.fragment)
            if not target.is_file() or (anchor and target in pages and anchor not in pages[target].anchors):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []
    assert sum(len(found.links) for found in pages.values()) > 1000


def test_no_page_loads_a_file_of_another_site(pages: dict[Path, Links]) -> None:
    remote = {link for found in pages.values() for link in found.loads if urlsplit(link).netloc}
    assert remote == set()


def test_any_page_is_two_links_from_the_first(site: Path, pages: dict[Path, Links]) -> None:
    def linked(path: Path) -> set[Path]:
        return {
            (path.parent / unquote(urlsplit(link).path)).resolve() for link in pages[path].links if urlsplit(link).path
        }

    first = linked(site / "index.html")
    near = first.union(*(linked(path) for path in first if path in pages))
    written = [path for path in pages if path.name not in ("search.html", "genindex.html", "py-modindex.html")]
    assert [str(path.relative_to(site)) for path in written if path not in near and "names" not in path.parts] == []


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_in_a_browser_log_no_error_ask_for_nothing_and_fit(pages: dict[Path, Links], width: int) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs Debian's chromium: apt-get install chromium")
    faults = []
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=list(QUIET))
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.on("console", lambda message: faults.append((name, message.text)) if message.type == "error" else None)
        page.on("pageerror", lambda error: faults.append((name, str(error))))
        page.on(
            "request",
            lambda asked: None if asked.url.startswith(("file:", "data:")) else faults.append((name, asked.url)),
        )
        for path in pages:
            name = path.name
            page.goto(path.as_uri())
            wide = page.evaluate("document.documentElement.scrollWidth")
            if wide > width:
                faults.append((name, f"{wide} px wide"))
        browser.close()
    assert faults == []
