"""The page in a real browser: Debian's chromium, headless. Skipped where it or playwright is not installed."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest
from strategies.reported import small

import fedsim as fs
from fedsim.analysis import report
from fedsim.reproduce import plots
from fedsim.sweeps.study import Study

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("needs Debian's chromium: apt-get install chromium", allow_module_level=True)
QUIET = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
EVIL = "<script>document.title='gone'</script>"


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    a, b = fs.run(small()), fs.run(small(fs.participation.first(2)))
    made = {"run": report.run_page(EVIL, a), "comparison": report.comparison_page({EVIL: a, "b": b})}
    made["sweep"], made["claims"] = _sweep(a), _claims()
    for name, text in made.items():
        (folder / f"{name}.html").write_text(text)
    return {name: folder / f"{name}.html" for name in made}


def _sweep(result: fs.Result) -> str:
    """A page of two settings, one of them with a name that is a program."""
    runs = tuple(({"policy": name, "seed": seed}, result) for name in (EVIL, "b") for seed in (0, 1))
    study = Study(EVIL, runs)
    table = study.curve_table()
    lines = {metric: table[table["metric"] == metric] for metric in table["metric"].unique()}
    return report.sweep_page(EVIL, ["4 runs"], study.frame(), lines, ["policy", "seed"])


def _claims() -> str:
    row = {
        "paper": "toy", "figure": "fig1", "claim": EVIL, "quote": EVIL, "where": "section 1", "criterion": EVIL,
        "tolerance": 0.5, "reason": EVIL, "seen_before": True, "history": [EVIL], "verdict": "not held",
        "on_stand_in": "", "ours": "1.2", "published": "3", "why": EVIL, "change": EVIL, "date": "", "older": "",
        "settings": [
            {"setting": "K", "paper": EVIL, "quick": 2, "full": None, "departs": True, "harmless": EVIL}
        ],
    }  # fmt: skip
    counts = {"not held": 1, "held": 0}
    tables = {
        "title": EVIL, "note": EVIL, "table": {"columns": ["method", EVIL], "rows": [["a", 0.1]]},
        "spent": {"columns": ["arm", "uplink_bits", "seconds"], "rows": [[EVIL, 12345, None], ["b", 1024, 2.0]]},
    }  # fmt: skip
    png = io.BytesIO()
    plots.panels({EVIL: {EVIL: plots.Series([1, 2], [3, 4])}}, "x", "y").savefig(png, dpi=150)
    return report.claims_page(EVIL, [row], counts, {"toy/fig1/figure": png.getvalue()}, {"toy/fig1": tables})


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as p:
        found = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *QUIET])
        yield found
        found.close()


@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("name", ["run", "comparison", "sweep", "claims"])
def test_a_page_draws_its_plots_asks_for_nothing_and_fits_the_screen(browser, pages, name, width):
    page = browser.new_page(viewport={"width": width, "height": 900})
    errors, asked = [], []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(pages[name].as_uri())
    page.wait_for_function(
        "document.querySelectorAll('.plot').length === document.querySelectorAll('.plot.js-plotly-plot').length"
    )
    assert errors == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    empty = page.evaluate(
        "[...document.querySelectorAll('.plot')].filter(p => !p.querySelector('.trace, .point, .bars path, .points path')).length"
    )
    assert empty == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.title() != "gone"
    assert EVIL in page.inner_text("body")
    page.close()


def test_the_page_of_claims_shows_the_figure_and_what_it_spent(browser, pages):
    page = browser.new_page(viewport={"width": 390, "height": 900})
    page.goto(pages["claims"].as_uri())
    assert page.evaluate("[...document.images].map(i => i.complete && i.naturalWidth > 0)") == [True]
    assert page.get_attribute("img", "alt") == EVIL
    tables = page.evaluate("[...document.querySelectorAll('table.sorts')].map(t => t.tHead.innerText.split(/\\s+/))")
    assert [table[0] for table in tables] == ["method", "claim", "setting", "arm"]
    assert "uplink_bits" in tables[3]
    page.locator("table.sorts").nth(3).locator("th").nth(1).click()
    column = "[...document.querySelectorAll('table.sorts')[3].tBodies[0].rows].map(r => r.cells[1].innerText)"
    assert page.evaluate(column) == ["1.02 kbit", "12.3 kbit"]
    page.close()


def test_tables_sort_by_their_columns_as_numbers(browser, pages):
    page = browser.new_page()
    page.goto(pages["run"].as_uri())
    column = """(n) => [...document.querySelector('#clients ~ .scroll table').tBodies[0].rows].map(r => Number(r.cells[n].dataset.value))"""
    head = page.locator("#clients ~ .scroll table").first.locator("th").nth(0)
    head.click()
    assert page.evaluate(column, 0) == [0, 1, 2, 3]
    head.click()
    assert page.evaluate(column, 0) == [3, 2, 1, 0]
    page.close()


def test_a_button_sets_a_curve_against_rounds(browser, pages):
    page = browser.new_page()
    page.goto(pages["run"].as_uri())
    plot = page.locator(".plot").first
    plot.locator("text=rounds").first.click()
    page.wait_for_function("document.querySelector('.plot').layout.xaxis.title.text === 'rounds'")
    assert page.evaluate("Array.from(document.querySelector('.plot').data[0].x)") == [1, 2, 3, 4, 5, 6]
    page.close()
