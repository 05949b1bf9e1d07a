"""Every study of evidence/: its page is what its results say, byte for byte, and it can be made.

Where the first test fails, a recipe or code that decides the numbers has changed, or a page or
``study.toml`` was edited: ``fedskew reproduce --page`` writes the pages again, and they then say
that they were made with an older version, until ``fedskew reproduce STUDY`` has made them again.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedskew.evidence.making import make
from fedskew.evidence.observations import observations
from fedskew.evidence.page import PAGE, figures_of, index_text, page_text, write_page
from fedskew.evidence.playing import plugin
from fedskew.evidence.results import FILE, read_results, state_of
from fedskew.evidence.study import find_studies, read_study
from fedskew.evidence.tuning import cells_with

EVIDENCE = Path(__file__).resolve().parents[3] / "evidence"
STUDIES = find_studies(EVIDENCE)
MADE = [name for name in STUDIES if (EVIDENCE / name / FILE).is_file()]
AGAIN = "write the pages again: fedskew reproduce --page"


def test_there_are_studies():
    assert {"ablation", "afls", "estimation", "orders", "participation", "personal"} < set(MADE)


@pytest.mark.parametrize("name", sorted(set(STUDIES) - set(MADE)))
def test_a_study_that_is_not_made_has_no_page(name):
    assert not (EVIDENCE / name / PAGE).exists()


@pytest.mark.parametrize("name", MADE)
def test_page_and_results_agree_and_no_cell_is_missing(name):
    study = read_study(EVIDENCE / name)
    results = read_results(EVIDENCE / name / FILE)
    assert results is not None, f"{name} has no results"
    state = state_of(cells_with(study, results), results)
    assert not state.missing
    page = page_text(study, results, state)
    assert page == (EVIDENCE / name / PAGE).read_text(encoding="utf8"), AGAIN
    for figure in figures_of(study):
        assert (EVIDENCE / name / figure.file).is_file(), AGAIN


def test_the_index_names_every_study():
    studies = [read_study(EVIDENCE / name) for name in STUDIES]
    assert index_text(studies) == (EVIDENCE / PAGE).read_text(encoding="utf8"), AGAIN


def test_the_readme_shows_what_lead_measured():
    results = read_results(EVIDENCE / "lead" / FILE)
    assert results is not None
    headline = plugin(EVIDENCE / "lead", "table.py:headline")(observations(results))
    for page in (EVIDENCE.parent / "README.md", EVIDENCE.parent / "docs" / "baton.md"):
        assert headline in page.read_text(encoding="utf8"), headline


@pytest.mark.parametrize("name", STUDIES)
def test_smoke(name, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    study = read_study(EVIDENCE / name, "smoke")
    results = make(study, work=tmp_path)
    state = state_of(cells_with(study, results), results)
    assert state.is_current
    text = write_page(study, results, state, tmp_path / "page").read_text(encoding="utf8")
    assert "**Scale: smoke.**" in text
    assert text.count("\n| ") > 4
    shown = re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert shown == [figure.file for figure in figures_of(study)]
    assert all((tmp_path / "page" / file).is_file() for file in shown)
