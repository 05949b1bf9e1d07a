"""``references.json`` of a run with one global model: the rows its personalised rivals are shown
with, one after the other.

``{row: {"accuracy": [per client, null = no test examples], "test_examples": [per client]}}``, or
``{row: {"failed": why}}``; beside them ``run``, the mark of the run they belong to.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedskew.errors import RunFolderError
from fedskew.records.files import read_json, write_sealed

REFERENCES = "references.json"
COMPUTED = ("majority_class", "fine_tuned", "centralised")
References = Mapping[str, Mapping[str, Any]]


def read_references(folder: Path, mark: str = "") -> dict[str, dict[str, Any]]:
    """The rows kept in a run folder; none if there is no such file. ``mark``: the run they must
    belong to.
    """
    path = folder / REFERENCES
    if not path.is_file():
        return {}
    remedy = "Remove this file; fedskew compare makes it again"
    rows = read_json(path, mark=mark, remedy=remedy)
    rows.pop("run", None)
    if not all(_is_row(row) for row in rows.values()):
        raise RunFolderError(str(path), "is damaged", remedy)
    return rows


def write_references(folder: Path, rows: References, mark: str = "") -> None:
    """Replace the rows kept in a run folder; ``mark`` says which run they belong to."""
    write_sealed(folder / REFERENCES, {**rows, "run": mark})


def _is_row(row: Any) -> bool:
    if not isinstance(row, dict):
        return False
    if "failed" in row:
        return True
    accuracy, examples = row.get("accuracy"), row.get("test_examples")
    if (
        not isinstance(accuracy, list)
        or not isinstance(examples, list)
        or len(accuracy) != len(examples)
    ):
        return False
    return all(a is None or isinstance(a, int | float) for a in accuracy) and all(
        isinstance(n, int) for n in examples
    )
