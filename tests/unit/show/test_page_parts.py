"""One array names every part of the page, and every part has what it needs."""

from __future__ import annotations

import re

import pytest
from page_parts import described, ids_of_drawings, keys_of, listed, needs_of, program, text_of
from played import write_run

from fedskew.compare.comparison import Comparison
from fedskew.measure.payload import plain
from fedskew.report.page import payload_of
from fedskew.report.page.html import _file, scripts


def test_every_part_that_is_described_is_listed_once():
    assert len(listed()) == len(set(listed()))
    assert set(listed()) == set(described())
    assert ids_of_drawings() == [
        *("cost", "curves", "labels", "map", "chosen", "plan", "ecdf", "ledger")
    ]


@pytest.mark.parametrize("name", described())
def test_a_part_has_what_the_page_asks_of_it(name):
    keys = keys_of(described()[name])
    assert {"id", "title", "needs"} <= keys
    kind = {"parts"} if "parts" in keys else {"hint", "draw", "csv"}
    assert kind <= keys
    optional = (
        {"link", "half"} if "parts" in keys else {"link", "half", "legend", "absent", "controls"}
    )
    assert keys <= {"id", "title", "needs"} | kind | optional


@pytest.mark.parametrize("name", described())
def test_a_part_with_a_legend_says_why_an_entry_is_grey(name):
    keys = keys_of(described()[name])
    assert ("legend" in keys) == ("absent" in keys)


def test_the_page_opens_with_words_then_pictures_then_tables():
    ids = [text_of(described()[name], "id") for name in listed()]
    assert ids[:4] == ["verdict", "cost", "curves", "table"]


def test_ids_and_names_in_the_contents_are_different():
    for key in ("id", "title", "link"):
        texts = [text_of(inside, key) for inside in described().values() if key in keys_of(inside)]
        assert len(texts) == len(set(texts))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "a"
    write_run(folder, failing="gone")
    return plain(payload_of(Comparison.read(folder)))


@pytest.mark.parametrize("name", described())
def test_the_data_holds_what_a_part_needs(name, data):
    for path in needs_of(described()[name]):
        value = data
        for key in path.split("."):
            value = (value[0] if isinstance(value, list) else value)[key]
        assert value is not None, path


# ---------------------------------------------------------------- the scripts as one program


def test_no_name_is_declared_twice():
    names = re.findall(r"^(?:const|let|(?:async )?function) (\w+)", program(), re.M)
    assert sorted(names) == sorted(set(names))


def test_lines_fit_a_screen():
    for name in (*scripts(), "style.css", "template.html"):
        long = [line for line in _file(name).splitlines() if len(line) > 100]
        assert not long, name
