"""Where a method has no value, the page shows none: a curve that ended long ago is not "here"."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from fedskew import Comparison, Run
from fedskew.report.page.html import _file
from fedskew.report.page.payload import payload_of
from fedskew.types import RoundRecord

NAN = float("nan")
STUBS = """
const App = { state: { x: "round" } };
const nearestOf = (list, far) => list.reduce((a, b) => (far(b) < far(a) ? b : a));
const share = (n) => n.toFixed(3), plain = String, colour = String;
const sv = () => null;
const x = (n) => n; x.back = (n) => n;
"""
ASK = """
const points = (list) => list.map(([round, y]) => ({ round, x: round, y, half: 0, n: 1 }));
const line = (label, list, number) => ({ method: { label }, number, points: points(list) });
const lines = LINES.map(([label, list], number) => line(label, list, number));
const found = curvesHover(lines, { left: 0, right: 100, top: 0, bottom: 1 }, x, (n) => n, AT);
console.log(JSON.stringify(found.lines.map((text) => (Array.isArray(text) ? text[1] : text))));
"""


def hover(lines, at: float) -> list[str]:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    ask = ASK.replace("LINES", json.dumps(lines)).replace("AT", str(at))
    script = STUBS + _file("js/curves.js") + ask
    done = subprocess.run(["node", "-e", script], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_the_tooltip_leaves_out_curves_that_have_no_value_there():
    going = ["fedavg", [[t, 0.1 + t / 100] for t in range(0, 41, 5)]]
    untrained = ["clust_psi_pfl", [[0, 0.133]]]
    assert hover([going, untrained], 40) == ["round 40", "fedavg: 0.500"]
    assert len(hover([going, untrained], 1)) == 3
    assert len(hover([going, ["fedlecc", [[t, 0.4] for t in range(0, 41, 10)]]], 35)) == 3


def test_a_method_without_a_global_model_has_no_curve_of_one():
    """It had one before training, which is nobody's result."""

    def record(t: int) -> RoundRecord:
        measured = 0.133 if t == 0 else NAN
        return RoundRecord(t, (), {}, {}, (), measured, 2.0, 0.0, {}, client_accuracy=0.5 + t / 10)

    recipe = {
        "name": "clust_psi_pfl", "data": {"use": "digits", "clients": 2},
        "partition": {"use": "iid"}, "model": {"use": "mlp"},
        "run": {"rounds": 3, "clients_per_round": 2, "evaluate_every": 1},
    }  # fmt: skip
    run = Run(recipe, 0, [record(t) for t in range(4)], {"client": [0, 1]})
    series = payload_of(Comparison.of([run]))["methods"][0]["runs"][0]["series"]
    assert "accuracy" not in series
    assert series["client_accuracy"] == [0.5, 0.6, 0.7, 0.8]
