"""One model per group of similar clients, trained side by side and never mixed (Clust-PSI-PFL).

Jimenez-Gutierrez et al.: Clust-PSI-PFL (paper 004), section III-B: the clients of each cluster
train a FedAvg model of their own; with ``signal.histogram``, ``distance.psi``,
``clustering.kmeans`` and ``selection.stratified`` that is the paper's method (docs/methods.md 7.1).
Any other signal, distance and clustering may stand in front of it. All clusters begin with the same
model and train in one wave; a cluster that nobody serves in a round keeps its model; with one
cluster this is FedAvg bit for bit.

Differs from the paper:

- Clients in no cluster (no training examples, or left out as noise) live in the cluster with the
  most clients, and train on its model if they are ever selected. The paper puts everybody into a
  cluster.
"""

from __future__ import annotations

import numpy as np

from fedskew.errors import RunError
from fedskew.types import Chain, Ints, Plan, View, declares, needs


def homes_of(labels: Ints) -> Ints:
    """(K,) the slot of each client: its cluster, or the largest one for those in none.

    Of equally large ones the first.

    >>> homes_of(np.array([0, 1, 1, -1])), homes_of(np.array([-1, -1]))
    (array([0, 1, 1, 1]), array([0, 0]))
    """
    inside = labels[labels >= 0]
    largest = int(np.bincount(inside).argmax()) if len(inside) else 0
    return np.where(labels >= 0, labels, largest)


@needs("clustering")
@declares(several_models=True)
def per_cluster(ids: Ints, view: View, rng: np.random.Generator) -> Plan:
    """One chain of length one per selected client, on the model of its cluster."""
    if view.clustering is None:
        raise RunError(
            "procedure per_cluster",
            "there is no clustering",
            "Add [signal], [distance] and [clustering]",
        )
    home = homes_of(view.clustering.labels)
    return Plan(tuple(Chain(int(home[client]), (int(client),)) for client in ids), home=home)
