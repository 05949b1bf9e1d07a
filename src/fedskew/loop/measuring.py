"""Finding out who the clients are: their label mixes, how far apart they are, their groups."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from fedskew.accounting.traffic import histogram_transfers
from fedskew.loop.costs import NOTHING, histogram_cost, throw_away_cost
from fedskew.loop.method import Setting, Stage
from fedskew.loop.probe import Probed, head_updates
from fedskew.loop.timing import late_clients
from fedskew.loop.training import train_in_time
from fedskew.signal import read_releases
from fedskew.streams import stream
from fedskew.types import Cost, Ints, Replies, Signal, State, TrainOrder, Transfer


@dataclass(frozen=True)
class Effort:
    """What it took to find something out."""

    transfers: tuple[Transfer, ...] = ()
    cost: Cost = NOTHING
    failures: dict[int, str] = field(default_factory=dict)  # client -> why nothing is known of it


def measure(setting: Setting, state: State) -> tuple[State, Effort]:
    """Signal, distance and clustering of everybody with examples, as far as the recipe has them."""
    method = setting.method
    if method.signal is None:
        return state, Effort()
    clients = np.flatnonzero(setting.description.population.num_examples)
    signal, effort = label_signal(setting, method.signal, clients)
    state = replace(state, signal=signal)
    if method.distance is not None and method.clustering is not None:
        geometry = method.distance(signal)
        clustering = method.clustering(geometry, stream(setting.seed, "cluster"))
        state = replace(state, clustering=clustering)
    return state, effort


def label_signal(setting: Setting, signal: Stage, clients: Ints) -> tuple[Signal, Effort]:
    """The label mix of these clients, by whatever the source wants (the name of its first argument
    says it): label ``counts``, or the ``updates`` of a probe; where clients add the noise
    themselves, the finished private Signal.
    """
    if signal.wants == "updates":
        probed = _probe(setting, signal, clients)
        cost = _probe_cost(setting, probed)
        return signal(probed.updates), Effort(probed.transfers, cost, probed.failures)
    found = _from_counts(setting, signal, clients)
    given = clients[found.known[clients]]  # who discloses nothing sends nothing
    transfers = histogram_transfers(len(given), setting.description.num_classes)
    withheld = {int(client): "gave no label counts" for client in np.setdiff1d(clients, given)}
    return found, Effort(transfers, histogram_cost(setting, given), withheld)


def _from_counts(setting: Setting, signal: Stage, clients: Ints) -> Signal:
    released = setting.runtime.released_counts(clients) if signal.name == "private" else None
    if released is not None:
        epsilon = signal.options["epsilon"]
        return read_releases(released.counts, epsilon=epsilon, known=released.known)
    counted: Signal = signal(setting.runtime.label_counts())
    return counted


def _probe(setting: Setting, signal: Stage, clients: Ints) -> Probed:
    """Let these clients train a little from the run's first model."""

    def train(order: TrainOrder) -> Replies:
        return train_in_time(setting, order, late_clients(setting, order.clients, order.job))

    sizes = setting.description.population.num_examples
    only = np.where(np.isin(np.arange(len(sizes)), clients), sizes, 0)
    some = replace(setting.description.population, num_examples=only)
    description = replace(setting.description, population=some)
    budget = setting.method.clients_per_round
    return head_updates(
        setting.runtime,
        description,
        setting.initial,
        setting.seed,
        budget,
        signal.options,
        train=train,
    )


def _probe_cost(setting: Setting, probed: Probed) -> Cost:
    size = setting.description.layout.bytes
    total = NOTHING
    for attempt in probed.attempts:
        total += throw_away_cost(
            setting, attempt.clients, probed.job, up=size, silent=attempt.silent
        )
    return total
