"""Clients that join late: their label mix is found as everybody's was, and they are put into the
nearest cluster.

Only a runtime whose clients come and go has any; for the others this is one comparison a round.
Nothing is clustered again: the groups the run has learnt on stay as they are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedskew.loop.measuring import Effort, checked, label_signal
from fedskew.loop.method import Setting
from fedskew.loop.nearest_cluster import nearest_clusters
from fedskew.types import Clustering, Ints, Signal, State


def admit(setting: Setting, state: State) -> tuple[Setting, State, Effort]:
    """The setting as it is now, and a state that knows the clients that have joined since."""
    description = setting.runtime.describe()
    if description.population is not setting.description.population:
        setting = replace(setting, description=description)
    before = state.signal
    if before is None or setting.method.signal is None:
        return setting, state, Effort()
    new = np.flatnonzero((description.population.num_examples > 0) & ~before.known)
    if not len(new):
        return setting, state, Effort()
    fresh, effort = label_signal(setting, setting.method.signal, new)
    state, fresh, effort = checked(setting, state, fresh, new, effort)
    clustering = place(setting, state, fresh, new)
    known = replace(state, signal=merged(before, fresh, new), clustering=clustering)
    return setting, known, effort


def merged(old: Signal, fresh: Signal, clients: Ints) -> Signal:
    """The old signal with the rows of these clients taken from a fresh one."""
    rows, sizes, known = old.rows.copy(), old.num_examples.copy(), old.known.copy()
    rows[clients] = fresh.rows[clients]
    sizes[clients] = fresh.num_examples[clients]
    known[clients] = fresh.known[clients]
    return Signal(rows, sizes, old.source, old.epsilon, known)


def place(setting: Setting, state: State, fresh: Signal, clients: Ints) -> Clustering | None:
    """The stored clustering with these clients in it; the first clients of all are cluster 0."""
    clustering, distance = state.clustering, setting.method.distance
    if clustering is None or distance is None or state.signal is None:
        return clustering
    clients = clients[fresh.known[clients]]
    labels = clustering.labels.copy()
    newcomers = Signal(fresh.rows[clients], fresh.num_examples[clients], fresh.source)
    labels[clients] = 0
    if clustering.k:
        labels[clients] = nearest_clusters(newcomers, state.signal, clustering, distance)
    return replace(clustering, labels=labels)
