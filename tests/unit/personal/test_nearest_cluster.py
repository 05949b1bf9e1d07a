"""Clients that come later are placed by the stored scale and centres; clients with labels nobody
expected are no accident.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedskew.clustering import CLUSTERINGS
from fedskew.data import build_shards, load
from fedskew.distance import DISTANCES
from fedskew.errors import SignalError
from fedskew.loop.method import Stage
from fedskew.loop.nearest_cluster import assign_newcomers
from fedskew.signal.histogram import histogram
from fedskew.types import Clustering

FOLDER = Path(__file__).resolve().parents[4] / "shared" / "data"
needs_shared = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"{FOLDER} is not there")
COUNTS = np.array(
    [[90, 10, 0], [85, 15, 0], [88, 12, 0], [2, 8, 90], [0, 5, 95], [1, 9, 90], [0, 0, 0]]
)


def clustered(name, algorithm="kmeans", **options):
    signal, distance = histogram(COUNTS), Stage(name, DISTANCES[name], options)
    return (
        signal,
        CLUSTERINGS[algorithm](distance.function(signal, **options), np.random.default_rng(0)),
        distance,
    )


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [("psi", "kmeans"), ("hellinger", "kmeans"), ("js_div", "kmedoids"), ("psi", "optics")],
)
def test_old_clients_find_their_own_cluster(name, algorithm):
    signal, found, distance = clustered(name, algorithm)
    assert found.k >= 2
    assert assign_newcomers(COUNTS, signal, found, distance).tolist() == found.labels.tolist()


@pytest.mark.parametrize("name", ["psi", "hellinger"])
def test_a_clustering_from_outside_needs_no_centres(name):
    signal, found, distance = clustered(name)
    bare = Clustering(found.labels)
    assert assign_newcomers(COUNTS, signal, bare, distance).tolist() == found.labels.tolist()


def test_a_newcomer_does_not_move_the_reference():
    """A thousand newcomers of one class would change the label mix; placed by the stored one
    each is placed alone.
    """
    signal, found, distance = clustered("psi")
    crowd = np.vstack([[[87, 13, 0]], np.tile([0, 0, 1000], (1000, 1))])
    alone = [assign_newcomers([row], signal, found, distance)[0] for row in crowd[:2]]
    assert assign_newcomers(crowd, signal, found, distance)[:2].tolist() == alone
    assert alone[0] in found.labels[:3]
    assert alone[1] in found.labels[3:6]


def test_a_class_nobody_had_is_placed_not_refused():
    signal, found, distance = clustered("psi", signed=True)
    only_first = histogram(np.array([[5, 5, 0], [9, 1, 0], [1, 9, 0], [5, 5, 0]]))
    clusters = CLUSTERINGS["kmeans"](
        distance.function(only_first, signed=True), np.random.default_rng(0)
    )
    assert assign_newcomers([[0, 0, 7]], only_first, clusters, distance)[0] in range(clusters.k)
    with pytest.raises(SignalError, match="4 classes, the federation knows 3"):
        assign_newcomers([[1, 2, 3, 4]], signal, found, distance)


@needs_shared
@pytest.mark.parametrize("clients", [10, 50, 100])
def test_acsincome_without_similarity_has_three_clusters(clients, tmp_path, monkeypatch):
    """docs/methods.md 3.5: only-low, only-high and one mixed client; paper 004 Fig 6: tau = 3 at
    any K.
    """
    monkeypatch.setenv("FEDSKEW_DATA", str(tmp_path))
    data = load("acsincome", folder=FOLDER)
    for seed in range(3):
        shards = build_shards(
            data, clients=clients, partition="similarity", options={"similarity": 0.0}, seed=seed
        )
        signal = histogram(shards.label_counts)
        found = CLUSTERINGS["kmeans"](DISTANCES["psi"](signal), np.random.default_rng(seed))
        assert found.k == 3
        # the mixed client is alone and scores 0: (K - 1) / K at best
        assert found.silhouette >= 0.89
        everyone = assign_newcomers(
            shards.label_counts, signal, found, Stage("psi", DISTANCES["psi"])
        )
        assert everyone.tolist() == found.labels.tolist()


@needs_shared
def test_acsincome_dirichlet_has_few_clusters(tmp_path, monkeypatch):
    """Paper 004 Fig 5: 3, 4, 3 clusters for K = 10, 50, 100 at alpha 0.3."""
    monkeypatch.setenv("FEDSKEW_DATA", str(tmp_path))
    data = load("acsincome", folder=FOLDER)
    counts = []
    for seed in range(5):
        shards = build_shards(
            data, clients=100, partition="dirichlet", options={"alpha": 0.3}, seed=seed
        )
        found = CLUSTERINGS["kmeans"](
            DISTANCES["psi"](histogram(shards.label_counts)), np.random.default_rng(seed)
        )
        counts.append(found.k)
    assert all(2 <= k <= 6 for k in counts), counts
    assert sum(k in (3, 4) for k in counts) >= 3, counts
