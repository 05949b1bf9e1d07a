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


def measurement_payload(found: Measurement) -> dict[str, Any]:
    """Everything a measurement holds, per client too."""
    figures = found.figures
    share = skew_share(figures.hd, found.hd_ceiling, found.hd_chance)
    payload: dict[str, Any] = plain(
        {
            "source": found.counts.source,
            "notes": found.counts.notes,
            "seed": found.seed,
            "signal": {"source": found.signal.source, "epsilon": found.signal.epsilon},
            "figures": figures.scalars(),
            "figures_seen": found.seen.scalars() if found.private else None,
            "hd_ceiling": found.hd_ceiling,
            "jsd_ceiling": found.jsd_ceiling,
            "hd_chance": found.hd_chance,
            "skew_share": share,
            "skew": skew_word(share),
            "thresholds": thresholds_text(),
            "afls": {
                "procedure": "sequential" if found.sequential else "parallel",
                "omega": found.seen.omega,
                "threshold": found.omega_threshold,
                "threshold_classes": found.omega_classes,
            },
            "groupings": {grouping.rule.key: _grouping(grouping) for grouping in found.groupings},
            "chosen": found.chosen_grouping.rule.key,
            "labels": {
                "name": found.counts.labels,
                "examples": found.counts.table.sum(axis=0),
                "psi": figures.psi_per_class,
            },
            "clients": _clients(found),
            "empty_clients": [found.counts.clients[i] for i in figures.empty_clients],
            "verdict": verdict(found),
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
    found, details = grouping.clustering, grouping.clustering.details
    return {
        "paper": grouping.rule.title,
        "distance": grouping.rule.distance,
        "clustering": grouping.rule.clustering,
        "groups": found.k,
        "silhouette": found.silhouette,
        "quality": group_word(found.silhouette),
        "noise": grouping.num_noise,
        "noise_fraction": found.noise_fraction,
        "exact": found.exact,
        "fallback": grouping.fallback,
        "at_edge_of_scan": grouping.at_edge,
        "params": details.get("params", {}),
        "curve": details.get("curve"),
        "sizes": np.bincount(found.labels[found.labels >= 0], minlength=found.k),
        "seconds": grouping.seconds,
    }


def _clients(found: Measurement) -> dict[str, Any]:
    """Columns with one entry per client; cluster -1: none."""
    columns: dict[str, Any] = {
        "name": found.counts.clients,
        "examples": found.counts.table.sum(axis=1),
        "classes": found.figures.classes_per_client,
        "psi": found.figures.psi_per_client,
    }
    return columns | {
        f"{grouping.rule.key}_cluster": grouping.clustering.labels for grouping in found.groupings
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
