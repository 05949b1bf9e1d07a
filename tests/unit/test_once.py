"""`fedskew run` resolves a recipe once, and no figure of a run is computed twice by one command."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

pytest.importorskip("torch")

from typer.testing import CliRunner

from fedskew.cli import main as cli
from fedskew.experiment import figures
from fedskew.recipe import method_of, resolve

SMALL = ["--set", "run.rounds=2", "--set", "model.use=logistic", "--quiet", "--workers", "1"]
FIGURES = (
    "curve_of", "final_accuracy", "last_accuracy", "best_accuracy", "accuracy_at", "spent",
    "to_target", "times_selected", "evenness", "share_never_chosen", "summary",
)  # fmt: skip


@pytest.fixture
def counted(monkeypatch):
    """Count the calls of a function, wherever it was imported to; by its arguments."""
    calls: Counter[tuple] = Counter()
    seen: list[object] = []  # kept, so that no two runs have one id

    def count(function):
        def counting(subject, *rest, **options):
            seen.append(subject)
            key = (function.__name__, id(subject), rest, tuple(sorted(options.items())))
            calls[key] += 1
            return function(subject, *rest, **options)

        for module in list(sys.modules.values()):
            if getattr(module, "__name__", "").startswith("fedskew") and (
                vars(module).get(function.__name__) is function
            ):
                monkeypatch.setattr(module, function.__name__, counting)
        return calls

    return count


def invoke(*arguments):
    done = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, (done.output, done.exception)


def number_of(calls, name):
    return sum(times for (called, *_), times in calls.items() if called == name)


def test_a_run_resolves_its_recipe_once(tmp_path, counted):
    import fedskew.experiment.local  # noqa: F401 (the command imports it when it is needed)

    calls = counted(resolve)
    counted(method_of)
    invoke("run", "fedlecc", *SMALL, "--out", tmp_path / "r", "--target", "0.1")
    assert (number_of(calls, "resolve"), number_of(calls, "method_of")) == (1, 1)


def test_a_comparison_resolves_each_recipe_once(tmp_path, counted):
    calls = counted(resolve)
    invoke("compare", "fedavg", "fedlecc", *SMALL, "--seeds", "0", "--out", tmp_path)
    assert number_of(calls, "resolve") == 2


def test_a_run_computes_no_figure_twice(tmp_path, counted):
    for name in FIGURES:
        calls = counted(getattr(figures, name))
    invoke("run", "fedavg", *SMALL, "--out", tmp_path / "r", "--target", "0.1", "--json")
    assert {key[0] for key, times in calls.items() if times > 1} == set()
    assert {"curve_of", "summary", "to_target", "final_accuracy"} <= {name for name, *_ in calls}


def test_a_comparison_with_a_report_computes_no_figure_twice(tmp_path, counted):
    """Two methods, one of them personalised, with reference rows."""
    arguments = ("compare", "fedavg", "clust_psi_pfl", *SMALL, "--seeds", "0-1", "--out", tmp_path)
    invoke(*arguments)
    counted(figures.fairness_of)
    for name in FIGURES:
        calls = counted(getattr(figures, name))
    invoke(*arguments, "--target", "0.1", "--budget", "bytes", "--report", tmp_path / "r.html")
    assert {key[0] for key, times in calls.items() if times > 1} == set()
    assert number_of(calls, "final_accuracy") == 4
    assert number_of(calls, "to_target") == 4
    assert number_of(calls, "accuracy_at") == 4
    assert number_of(calls, "fairness_of") == 4 + 2 + 3 * 2  # runs, local_only, three rows each
