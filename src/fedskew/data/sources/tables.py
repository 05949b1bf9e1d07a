"""Two tables with natural clients, read from a Parquet file in a folder you name.

ACSIncome: does a person earn more than 50,000 dollars (Ding, Hardt, Miller, Schmidt, NeurIPS 2021,
from the US census)? Serengeti: which animal is on a camera-trap picture, guessed from when and
where it was taken (Swanson et al. 2015). Columns that tell the label (PINCP; decision,
determination, label_name) and the survey weight PWGTP are never features.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError
from ..arrays import from_arrays
from ..dataset import Dataset
from .nih import drop_absent
from .source import Info, Source, find_one

if TYPE_CHECKING:
    import pandas as pd

ACS_FEATURES = ("AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX", "RAC1P")
SERENGETI_FEATURES = ("season", "site_col", "site_row", "roll", "frame", "total_animals")
ACS_INFO = Info(
    title="ACSIncome 2018, 14 US states: income above 50,000 dollars",
    examples=90_636,
    test_examples=0,
    classes=2,
    origin="acsincome*.parquet in a folder you name",
    license="public domain (US Census Bureau)",
    size_mb=0.8,
    default_model="logistic",
    needs_folder=True,
)
SERENGETI_INFO = Info(
    title="Snapshot Serengeti capture events, 11 classes",
    examples=20_170,
    test_examples=0,
    classes=11,
    origin="serengeti*.parquet in a folder you name",
    license="CC0",
    size_mb=0.2,
    default_model="mlp500",
    needs_folder=True,
)


def read_parquet(folder: Path, pattern: str, columns: tuple[str, ...]) -> tuple[Path, pd.DataFrame]:
    """The named columns of the one Parquet file in ``folder`` that fits ``pattern``."""
    try:
        import pandas as pd
    except ImportError as error:
        raise DataError(
            f"folder {folder}", "pandas is not installed", "pip install 'fedskew[tables]'"
        ) from error
    path = find_one(folder, pattern)[0]
    try:
        return path, pd.read_parquet(path, columns=list(columns))
    # pyarrow's errors are OSErrors, ValueErrors or KeyErrors
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise DataError(
            f"file {path}",
            f"cannot be read ({str(error)[:200]})",
            f"It needs the columns {', '.join(columns)}",
        ) from error


def read_acsincome(folder: Path) -> Dataset:
    """The ten folktables columns as raw codes; ``STATE`` and ``PUMA`` name clients.

    ``PUMA`` is made unique with its state.
    """
    path, table = read_parquet(
        folder, "acsincome*.parquet", ("STATE", "PUMA", "label", *ACS_FEATURES)
    )
    state = table["STATE"].astype(str).to_numpy(dtype=np.str_)
    puma = np.array([f"{s}-{p:05d}" for s, p in zip(state, table["PUMA"].tolist(), strict=True)])
    return _table(
        "acsincome",
        ACS_INFO,
        path,
        table,
        ACS_FEATURES,
        ("up to 50k", "above 50k"),
        {"STATE": state, "PUMA": puma},
    )


def read_serengeti(folder: Path) -> Dataset:
    """Season, camera grid cell, film roll, frame and animal count; ``site`` names clients.

    Rows without a roll number (2 of 20,172) are dropped. The animal count is 0 exactly for the
    class ``blank``.
    """
    columns = ("site", "label", "label_name", *SERENGETI_FEATURES)
    path, table = read_parquet(folder, "serengeti*.parquet", columns)
    table = table.dropna(subset=list(SERENGETI_FEATURES))
    named = table[["label", "label_name"]].drop_duplicates().sort_values("label")
    table = table.assign(site_col=[ord(letter[0]) - ord("A") for letter in table["site_col"]])
    site = table["site"].to_numpy(dtype=np.str_)
    return _table(
        "serengeti",
        SERENGETI_INFO,
        path,
        table,
        SERENGETI_FEATURES,
        tuple(named["label_name"]),
        {"site": site},
    )


def _table(
    name: str,
    info: Info,
    path: Path,
    table: pd.DataFrame,
    features: tuple[str, ...],
    class_names: tuple[str, ...],
    columns: dict[str, NDArray[Any]],
) -> Dataset:
    labels = table["label"].to_numpy(dtype=np.int64)
    labels, present = drop_absent(labels, int(labels.max(initial=0)) + 1)
    names = (
        class_names if len(class_names) == len(present) else tuple(class_names[c] for c in present)
    )
    return from_arrays(
        table[list(features)].to_numpy(dtype=np.float32),
        labels,
        name=name,
        num_classes=len(present),
        class_names=names,
        columns=columns,
        default_model=info.default_model,
        license=info.license,
        source=path.name,
    )


ACSINCOME = Source(
    info=ACS_INFO, find=lambda folder: find_one(folder, "acsincome*.parquet"), read=read_acsincome
)
SERENGETI = Source(
    info=SERENGETI_INFO,
    find=lambda folder: find_one(folder, "serengeti*.parquet"),
    read=read_serengeti,
)
