"""Clients that join late: their label mix is found as everybody's was, and they are put into the
nearest cluster.

Only a runtime whose clients come and go has any; for the others this is one comparison a round.
Nothing is clustered again: the groups the run has learnt on stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fedskew.accounting.traffic import histogram_transfers
from fedskew.loop.method import Setting, Stage
from fedskew.loop.nearest_cluster import nearest_clusters
from fedskew.loop.probe import head_updates
from fedskew.signal import read_releases
from fedskew.types import Clustering, Ints, Signal, State, Transfer


def source_of(setting: Setting, signal: Stage, clients: Ints) -> tuple[Any, tuple[Transfer, ...]]:
    """What a signal source wants to know of these clients, by the name of its first argument, and
    what that cost.

    Label ``counts``, the ``updates`` of a probe, or, where clients add the noise themselves, the
    finished private Signal.
    """
    description = setting.description
    if signal.wants == "updates":
        some = replace(
            description.population, num_examples=_only(description.population.num_examples, clients)
        )
        asked = replace(description, population=some)
        return head_updates(
            setting.runtime,
            asked,
            setting.initial,
            setting.seed,
            setting.method.clients_per_round,
            signal.options,
        )
    released: Callable[[Ints], Any] | None = getattr(setting.runtime, "released_counts", None)
    if signal.name == "private" and released is not None:
        known, noisy = released(clients)
        charge = histogram_transfers(int(known[clients].sum()), description.num_classes)
        return read_releases(noisy, epsilon=signal.options["epsilon"], known=known), charge
    counts = setting.runtime.label_counts()
    given = int(counts[clients].any(axis=1).sum())  # who discloses nothing sends nothing
    return counts, histogram_transfers(given, description.num_classes)


def welcome(setting: Setting, state: State) -> tuple[Setting, State, tuple[Transfer, ...]]:
    """The setting as it is now, and a state that knows the clients that have joined since it was
    made.
    """
    description = setting.runtime.describe()
    if description.population is not setting.description.population:
        setting = replace(setting, description=description)
    if state.signal is None or setting.method.signal is None:
        return setting, state, ()
    new = np.flatnonzero((description.population.num_examples > 0) & ~state.signal.known)
    if not len(new):
        return setting, state, ()
    given, transfers = source_of(setting, setting.method.signal, new)
    fresh = given if isinstance(given, Signal) else setting.method.signal(given, memory={})[0]
    clustering = place(setting, state, fresh, new)
    return (
        setting,
        replace(state, signal=merged(state.signal, fresh, new), clustering=clustering),
        transfers,
    )


def merged(old: Signal, fresh: Signal, clients: Ints) -> Signal:
    """The old signal with the rows of these clients taken from a fresh one."""
    rows, sizes, known = old.rows.copy(), old.num_examples.copy(), old.known.copy()
    rows[clients], sizes[clients], known[clients] = (
        fresh.rows[clients],
        fresh.num_examples[clients],
        fresh.known[clients],
    )
    return Signal(rows, sizes, old.source, old.epsilon, known)


def place(setting: Setting, state: State, fresh: Signal, clients: Ints) -> Clustering | None:
    """The stored clustering with these clients in it; the first clients of all are cluster 0."""
    found, distance = state.clustering, setting.method.distance
    if found is None or distance is None or state.signal is None:
        return found
    clients = clients[fresh.known[clients]]
    labels = found.labels.copy()
    newcomers = Signal(fresh.rows[clients], fresh.num_examples[clients], fresh.source)
    labels[clients] = nearest_clusters(newcomers, state.signal, found, distance) if found.k else 0
    return replace(found, labels=labels)


def _only(sizes: Ints, clients: Ints) -> Ints:
    return np.where(np.isin(np.arange(len(sizes)), clients), sizes, 0)
