"""Measurements as plain values for JSON: numbers, texts, lists; what is not defined is null."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from fedskew.measure.groups import Grouping
from fedskew.measure.measurement import Measurement
from fedskew.measure.privacy import PrivacyTable
from fedskew.measure.wording import group_word, skew_share, skew_word, thresholds_text, verdict


def measurement_payload(measurement: Measurement) -> dict[str, Any]:
    """Everything a measurement holds, per client too."""
    figures = measurement.figures
    share = skew_share(figures.hd, measurement.hd_ceiling, measurement.hd_chance)
    payload: dict[str, Any] = plain(
        {
            "source": measurement.counts.source,
            "notes": measurement.counts.notes,
            "seed": measurement.seed,
            "signal": {"source": measurement.signal.source, "epsilon": measurement.signal.epsilon},
            "figures": figures.scalars(),
            "figures_seen": measurement.seen.scalars() if measurement.private else None,
            "hd_ceiling": measurement.hd_ceiling,
            "jsd_ceiling": measurement.jsd_ceiling,
            "hd_chance": measurement.hd_chance,
            "skew_share": share,
            "skew": skew_word(share),
            "thresholds": thresholds_text(),
            "afls": {
                "procedure": "sequential" if measurement.sequential else "parallel",
                "omega": measurement.seen.omega,
                "threshold": measurement.omega_threshold,
                "threshold_classes": measurement.omega_classes,
            },
            "groupings": {
                grouping.rule.key: _grouping(grouping) for grouping in measurement.groupings
            },
            "chosen": measurement.chosen_grouping.rule.key,
            "labels": {
                "name": measurement.counts.labels,
                "examples": measurement.counts.table.sum(axis=0),
                "psi": figures.psi_per_class,
            },
            "clients": _clients(measurement),
            "empty_clients": [measurement.counts.clients[i] for i in figures.empty_clients],
            "verdict": verdict(measurement),
        }
    )
    return payload


def privacy_payload(table: PrivacyTable) -> dict[str, Any]:
    """The table of ``fedskew privacy``."""
    payload: dict[str, Any] = plain(
        {
            "source": table.counts.source,
            "notes": table.counts.notes,
            "mechanism": table.mechanism,
            "neighbours": table.neighbours,
            "repeats": table.repeats,
            "rules": {rule.key: rule.how for rule in table.rules},
            "rows": [asdict(row) for row in table.rows],
        }
    )
    return payload


def _grouping(grouping: Grouping) -> dict[str, Any]:
    clustering = grouping.clustering
    details = grouping.clustering.details
    return {
        "paper": grouping.rule.title,
        "distance": grouping.rule.distance,
        "clustering": grouping.rule.clustering,
        "groups": clustering.k,
        "silhouette": clustering.silhouette,
        "silhouette_with_noise": grouping.clarity,
        "quality": group_word(grouping.clarity),
        "noise": grouping.num_noise,
        "noise_fraction": clustering.noise_fraction,
        "exact": clustering.exact,
        "fallback": grouping.fallback,
        "at_edge_of_scan": grouping.at_edge,
        "params": details.get("params", {}),
        "curve": details.get("curve"),
        "sizes": np.bincount(clustering.labels[clustering.labels >= 0], minlength=clustering.k),
        "seconds": grouping.seconds,
    }


def _clients(measurement: Measurement) -> dict[str, Any]:
    """Columns with one entry per client; cluster -1: none."""
    columns: dict[str, Any] = {
        "name": measurement.counts.clients,
        "examples": measurement.counts.table.sum(axis=1),
        "classes": measurement.figures.classes_per_client,
        "psi": measurement.figures.psi_per_client,
    }
    return columns | {
        f"{grouping.rule.key}_cluster": grouping.clustering.labels
        for grouping in measurement.groupings
    }


def plain(value: Any) -> Any:
    """Only what JSON knows.

    >>> plain({"a": np.array([1.0, np.nan]), 2: (np.int64(3), float("inf"))})
    {'a': [1.0, None], '2': [3, None]}
    """
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            return [plain(item) for item in value.tolist()]
        return value.tolist()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value
