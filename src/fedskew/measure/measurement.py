"""Everything that can be said about a federation from its label counts alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from fedskew.clustering.optics import EXACT_LIMIT
from fedskew.distance import SkewFigures, skew_figures
from fedskew.labels.omega import cap_classes, omega_balanced, reaches
from fedskew.measure.counts import Counts
from fedskew.measure.groups import Grouping, group, rules_for
from fedskew.measure.yardsticks import hd_by_chance, one_class_each
from fedskew.recipe import check_options, find, stage_options
from fedskew.types import Floats, Signal

Options: TypeAlias = Mapping[str, Mapping[str, Any]]
# docs/methods.md 6.4: sequential when clients are as one-sided as with 2 classes each
AFLS_CLASSES = 2
MOST_DRAWN = 18  # clusters a figure can tell apart, see fedskew.report.figures.style
MINUTES_FROM = 15_000  # clients: OPTICS takes about 40 s there


@dataclass(frozen=True, eq=False)
class Measurement:
    """Figures and groups of one federation."""

    counts: Counts
    figures: SkewFigures  # of the counts themselves
    signal: Signal  # what the rules look at
    # the figures of that signal: the same object as ``figures`` unless it is private
    seen: SkewFigures
    hd_ceiling: float  # HD if every client had one class, for this many clients and classes
    jsd_ceiling: float
    # HD if the same examples had been dealt at random to clients of the same sizes
    hd_chance: float
    omega_threshold: float  # AFLS: sequential from here on
    omega_classes: int  # the threshold is omega of clients with this many classes
    groupings: tuple[Grouping, ...]
    chosen: int  # the grouping that sorts the figures
    seed: int = 0

    @property
    def num_active(self) -> int:
        """Clients that have examples."""
        return self.figures.num_clients - len(self.figures.empty_clients)

    @property
    def chosen_grouping(self) -> Grouping:
        """The grouping the user asked for."""
        return self.groupings[self.chosen]

    @property
    def private(self) -> bool:
        """Whether the rules look at noisy counts."""
        return self.signal.source == "private"

    @property
    def sequential(self) -> bool:
        """What AFLS would do (docs/methods.md 6.4): True = one client after another."""
        return self.omega_threshold > 0 and reaches(self.seen.omega, self.omega_threshold)

    def grouping(self, key: str) -> Grouping:
        """The grouping of one paper's rule."""
        return next(grouping for grouping in self.groupings if grouping.rule.key == key)


def measure(
    counts: Counts,
    *,
    signal: str = "histogram",
    distance: str | None = None,
    clustering: str | None = None,
    options: Options | None = None,
    seed: int = 0,
    eps: float = 1e-6,
    on_step: Callable[[str], None] = lambda text: None,
) -> Measurement:
    """Measure a federation.

    ``options``: tables "signal", "distance", "clustering" as in a recipe, for the chosen stages.

    ``distance`` and ``clustering`` choose the grouping that sorts the figures; without either it is
    FedLECC's, or another one if that has too many clusters to be drawn. ``on_step`` is told what
    comes next, once per step.

    >>> pairs = np.kron(np.eye(5, dtype=int), [[9, 9], [9, 9]])
    >>> result = measure(Counts(pairs, list("abcdefghij"), list("0123456789")))
    >>> round(result.figures.omega, 3), result.sequential
    (8.888, True)
    >>> [grouping.clustering.k for grouping in result.groupings]
    [5, 5, 5]
    """
    on_step("skew figures")
    tables = options or {}
    figures = skew_figures(counts.table, eps=eps)
    source = signal_of(counts, signal, tables.get("signal", {}))
    seen = skew_figures(seen_counts(source), eps=eps) if source.source == "private" else figures
    classes = figures.num_classes
    threshold_classes = cap_classes(AFLS_CLASSES, classes)
    ceilings = one_class_each(figures.num_clients - len(figures.empty_clients), classes)
    chance = hd_by_chance(counts, seed)
    rules, chosen = rules_for(distance, clustering)
    groupings = []
    for position, rule in enumerate(rules):
        on_step(f"groups: {rule.how}{patience(rule.clustering, len(counts.table))}")
        groupings.append(group(source, rule, seed, tables if position == chosen else None))
    if distance is None and clustering is None:
        chosen = drawable(groupings, chosen)
    return Measurement(
        counts=counts,
        figures=figures,
        signal=source,
        seen=seen,
        hd_ceiling=ceilings[0],
        jsd_ceiling=ceilings[1],
        hd_chance=chance,
        omega_threshold=omega_balanced(threshold_classes, classes, eps=eps),
        omega_classes=threshold_classes,
        groupings=tuple(groupings),
        chosen=chosen,
        seed=seed,
    )


def patience(clustering: str, clients: int) -> str:
    """A word where a rule takes minutes: OPTICS looks at every pair of clients as far as it is
    exact.

    >>> patience("optics", 30_000), patience("optics", 900), patience("kmeans", 30_000)
    (' (minutes)', '', '')
    """
    slow = clustering == "optics" and MINUTES_FROM <= clients <= EXACT_LIMIT
    return " (minutes)" if slow else ""


def drawable(groupings: Sequence[Grouping], first: int) -> int:
    """The grouping to draw, by position: the first if it can be told apart, else the best such."""
    readable = [
        i for i, grouping in enumerate(groupings) if 2 <= grouping.clustering.k <= MOST_DRAWN
    ]
    if first in readable or not readable:
        return first
    return max(readable, key=lambda i: groupings[i].clustering.silhouette or 0.0)


def num_steps(distance: str | None, clustering: str | None) -> int:
    """How often :func:`measure` calls ``on_step``."""
    return 1 + len(rules_for(distance, clustering)[0])


def signal_of(counts: Counts, use: str, options: Mapping[str, Any]) -> Signal:
    """The signal of this name, from counts."""
    source = find("signal", use)
    signal: Signal = source(
        counts.table, **check_options("signal", stage_options("signal", source), options)
    )
    return signal


def seen_counts(signal: Signal) -> Floats:
    """Counts as the server reconstructs them; a client with nothing but noise is one example."""
    sizes = np.where(signal.num_examples > 0, signal.num_examples, 1.0)
    table: Floats = signal.rows * sizes[:, None]
    return table
