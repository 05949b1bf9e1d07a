"""How many groups of PSI profiles there are; nothing is trained."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedskew.evidence.cells import Cell
from fedskew.loop.method import Stage
from fedskew.measure import counts_of_data
from fedskew.recipe import method_of
from fedskew.signal import histogram
from fedskew.streams import stream


def clusters(cell: Cell) -> dict[str, Any]:
    """The number of clusters that the cell's recipe finds, and their silhouette."""
    table = counts_of_data(cell.recipe, seed=cell.seed).table
    method = method_of(cell.recipe)
    distance, clustering = method.distance, method.clustering
    assert isinstance(distance, Stage)
    assert isinstance(clustering, Stage)
    found = clustering(distance(histogram(table)), stream(cell.seed, "cluster"))
    labels = np.asarray(found.labels)
    return {
        "clusters": len(np.unique(labels[labels >= 0])),
        "silhouette": float(found.silhouette),
    }
