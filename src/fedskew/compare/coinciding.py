"""Methods that turn out to be the same: every round of every seed gives the same models' figures.

AFLS that finds too little skew to train in sequence is FedAvg, and so is a selection rule that is
asked for everybody: its row is no second piece of evidence, and its curve hides another.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedskew.compare.ranking import Entry
from fedskew.experiment.run import Run


def coinciding(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Groups of two or more methods that coincide, in the order of the methods."""
    groups: list[list[Entry]] = []
    for entry in entries:
        found = next((group for group in groups if _coincide(group[0], entry)), None)
        if found is None:
            groups.append([entry])
        else:
            found.append(entry)
    return [group for group in groups if len(group) > 1]


def twins_of(label: str, groups: Sequence[Sequence[Entry]]) -> list[str]:
    """The methods that coincide with one of them, itself left out."""
    inside = next((group for group in groups if label in [entry.label for entry in group]), ())
    return [entry.label for entry in inside if entry.label != label]


def _coincide(one: Entry, other: Entry) -> bool:
    """Whether two methods have the same seeds, and under each of them the same figures."""
    ours, theirs = ({run.seed: run for run in entry.finished} for entry in (one, other))
    return (
        bool(ours)
        and set(ours) == set(theirs)
        and all(_same(ours[seed], theirs[seed]) for seed in ours)
    )


def _same(one: Run, other: Run) -> bool:
    """Curves alone may agree by chance where there are few test examples: losses do not."""
    return (
        len(one.rounds) == len(other.rounds) > 1
        and one.curve.is_global == other.curve.is_global
        and np.array_equal(one.curve.rounds, other.curve.rounds)
        and np.array_equal(one.curve.accuracy, other.curve.accuracy)
        and np.array_equal(one.curve.loss, other.curve.loss, equal_nan=True)
        and _accuracies(one) == _accuracies(other)
    )


def _accuracies(run: Run) -> list[str]:
    return [repr(value) for value in run.clients.get("accuracy", ())]
