"""Tables of a page by hand: one meaning of ±, paired differences, bounds, references last."""

from __future__ import annotations

import math

import pytest

from fedskew.errors import StudyError
from fedskew.evidence.observations import observations
from fedskew.evidence.results import Finished, Results
from fedskew.evidence.tables import read_table, table_text

T2 = 4.302652729911275  # Student's t, 97.5 %, two degrees of freedom


def cell(method, seed, *rows, **labels):
    return Finished({"method": method, **labels}, seed, rows, 0, None, None, None)


def lines(cells, **table):
    rows = observations(Results("s", "full", [], cells))
    text = table_text(read_table("s", {"rows": ["method"], **table}), rows)
    return [[field.strip() for field in line.strip("|").split("|")] for line in text.splitlines()]


FINAL = [
    *(cell("A", seed, {"final": value}) for seed, value in enumerate((0.5, 0.6, 0.7))),
    *(cell("B", seed, {"final": value}) for seed, value in enumerate((0.8, 0.8, 1.1))),
]


def test_plus_minus_is_half_the_t_interval_of_the_mean_over_seeds():
    half = T2 * 0.1 / math.sqrt(3)
    table = lines(FINAL, columns=[{"figure": "final", "title": "last 5", "format": ".4f"}])
    assert table[0] == ["method", "last 5"]
    assert table[2] == ["A", f"0.6000 ± {half:.4f}"]


def test_differences_are_paired_by_seed():
    column = {"figure": "final", "format": "+.4f", "against": {"method": "A"}}
    table = lines(FINAL, columns=[column])
    # 0.3, 0.2, 0.4: their standard deviation is 0.1, that of B alone 0.1732
    assert table[2:] == [["A", ""], ["B", f"+0.3000 ± {T2 * 0.1 / math.sqrt(3):.4f}"]]


def test_one_seed_has_no_interval_and_a_missing_figure_no_text():
    table = lines([cell("A", 0, {"final": 0.5})], columns=[{"figure": "final"}, {"figure": "x"}])
    assert table[2] == ["A", "0.500", ""]


def test_a_target_that_was_never_reached_is_a_bound():
    cells = [
        cell("A", 0, {"time_to": 10.0, "missed": 0}),
        cell("A", 1, {"time_to": 20.0, "missed": 1}),
        cell("B", 0, {"time_to": 30.0, "missed": 1}),
    ]
    table = lines(cells, columns=[{"figure": "time_to", "format": ".0f"}])
    assert table[2:] == [["A", "> 15 (1 of 2 never)"], ["B", "> 30"]]


def test_ranges_values_marks_and_given_texts():
    cells = [cell("A", seed, {"x": x}) for seed, x in enumerate((3, 1, 2))] + [
        cell("B", 0, {"x": 0})
    ]
    table = lines(
        cells,
        columns=[
            {"figure": "x", "format": ".0f", "show": "range"},
            {"figure": "x", "format": ".0f", "show": "values"},
            {"figure": "x", "show": "mark", "mark": "chosen"},
            {"title": "paper", "given": {"A": ".5"}},
        ],
    )
    assert table[2:] == [["A", "1 to 3", "3, 1, 2", "chosen", ".5"], ["B", "0", "0", "", ""]]


def test_a_column_per_label_with_somebody_elses_numbers_below():
    cells = [
        cell("A", 0, {"of": {"kind": "x"}, "e": 0.25}, {"of": {"kind": "y"}, "e": 0.5}),
        cell("B", 0, {"of": {"kind": "x"}, "e": 0.75}, {"of": {"kind": "y"}, "e": 0.5}),
    ]
    table = lines(
        cells,
        across="kind",
        columns=[{"figure": "e", "format": ".2f"}],
        bold="min",
        count=True,
        paper_title="theirs",
        paper={"A": [0.2]},
    )
    assert table[0] == ["method", "seeds", "x", "y"]
    assert table[2] == ["A", "1", "**0.25**", "0.50"]
    assert table[3:5] == [["theirs", "", "0.20", ""], ["difference", "", "+0.05", ""]]
    assert table[5] == ["B", "1", "0.75", "**0.50**"]


def test_several_figures_in_one_field():
    cells = [cell("A", 0, {"ad": 0.1, "sdad": 0.2}, setting="S 0")]
    columns = [{"figure": "ad"}, {"figure": "sdad"}]
    assert lines(cells, across="setting", columns=columns)[2] == ["A", "0.100 / 0.200"]


def test_references_come_last_and_are_paired_too():
    cells = [
        cell("A", 0, {"final": 0.5}, {"of": {"method": "centralised"}, "final": 0.75}),
        cell("B", 0, {"final": 0.25}),
    ]
    column = {"figure": "final", "format": "+.2f", "against": {"method": "A"}}
    assert lines(cells, columns=[column])[2:] == [
        ["A", ""],
        ["B", "-0.25"],
        ["centralised", "+0.25"],
    ]


def test_a_column_may_look_into_another_grid():
    cells = [
        cell("A", 0, {"final": 0.5}, grid="runs", k="2"),
        cell("A", 0, {"omega": 8.0}, grid="choice", k="2"),
        cell("A", 0, {"omega": 5.0}, grid="choice", k="5"),
    ]
    column = {"figure": "omega", "where": {"grid": "choice"}}
    table = lines(cells, rows=["k", "method"], where={"grid": "runs"}, columns=[column])
    assert table[2:] == [["2", "A", "8.000"]]


def test_lines_by_seed():
    table = lines(FINAL[:2], rows=["seed"], columns=[{"figure": "final", "format": ".1f"}])
    assert table[2:] == [["0", "0.5"], ["1", "0.6"]]


def test_wrong_declarations_are_refused():
    with pytest.raises(StudyError, match=r"unknown entry 'figur'\. Did you mean 'figure'"):
        read_table("s", {"rows": [], "columns": [{"figur": "x"}]})
    with pytest.raises(StudyError, match="has no columns"):
        read_table("s", {"rows": []})
    with pytest.raises(StudyError, match="show = 'median'"):
        read_table("s", {"rows": [], "columns": [{"show": "median"}]})
