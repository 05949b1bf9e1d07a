"""What the server knows of label mixes: from noisy counts, and from an update all the same."""

from __future__ import annotations

from typing import Any

from sklearn.metrics import adjusted_rand_score

from fedskew.evidence.cells import Cell
from fedskew.experiment.world import dataset_of, factory_of, shards_of, store_of
from fedskew.loop.measuring import PROBE
from fedskew.loop.method import Stage
from fedskew.loop.probe import head_updates
from fedskew.recipe import method_of
from fedskew.runtime.local.runtime import LocalRuntime
from fedskew.signal import estimated, histogram
from fedskew.signal.quality import estimation_quality
from fedskew.streams import stream
from fedskew.types import Ints, Signal


def known(cell: Cell) -> dict[str, Any]:
    """How far told and estimated label mixes are from the truth, and how many clusters move."""
    dataset = dataset_of(cell.recipe)
    shards = shards_of(cell.recipe, dataset, cell.seed)
    truth = histogram(shards.label_counts)
    method = method_of(cell.recipe)
    assert isinstance(method.signal, Stage)
    told = method.signal(shards.label_counts)
    groups = [_groups(cell, signal) for signal in (truth, told)]
    factory = factory_of(cell.recipe, dataset)
    with LocalRuntime(store_of(shards), factory, workers=1) as runtime:
        first = runtime.initial(cell.seed)
        about = runtime.describe()
        probed = head_updates(runtime, about, first, cell.seed, shards.clients, PROBE)
    read = estimated(probed.updates)
    sizes = shards.train.sizes

    def off(signal: Signal) -> float:
        return estimation_quality(truth.rows, signal.rows, sizes).total_variation

    return {
        "total_variation": off(told),
        "rand_index": float(adjusted_rand_score(*groups)),
        "from_update": off(read),
    }


def _groups(cell: Cell, signal: Signal) -> Ints:
    """The clusters of the cell's recipe."""
    method = method_of(cell.recipe)
    assert isinstance(method.distance, Stage)
    assert isinstance(method.clustering, Stage)
    found = method.clustering(method.distance(signal), stream(cell.seed, "cluster"))
    labels: Ints = found.labels
    return labels
