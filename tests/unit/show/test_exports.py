"""Runs in other people's tools; a tool that is not installed is one clear line."""

from __future__ import annotations

import importlib
import sys
import types

import pytest
from played import write_run

from fedskew.compare.comparison import Comparison
from fedskew.errors import DataError
from fedskew.report import exports
from fedskew.report.exports import flat, to_mlflow, to_parquet, to_tensorboard


@pytest.fixture
def comparison(tmp_path):
    write_run(tmp_path / "a" / "seed-0", "ours")
    write_run(tmp_path / "a" / "seed-1", "ours", 1)
    return Comparison.read(tmp_path / "a")


def missing(monkeypatch, name):
    real = importlib.import_module

    def refuse(module, *rest):
        if module == name:
            raise ImportError(module)
        return real(module, *rest)

    monkeypatch.setattr(exports.importlib, "import_module", refuse)


def test_a_tool_that_is_not_there_is_named(comparison, tmp_path, monkeypatch):
    missing(monkeypatch, "mlflow")
    with pytest.raises(DataError, match="MLflow is not installed"):
        to_mlflow(comparison, "x")
    missing(monkeypatch, "torch.utils.tensorboard")
    with pytest.raises(DataError, match="TensorBoard is not installed"):
        to_tensorboard(comparison, tmp_path / "tb")


class Recorder:
    """Stands for MLflow: writes down what it is told."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def call(*args, **kwargs):
            self.calls.append((name, args, kwargs))
            return self

        return call

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def test_mlflow_hears_of_every_round(comparison, monkeypatch):
    said = Recorder()
    module = types.ModuleType("mlflow")
    for name in (
        "set_tracking_uri",
        "set_experiment",
        "start_run",
        "set_tags",
        "log_params",
        "log_metrics",
    ):
        setattr(module, name, getattr(said, name))
    monkeypatch.setitem(sys.modules, "mlflow", module)
    assert to_mlflow(comparison, "file:here") == 2
    steps = [
        kwargs["step"]
        for name, _, kwargs in said.calls
        if name == "log_metrics" and "step" in kwargs
    ]
    assert steps == [0, 1, 2, 3, 4, 5, 6] * 2
    params = next(args[0] for name, args, _ in said.calls if name == "log_params")
    assert (params["seed"], params["run.rounds"]) == (0, "6")
    metrics = [
        args[0]
        for name, args, kwargs in said.calls
        if name == "log_metrics" and kwargs.get("step") == 1
    ]
    assert metrics[0]["bytes_up"] == 3 * 9640
    assert "client_accuracy" not in metrics[0]  # not known: not logged


def test_long_values_are_cut_for_mlflow():
    assert len(flat({"data": {"folder": "x" * 1000}})["data.folder"]) == 250


def test_parquet_tables_can_be_read_back(comparison, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    paths = to_parquet(comparison, tmp_path / "t")
    assert {path.stem for path in paths} == {"rounds", "choices", "transfers", "clients", "scores"}
    table = parquet.read_table(tmp_path / "t" / "choices.parquet")
    assert table.num_rows == 2 * 6 * 3
    assert table.column("recipe").unique().to_pylist() == ["ours"]


def test_figures_for_papers_show_the_means(comparison, tmp_path):
    pytest.importorskip("matplotlib")
    from fedskew.report.figures.paper import draw_curves, draw_ecdf, save_paper_figures

    line = draw_curves(comparison).axes[0].get_lines()[0]
    first, second = (run.rounds for run in comparison.entries[0].runs)
    assert line.get_xdata().tolist() == list(range(7))
    assert line.get_ydata()[3] == pytest.approx((first[3].accuracy + second[3].accuracy) / 2)
    steps = draw_ecdf(comparison).axes[0].get_lines()[0]
    assert steps.get_ydata()[-1] == 1
    # four resources and the ECDF, PNG and SVG
    assert len(save_paper_figures(comparison, tmp_path / "f")) == 10
