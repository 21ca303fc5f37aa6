"""The papers' quotations: each occurs in its paper's text, and a file with a mistake is refused."""

from __future__ import annotations

import pytest
from tools import real_data

from fedsim.errors import InvalidInput
from fedsim.reproduce import claims
from fedsim.reproduce.sources import forms, occurs
from fedsim.scenario_file import scenarios_folder

TEXTS = {  # paper: its stored text, in the folder that FEDSIM_PAPERS names
    "fa-hmc": "fa-hmc.txt",
    "fa-ld": "fa-ld.txt",
    "p-fedavg": "performative-fedavg.txt",
    "private-fedpaq": "private-fedpaq.txt",
    "qlsd": "qlsd.txt",
}

# --- The matcher -----------------------------------------------------------------------------------------------------

PAGE = (
    "The optimal K is\naround 3000 and the e\ufb03ciency of non-\ni.i.d. sam-\npling im-\n proves by $\\eta = 10^{-7}$."
)


@pytest.mark.parametrize(
    "quote",
    [
        "The optimal K is around 3000",
        "the efficiency of non-i.i.d.",
        "sampling improves by $\\eta = 10^{-7}$.",
        "around   3000\n and the",
    ],
)
def test_white_space_hyphens_at_line_ends_and_ligatures_do_not_matter(quote):
    assert occurs(quote, forms(PAGE))


@pytest.mark.parametrize(
    "quote",
    [
        "The optimal K is around 300 and",  # a number
        "The optimal K is about 3000",  # a word
        "the optimal K is around 3000",  # a capital
        "around 3000 and efficiency",  # a word left out
        "The optimal K is around 3000 and the efficiency improves",  # a gap
        "$\\eta = 10^{-8}$",  # an exponent
        "noni.i.d. sampling improves by $\\eta = 10{-7}$",  # a sign of a formula
        "around3000",  # white space left out
        "samplings improves",
    ],
)
def test_a_changed_word_or_number_is_no_quotation(quote):
    assert not occurs(quote, forms(PAGE))


def test_a_changed_number_of_a_real_quotation_is_found():
    paper = forms(real_data.find("FEDSIM_PAPERS", TEXTS["fa-ld"]).read_text(encoding="utf-8"))
    (quote,) = {q.quote for q in claims.load("fa-ld") if q.id == "fig1a-optimal-k"}
    assert occurs(quote, paper)
    assert not occurs(quote.replace("3000", "300"), paper)
    assert not occurs(quote.replace("savings", "costs"), paper)


# --- The files -------------------------------------------------------------------------------------------------------


def test_every_paper_with_figures_has_claims():
    folders = {path.parent.name for path in (scenarios_folder() / "papers").glob("*/[!_]*.py")}
    assert folders == set(claims.papers()) == set(TEXTS)


@pytest.mark.parametrize("paper", TEXTS)
def test_every_quotation_occurs_in_the_papers_text(paper):
    text = forms(real_data.find("FEDSIM_PAPERS", TEXTS[paper]).read_text(encoding="utf-8"))
    assert [q.id for q in claims.load(paper) if not occurs(q.quote, text)] == []


@pytest.mark.parametrize("paper", TEXTS)
def test_every_figure_file_has_a_claim(paper):
    figures = {path.stem for path in (scenarios_folder() / "papers" / paper).glob("[!_]*.py")}
    assert figures <= {q.figure or "theorems" for q in claims.load(paper)}


# --- The reader ------------------------------------------------------------------------------------------------------

GOOD = """
[[claim]]
id = "a"
figure = "fig1"
quote = '''
two
words'''
where = "section 1"
metric = "W2"
comparison = "smaller"
tolerance = 0.5
reason = "a half"
kind = "exact"
seen_before = true
history = ["Earlier:\\n 0.6."]
"""


def write(folder, text):
    (folder / "fig1.py").touch()
    (folder / "_toy.py").touch()
    file = folder / "claims.toml"
    file.write_text(text)
    return file


def test_a_table_becomes_a_claim_with_single_spaces(tmp_path):
    (found,) = claims.read(write(tmp_path, GOOD))
    assert found == claims.Claim(
        "a", "fig1", "two words", "section 1", "W2", "smaller", 0.5, "a half", "exact", True, ("Earlier: 0.6.",)
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("reason =", "reasons =", r"claim 1 \(a\): the key 'reason' is missing"),
        ("reason =", 'pages = "3"\nreason =', "unknown key 'pages'"),
        ('kind = "exact"', 'kind = "proved"', "kind is 'proved'; choose among superiority"),
        ('where = "section 1"', 'where = " "', "where is empty"),
        ('metric = "W2"', "metric = 2", "metric is 2; give text"),
        ("tolerance = 0.5", "tolerance = true", "tolerance is True; give text or a number"),
        ("seen_before = true", 'seen_before = "yes"', "give true or false"),
        ('history = ["Earlier:\\n 0.6."]', 'history = "none"', "give a list of sentences"),
        ('figure = "fig1"', 'figure = "fig9"', "figure 'fig9' has no file; choose among fig1"),
        ('figure = "fig1"', 'figure = "_toy"', "figure '_toy' has no file"),
        ("[[claim]]", "[[claims]]", r"must have \[\[claim\]\] tables and nothing else"),
        ("[[claim]]", "[claim]", r"must have \[\[claim\]\] tables and nothing else"),
        ("[[claim]]", "title = 1\n[[claim]]", r"must have \[\[claim\]\] tables and nothing else"),
        ('id = "a"', "id = a", "not valid TOML"),
    ],
)
def test_a_mistake_is_refused_in_one_sentence(tmp_path, old, new, message):
    assert old in GOOD
    with pytest.raises(InvalidInput, match=message) as raised:
        claims.read(write(tmp_path, GOOD.replace(old, new, 1)))
    assert "\n" not in str(raised.value)


def test_two_claims_with_one_id_are_refused(tmp_path):
    with pytest.raises(InvalidInput, match="'a' occurs more than once"):
        claims.read(write(tmp_path, GOOD + GOOD))


def test_a_claim_may_belong_to_no_figure(tmp_path):
    (found,) = claims.read(write(tmp_path, GOOD.replace('"fig1"', '""')))
    assert found.figure == ""


def test_an_unknown_paper_is_refused_with_the_known_ones():
    with pytest.raises(InvalidInput, match="choose among fa-hmc, fa-ld, p-fedavg, private-fedpaq, qlsd"):
        claims.load("fedavg")
