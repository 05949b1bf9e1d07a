"""In which order methods were compared and what they were called, kept beside their runs: a report
or a figure made of the folder later shows them in the same order, so in the same colours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fedskew.compare.contenders import Contender
from fedskew.errors import RunFolderError
from fedskew.records import disk_errors, read_json, write_sealed

LINEUP = "comparison.json"
REMEDY = "Remove the file: only the order of the methods is lost"


def keep_lineup(folder: Path, contenders: Sequence[Contender]) -> None:
    """Write down the methods of a comparison; what an earlier one left there is replaced."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_sealed(
            folder / LINEUP, {"methods": [[one.fingerprint, one.label] for one in contenders]}
        )


def read_lineups(folders: Iterable[str | Path]) -> dict[str, str]:
    """Fingerprint -> what the method was called, in the order of the comparisons made there."""
    found: dict[str, str] = {}
    for folder in folders:
        if (path := Path(folder) / LINEUP).is_file():
            found = _methods(path) | found
    return found


def _methods(path: Path) -> dict[str, str]:
    methods = read_json(path, remedy=REMEDY).get("methods")
    if not isinstance(methods, list) or not all(_is_method(one) for one in methods):
        raise RunFolderError(str(path), "does not list methods", REMEDY)
    return dict(methods)


def _is_method(value: object) -> bool:
    return (
        isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) for part in value)
    )


def in_order(fingerprints: Iterable[str], lineup: Mapping[str, str]) -> list[str]:
    """Those of the line-up first, in its order, then the others as they come.

    >>> in_order(["afls", "fedavg", "new"], {"fedavg": "FedAvg", "gone": "", "afls": "AFLS"})
    ['fedavg', 'afls', 'new']
    """
    places = {fingerprint: number for number, fingerprint in enumerate(lineup)}
    return sorted(fingerprints, key=lambda one: places.get(one, len(places)))
