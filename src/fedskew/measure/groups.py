"""Who groups with whom, by each paper's distance and clustering, and by the user's pair.

====================  =========  ========  =============================================
paper                 distance   cluster   what the number of groups is for
====================  =========  ========  =============================================
004 Clust-PSI-PFL     psi        kmeans    tau, one model per group
000 FedLECC           hellinger  optics    Jmax, the groups its J best are chosen from
002 similarity study  euclidean  kmedoids  c, one client of each group trains in a round
====================  =========  ========  =============================================

The similarity study compares nine distances; Euclidean is taken because it scales to any number of
clients.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedskew.recipe import check_options, find, stage_options
from fedskew.streams import stream
from fedskew.types import Clustering, Signal


@dataclass(frozen=True)
class Rule:
    """A way to group, and who proposed it."""

    key: str
    title: str
    distance: str
    clustering: str
    symbol: str = "groups"  # what the paper calls the number

    @property
    def how(self) -> str:
        """Distance and clustering in one phrase."""
        return f"{self.clustering} on {self.distance}"


PAPER_RULES = (
    Rule("clust_psi_pfl", "Clust-PSI-PFL", "psi", "kmeans", "τ"),
    Rule("fedlecc", "FedLECC", "hellinger", "optics", "Jmax"),
    Rule("similarity", "similarity study", "euclidean", "kmedoids", "c"),
)


@dataclass(frozen=True, eq=False)
class Grouping:
    """One rule and what it found."""

    rule: Rule
    clustering: Clustering
    seconds: float

    @property
    def num_noise(self) -> int:
        """Clients the algorithm itself put into no group, before the noise policy placed them."""
        noise = self.clustering.details.get("num_noise", 0)
        return int(noise)

    @property
    def clarity(self) -> float | None:
        """The silhouette with everybody in it; a density clustering is scored without its noise."""
        score, everyone = (
            self.clustering.silhouette,
            self.clustering.details.get("silhouette_of_all"),
        )
        return score if score is None or everyone is None else min(score, float(everyone))

    @property
    def how(self) -> str:
        """Distance and clustering that were really used."""
        return (
            self.rule.how
            if self.fallback is None
            else f"{self.fallback} on {self.rule.distance} (no {self.rule.clustering})"
        )

    @property
    def at_edge(self) -> bool:
        """Whether as many groups as were tried at most are best, though more are possible."""
        curve = self.clustering.details.get("curve")
        if curve is None or "noise_fractions" in curve:
            return False
        return bool(
            self.clustering.k == max(curve["counts"]) < self.clustering.details["num_known"] - 1
        )

    @property
    def fallback(self) -> str | None:
        """The algorithm that stepped in because the asked one found nothing acceptable."""
        used = self.clustering.details.get("fallback")
        return None if used is None else str(used)


def rules_for(
    distance: str | None = None, clustering: str | None = None
) -> tuple[tuple[Rule, ...], int]:
    """(the papers' rules and the user's pair if it is none of them, the position of that pair).

    >>> rules_for("hellinger", "optics")[1], rules_for("tv", "dbscan")[0][3].how
    (1, 'dbscan on tv')
    """
    distance, clustering = distance or "hellinger", clustering or "optics"
    for position, rule in enumerate(PAPER_RULES):
        if (rule.distance, rule.clustering) == (distance, clustering):
            return PAPER_RULES, position
    return (*PAPER_RULES, Rule("chosen", "your choice", distance, clustering)), len(PAPER_RULES)


def group(
    signal: Signal, rule: Rule, seed: int, options: Mapping[str, Mapping[str, Any]] | None = None
) -> Grouping:
    """Group the clients of a signal.

    ``options`` may hold a table for "distance" and one for "clustering".

    The random stream is that of a run with the same seed, so ``measure`` and ``run`` find the same
    groups.
    """
    tables = options or {}
    start = time.perf_counter()
    measure_distance = find("distance", rule.distance)
    cluster = find("clustering", rule.clustering)
    distance_options = check_options(
        "distance", stage_options("distance", measure_distance), tables.get("distance", {})
    )
    clustering_options = check_options(
        "clustering", stage_options("clustering", cluster), tables.get("clustering", {})
    )
    clustering = cluster(
        measure_distance(signal, **distance_options), stream(seed, "cluster"), **clustering_options
    )
    return Grouping(rule, clustering, time.perf_counter() - start)
