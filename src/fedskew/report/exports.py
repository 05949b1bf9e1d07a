"""Runs handed to other tools: Parquet tables, MLflow, TensorBoard.

Each library is imported only when it is asked for.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedskew.compare.comparison import Comparison
from fedskew.compare.scores import scores_of
from fedskew.errors import DataError
from fedskew.experiment.run import Run
from fedskew.experiment.tables import TABLES, round_rows
from fedskew.foreign import file_name

LONGEST_PARAM = 250  # characters MLflow accepts everywhere
LIBRARIES = {  # what is exported -> module, what it is called, how to get it
    "tables": ("pyarrow.parquet", "pyarrow", "'fedskew[tables]'"),
    "figures": ("matplotlib", "matplotlib", "'fedskew[report]'"),
    "mlflow": ("mlflow", "MLflow", "mlflow-skinny"),
    "tensorboard": ("torch.utils.tensorboard", "TensorBoard", "tensorboard"),
}


def check_ready(wanted: Mapping[str, Path | str | None]) -> None:
    """Whether everything that is wanted (kind -> where to) can be exported; an error, before
    anything is written, if not.
    """
    for kind, where in wanted.items():
        if where is None:
            continue
        _library(kind)
        if isinstance(where, Path) and where.exists() and not where.is_dir():
            raise DataError(f"export --{kind}", f"{where} is a file", "Name a folder")


def to_mlflow(comparison: Comparison, uri: str, *, experiment: str = "fedskew") -> int:
    """Log every run to an MLflow store; returns the number of runs.

    Parameters, a metric per round, final scores.
    """
    mlflow = _library("mlflow")
    try:
        mlflow.set_tracking_uri(uri)
        mlflow.set_experiment(experiment)
    except Exception as error:  # whatever the store is, MLflow says what is wrong with it
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"export --mlflow {uri}", what, "Give a store that MLflow can open"
        ) from error
    number = 0
    for label, run in _runs(comparison):
        with mlflow.start_run(run_name=f"{label}, seed {run.seed}"):
            mlflow.set_tags({"recipe": label, "finished": str(run.finished)})
            mlflow.log_params({"seed": run.seed, **flat(run.recipe)})
            for step, metrics in metrics_by_round(run):
                mlflow.log_metrics(metrics, step=step)
            mlflow.log_metrics(
                {f"score/{key}": value for key, value in _known(scores_of(run)).items()}
            )
        number += 1
    return number


def to_tensorboard(comparison: Comparison, folder: Path) -> int:
    """Write event files, a folder per run, for ``tensorboard --logdir``; returns how many runs."""
    writer_class = _library("tensorboard").SummaryWriter
    number = 0
    for label, run in _runs(comparison):
        with writer_class(str(folder / file_name(label) / f"seed-{run.seed}")) as writer:
            for step, metrics in metrics_by_round(run):
                for key, value in metrics.items():
                    writer.add_scalar(key, value, step)
        number += 1
    return number


def to_parquet(comparison: Comparison, folder: Path) -> list[Path]:
    """Every tidy table as a Parquet file."""
    parquet = _library("tables")
    paths = [folder / f"{table}.parquet" for table in (*TABLES, "scores")]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in paths:
            parquet.write_table(comparison.arrow(path.stem), path)
    except OSError as error:
        raise DataError(
            str(folder), error.strerror or str(error), "Choose another folder"
        ) from None
    return paths


def metrics_by_round(run: Run) -> Iterator[tuple[int, dict[str, float]]]:
    """(round, what is known of it)."""
    for row in round_rows(run.rounds):
        yield int(row.pop("round")), _known(row)


def flat(recipe: Mapping[str, Any]) -> dict[str, str]:
    """A resolved recipe as one level of short texts.

    >>> flat({"name": "a", "local": {"lr": 0.1, "batch": 8}})
    {'name': 'a', 'local.lr': '0.1', 'local.batch': '8'}
    """
    params: dict[str, str] = {}
    for key, value in recipe.items():
        inside = (
            {f"{key}.{k}": v for k, v in value.items()}
            if isinstance(value, Mapping)
            else {key: value}
        )
        params |= {name: str(v)[:LONGEST_PARAM] for name, v in inside.items()}
    return params


def _runs(comparison: Comparison) -> Iterator[tuple[str, Run]]:
    for entry, run in comparison.runs:
        yield entry.label, run


def _known(values: Mapping[str, Any]) -> dict[str, float]:
    return {key: float(value) for key, value in values.items() if not math.isnan(value)}


def _library(kind: str) -> Any:
    module, title, package = LIBRARIES[kind]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        what = f"{title} is not installed"
        raise DataError(f"export --{kind}", what, f"pip install {package}") from error
