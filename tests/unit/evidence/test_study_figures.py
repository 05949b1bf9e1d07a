"""Every kind of figure is drawn, and says by itself what it cannot draw."""

from __future__ import annotations

import pytest

from fedskew.errors import StudyError
from fedskew.evidence.figures import KINDS, draw, read_figure
from fedskew.evidence.figures.curves import _curve
from fedskew.evidence.observations import observations
from fedskew.evidence.results import Finished, Results

CURVE = {"curve": [0.1, 0.5, 0.7], "rounds": [0, 1, 2], "clock": [0.0, 3.0, 6.0]}


def rows():
    cells = [
        Finished(
            {"method": method, "k": k},
            seed,
            [{"final": 0.5 + seed / 10, **CURVE, "clients": [0.2, 0.9, None], "snr": [3, 1, 2]}],
            0, None, None, None,
        )
        for method in "AB"
        for k in ("2", "5")
        for seed in (0, 1)
    ]  # fmt: skip
    return observations(Results("s", "full", [], cells))


DECLARED = {
    "dots": {"lines": "method", "level_of": "A"},
    "curves": {"lines": "method", "panels": "k", "x": ["rounds", "clock"], "log": ["clock"]},
    "lines": {"lines": "method", "x_axis": "k", "log": ["k"]},
    "heat": {"lines": "method", "x_axis": "k"},
    "bars": {"panels": "method", "figure": "clients", "order": "snr", "unit": "dB"},
    "distribution": {"panels": "k", "lines": "method", "figure": "clients", "beside": ["B"]},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_drawn(kind, tmp_path):
    pytest.importorskip("matplotlib")
    figure = read_figure("s", {"file": "x.png", "kind": kind, **DECLARED[kind]})
    path = draw(figure, rows(), tmp_path)
    assert path is not None
    assert path.stat().st_size > 3000
    nothing = read_figure("s", {"file": "y.png", "kind": kind, "where": {"method": "C"}})
    assert draw(nothing, rows(), tmp_path) is None


def test_a_curve_leaves_out_the_untrained_model():
    places, means = _curve(rows()[:2], "clock", smooth=1)
    assert places.tolist() == [3.0, 6.0]
    assert [found.mean for found in means] == [0.5, 0.7]


def test_wrong_declarations_are_refused():
    with pytest.raises(StudyError, match=r"no kind of figure 'dot'\. Did you mean 'dots'"):
        read_figure("s", {"file": "x.png", "kind": "dot"})
    with pytest.raises(StudyError, match="has no file"):
        read_figure("s", {"kind": "dots"})
