"""Runs and processes in Prometheus's text format.

A sample is a line ``name{label="value"} number``; before the first of a name stand its HELP and
TYPE.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedskew.deploy.run_watch import KINDS, OTHER, RunWatch

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
DIRECTIONS = ("down", "up", "d2d")


@dataclass(frozen=True)
class Family:
    """All samples of one name."""

    name: str
    kind: str  # gauge or counter
    help: str
    samples: Sequence[tuple[Mapping[str, str], float]]

    def lines(self) -> list[str]:
        """As they are sent."""
        head = [f"# HELP {self.name} {self.help}", f"# TYPE {self.name} {self.kind}"]
        return [
            *head,
            *(f"{self.name}{labels_text(labels)} {number(v)}" for labels, v in self.samples),
        ]


def labels_text(labels: Mapping[str, str]) -> str:
    r"""Labels in braces, whatever their values hold.

    >>> print(labels_text({"run": 'a "b" \\ c'}))
    {run="a \"b\" \\ c"}
    """
    if not labels:
        return ""
    cells = [f'{name}="{_escaped(value)}"' for name, value in labels.items()]
    return "{" + ",".join(cells) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def number(value: float) -> str:
    """A number as Prometheus reads it.

    >>> number(3), number(0.25), number(float("nan")), number(float("-inf"))
    ('3', '0.25', 'NaN', '-Inf')
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return f"{value:d}" if isinstance(value, int) else repr(float(value))


def exposition(runs: Mapping[str, RunWatch], processes: Mapping[str, bool]) -> str:
    """Everything there is to say, as one text. Watches have looked before."""
    families = [
        *(family for family in _of_runs(runs) if runs),
        Family(
            "fedskew_process_up",
            "gauge",
            "Whether a process of this fleet runs.",
            [({"process": name}, int(alive)) for name, alive in processes.items()],
        ),
    ]
    return "".join(line + "\n" for family in families for line in family.lines())


def _of_runs(runs: Mapping[str, RunWatch]) -> Iterable[Family]:
    def one(name: str, kind: str, help: str, values: Iterable[float]) -> Family:
        return Family(
            f"fedskew_{name}", kind, help,
            [({"run": run}, v) for run, v in zip(runs, values, strict=True)],
        )  # fmt: skip

    watches = list(runs.values())
    figures = [watch.figures for watch in watches]
    yield one("round", "gauge", "Last round that ended, -1 for none.", [f.round for f in figures])
    yield one("rounds_planned", "gauge", "Rounds of the recipe.", [w.planned for w in watches])
    yield one("finished", "gauge", "Whether the result is there.", [w.finished for w in watches])
    yield one("damaged", "gauge", "Whether a record is damaged.", [w.damaged for w in watches])
    yield one(
        "accuracy", "gauge", "Newest accuracy of the global model on the central test set.",
        [f.accuracy for f in figures],
    )  # fmt: skip
    yield one(
        "client_accuracy", "gauge", "Newest accuracy of the clients' models on their own data.",
        [f.client_accuracy for f in figures],
    )  # fmt: skip
    yield one("replies_total", "counter", "Replies used.", [f.replies for f in figures])
    yield Family(
        "fedskew_failures_total", "counter", "Replies not used, by sort of reason.",
        [
            ({"run": run, "reason": kind}, watch.figures.failures[kind])
            for run, watch in runs.items()
            for kind in (*KINDS, OTHER)
        ],
    )  # fmt: skip
    yield Family(
        "fedskew_bytes_total", "counter", "Payload by direction, as the ledger charges it.",
        [
            ({"run": run, "direction": way}, watch.figures.bytes[way])
            for run, watch in runs.items()
            for way in DIRECTIONS
        ],
    )  # fmt: skip
    yield one("seconds_total", "counter", "Wall time of all rounds.", [f.seconds for f in figures])
    yield one(
        "round_seconds", "gauge", "Wall time of the last round.", [f.last_seconds for f in figures]
    )
    yield one(
        "simulated_seconds_total", "counter", "Time of all rounds on modelled devices.",
        [f.simulated_seconds for f in figures],
    )  # fmt: skip
    yield one(
        "last_round_timestamp_seconds", "gauge", "When the last round was written.",
        [w.last_change for w in watches],
    )  # fmt: skip


def names_of(folders: Sequence[Path]) -> list[str]:
    """A short name for each folder, by which no two are confused.

    >>> names_of([Path("/srv/a/run"), Path("/srv/b/run")])
    ['a/run', 'b/run']
    """
    short = ["/".join(folder.parts[-2:]) for folder in folders]
    return short if len(set(short)) == len(short) else [str(folder) for folder in folders]
