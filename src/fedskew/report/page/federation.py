"""The federation card: skew figures, label heat map, map of the clients, order of the clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedskew.distance import skew_figures
from fedskew.errors import FedskewError
from fedskew.experiment.run import Run
from fedskew.measure.counts import Counts
from fedskew.measure.groups import PAPER_RULES, Grouping, group
from fedskew.measure.measurement import Measurement, measure, signal_of
from fedskew.measure.sources import counts_of_run
from fedskew.measure.wording import verdict
from fedskew.records import Labels
from fedskew.report.figures.client_map import principal_plane
from fedskew.report.figures.heatmap import make_bands, sort_clients
from fedskew.types import Ints

# clients: above, three groupings take longer than a person waits for a report
MOST_MEASURED = 2_000
MOST_BANDS = 400  # columns of the heat map
MOST_DOTS = 1_500  # places on the map
MEANINGS = {
    "HD": "Hellinger distance: how much the label mixes of two clients differ",
    "JSD": "Jensen-Shannon distance: how much clients' label mixes differ from their mean",
    "WPSI": "weighted population stability index: how far clients' label mixes lie from that of "
    "all data, larger clients counting more; labels that a client lacks weigh most",
    "omega": "AFLS's skew: how far the average label mix lies from each client's; it grows with "
    "the labels that clients lack",
    "size Gini": "how unevenly the examples are spread over clients",
}


@dataclass(frozen=True, eq=False)
class Order:
    """Clients in the order they are drawn, and the cluster of each in that order (-1: none)."""

    clients: Ints  # (K,)
    labels: Ints  # (K,)
    how: str


@dataclass(eq=False)
class Groups:
    """Groups of the clients, found once per seed."""

    _groupings: dict[int, Grouping | None] = field(default_factory=dict)
    cards: dict[int, dict[str, Any] | None] = field(default_factory=dict)

    def of(self, run: Run) -> Grouping | None:
        """FedLECC's groups of a run's clients (Clust-PSI-PFL's above a few thousand clients);
        None without label counts.
        """
        if run.seed not in self._groupings:
            counts = None if run.labels is None else _known_counts(run.labels)
            rule = PAPER_RULES[1 if run.num_clients <= MOST_MEASURED else 0]
            try:
                self._groupings[run.seed] = (
                    None
                    if counts is None
                    else group(signal_of(counts, "histogram", {}), rule, run.seed)
                )
            except FedskewError:  # for example one client only: nothing to group
                self._groupings[run.seed] = None
        return self._groupings[run.seed]

    def order(self, run: Run) -> Order:
        """By the run's own clusters, else by the federation's groups, else by number."""
        size = run.num_clients
        clusters = run.clients.get("cluster")
        grouping = self.of(run)
        if clusters is None and grouping is None:
            return Order(np.arange(size), np.full(size, -1), "clients by number")
        if clusters is not None:
            labels = np.array(clusters, np.int64)
            how = "clients by the method's own clusters"
        else:
            assert grouping is not None
            labels = grouping.clustering.labels
            how = f"clients by cluster ({grouping.how})"
        rows = (
            np.eye(1)[np.zeros(size, np.int64)] if run.labels is None else _rows(run.labels.counts)
        )
        clients = sort_clients(rows, labels)
        return Order(clients, labels[clients], how)


def _rows(counts: Ints) -> Any:
    return counts / np.maximum(1, counts.sum(axis=1, keepdims=True))


def federation_of(run: Run, groups: Groups) -> dict[str, Any] | None:
    """The card of one run's federation; None if its label counts are not to be had."""
    if run.seed not in groups.cards:
        groups.cards[run.seed] = _card(run, groups)
    return groups.cards[run.seed]


def _card(run: Run, groups: Groups) -> dict[str, Any] | None:
    counts = _counts(run)
    if counts is None:
        return None
    grouping = groups.of(run)
    measurement = measure(counts, seed=run.seed) if counts.num_clients <= MOST_MEASURED else None
    known = np.flatnonzero(counts.table.sum(axis=1) > 0)
    rows = _rows(counts.table)[known]
    labels = (
        np.zeros(len(known), np.int64) if grouping is None else grouping.clustering.labels[known]
    )
    return {
        "seed": run.seed,
        "verdict": "" if measurement is None else verdict(measurement),
        "facts": _facts(counts, measurement),
        "grouping": "" if grouping is None else grouping.how,
        "classes": list(counts.labels),
        "names": list(counts.clients) if counts.num_clients <= MOST_MEASURED else None,
        "heat": _heat(rows, labels, known),
        "map": _map(rows, labels, known),
    }


def _counts(run: Run) -> Counts | None:
    if run.labels is not None:
        return _known_counts(run.labels)
    try:  # folders written by earlier versions keep no counts: deal the data again
        return counts_of_run(run.folder)[0] if run.folder is not None else None
    except FedskewError:
        return None


def _known_counts(labels: Labels) -> Counts:
    return Counts(labels.counts, labels.clients, labels.class_names, "run")


def _facts(counts: Counts, measurement: Measurement | None) -> list[list[str]]:
    """(figure, value, what to compare it with, what it means)."""
    f = skew_figures(counts.table) if measurement is None else measurement.figures
    sizes = f"{f.size_min:,.0f} / {f.size_median:,.0f} / {f.size_max:,.0f}"
    ceilings: Mapping[str, float] = (
        {}
        if measurement is None
        else {"hd": measurement.hd_ceiling, "jsd": measurement.jsd_ceiling}
    )
    afls = ""
    if measurement is not None:
        choice = "sequential" if measurement.sequential else "parallel"
        afls = f"AFLS: {choice} (threshold {measurement.omega_threshold:.2f})"
    classes = f"{f.classes_min} / {f.classes_mean:.1f} / {f.classes_max}"
    empty = f"{len(f.empty_clients)} without examples" if len(f.empty_clients) else ""
    facts = [
        ["clients", f"{f.num_clients:,}", empty],
        ["examples", f"{f.num_examples:,.0f}", f"per client {sizes} (min / median / max)"],
        ["classes", f"{f.num_classes}", f"per client {classes} (min / mean / max)"],
        ["HD", f"{f.hd:.3f}", f"ceiling {ceilings['hd']:.3f}" if ceilings else ""],
        ["JSD", f"{f.jsd:.3f}", f"ceiling {ceilings['jsd']:.3f}" if ceilings else ""],
        ["WPSI", f"{f.wpsi:.3f}", "0 = all alike"],
        ["omega", f"{f.omega:.3f}", afls],
        ["size Gini", f"{f.size_gini:.3f}", "0 = all as large"],
    ]
    return [[*fact, MEANINGS.get(fact[0], "")] for fact in facts]


def _heat(rows: Any, labels: Ints, known: Ints) -> dict[str, Any]:
    """Shares of the labels in per cent, a row per band of clients, sorted by cluster."""
    order = sort_clients(rows, labels)
    bands = make_bands(rows[order], labels[order], MOST_BANDS)
    single = len(bands.edges) - 1 == len(order)
    return {
        "edges": bands.edges,
        "clients": known[order] if single else None,
        "shares": np.round(1000 * bands.rows).astype(int).tolist(),
        "cluster_edges": bands.cluster_edges,
        "clusters": bands.clusters,
    }


def _map(rows: Any, labels: Ints, known: Ints) -> dict[str, Any]:
    """One dot per place: x, y, cluster, number of clients, one of them."""
    places, shares = principal_plane(np.sqrt(rows))
    span = max(float(np.ptp(places, axis=0).max()), 1e-12)
    cells = 400 if len(rows) <= MOST_DOTS else 40
    grid = np.column_stack([np.round(places / span * cells).astype(np.int64), labels])
    _, first, sizes = np.unique(grid, axis=0, return_index=True, return_counts=True)
    dots = np.column_stack([np.round(places[first] / span, 4), labels[first], sizes, known[first]])
    return {"dots": dots.tolist(), "explained": np.round(shares, 3), "clients": len(rows)}
