"""Claims of the papers: the rule gives the verdicts, and every claim points at rows that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedskew.compare.estimates import Estimate
from fedskew.errors import StudyError
from fedskew.evidence.claims import Claim, claims_text, found, read_claims, verdict
from fedskew.evidence.observations import Observation
from fedskew.evidence.study import find_studies, read_study

EVIDENCE = Path(__file__).parents[3] / "evidence"
MORE = Claim("000", "more", "s", of={"m": "a"}, against={"m": "b"}, claimed=0.1)
LESS = Claim("000", "less", "s", of={"m": "a"}, against={"m": "b"}, claimed=0.1, less=True)
VALUE = Claim("000", "so much", "s", of={"m": "a"}, claimed=0.5, tolerance=0.01)
MEASURED = {  # labels of rows that measurements give, not studies
    "estimator": ["eq7 raw"],
    "model": ["gradient boosting"],
    "figure": ["WPSI", "HD"],
}


@pytest.mark.parametrize(
    ("claim", "interval", "said"),
    [
        (MORE, (0.08, 0.11), "holds"),
        (MORE, (0.2, 0.3), "holds"),
        (MORE, (0.01, 0.09), "holds in direction"),
        (MORE, (0.0, 0.4), "not reproduced"),
        (MORE, (-0.1, 0.4), "not reproduced"),
        (MORE, (-0.4, -0.1), "not reproduced: the opposite"),
        (LESS, (-0.3, -0.05), "holds"),
        (LESS, (-0.09, -0.05), "holds in direction"),
        (LESS, (0.01, 0.3), "not reproduced: the opposite"),
        (VALUE, (0.4, 0.52), "holds"),
        (VALUE, (0.505, 0.511), "holds"),
        (VALUE, (0.52, 0.6), "not reproduced"),
    ],
)
def test_the_rule(claim, interval, said):
    low, high = interval
    assert verdict(claim, Estimate((low + high) / 2, low, high, 5)) == said


def test_two_seeds_are_too_few():
    assert verdict(MORE, Estimate(0.3, 0.2, 0.4, 2)) == "too few seeds"
    assert verdict(MORE, Estimate(0.3, float("nan"), float("nan"), 1)) == "too few seeds"


def rows(**values):
    return [
        Observation({"m": name, "seed": str(seed)}, seed, {"final": value})
        for name, numbers in values.items()
        for seed, value in enumerate(numbers)
    ]


def test_seeds_are_paired_and_ratios_are_of_pairs():
    some = rows(a=[0.5, 0.6, 0.9], b=[0.4, 0.5, 0.8])
    assert found(MORE, some).mean == pytest.approx(0.1)
    assert found(MORE, some).half_width == pytest.approx(0.0, abs=1e-12)
    share = found(Claim("000", "", "s", of={"m": "a"}, against={"m": "b"}, ratio=True), some)
    assert share.mean == pytest.approx((0.5 / 0.4 + 0.6 / 0.5 + 0.9 / 0.8) / 3 - 1)
    assert found(VALUE, some).mean == pytest.approx(2 / 3)


def test_a_claim_about_no_row_is_an_error():
    with pytest.raises(StudyError, match="is no row"):
        found(Claim("000", "x", "s", of={"m": "c"}), rows(a=[1.0]))


def test_every_claim_of_ours_speaks_about_rows_of_its_study():
    claims = read_claims(EVIDENCE)
    assert {claim.paper for claim in claims} == {"000", "001", "002", "003", "004"}
    assert {claim.study for claim in claims} - {""} <= set(find_studies(EVIDENCE))
    for claim in claims:
        if not claim.study:
            assert claim.cannot
            continue
        axes = {axis: set(labels) for axis, labels in MEASURED.items()}
        for grid in read_study(EVIDENCE / claim.study).grids:
            axes.setdefault("grid", set()).add(grid.name)
            for axis in grid.axes:
                axes.setdefault(axis.name, set()).update(axis.values)
        for where in (claim.of, claim.against):
            for name, label in where.items():
                assert label in axes[name], (claim.says, name, label)


def test_the_page_has_a_verdict_for_every_claim():
    text = claims_text(EVIDENCE)
    assert text.count("\n| ") == 1 + len(read_claims(EVIDENCE))
    assert claims_text(EVIDENCE / "drill") == ""
