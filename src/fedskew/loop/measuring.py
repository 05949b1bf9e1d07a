"""Finding out who the clients are: their label mixes, how far apart they are, their groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any

import numpy as np

from fedskew.accounting.traffic import histogram_transfers
from fedskew.loop.costs import NOTHING, histogram_cost, throw_away_cost
from fedskew.loop.method import Setting, Stage
from fedskew.loop.probe import PROBE_ROUNDS, Probed, bias_slice, head_updates
from fedskew.loop.timing import late_clients
from fedskew.loop.training import train_in_time
from fedskew.loop.trust.book import open_book, with_book
from fedskew.loop.trust.mixes import judge, noise_allowance
from fedskew.signal import estimated, read_releases
from fedskew.signal.private import SENSITIVITY
from fedskew.streams import stream
from fedskew.types import Cost, Floats, Ints, Replies, Signal, State, TrainOrder, Transfer

# what checks a claimed label mix: the defaults of signal.use = "estimated"
PROBE = {key: option.default for key, option in signature(estimated).parameters.items()}


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
    found, effort = label_signal(setting, method.signal, clients)
    state, signal, effort = checked(setting, state, found, clients, effort)
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
        probed = _probe(setting, signal.options, clients)
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


def checked(
    setting: Setting, state: State, found: Signal, clients: Ints, effort: Effort
) -> tuple[State, Signal, Effort]:
    """Label mixes that these clients claim, checked by a probe (``[trust]``): what is refuted is
    replaced by what the client's update shows, and of whoever does not train nothing is known.
    """
    trust, layout = setting.method.trust, setting.description.layout
    reads = trust.head_trained and bias_slice(layout, setting.description.num_classes) is not None
    if not (trust.on and trust.probe and reads) or found.source == "estimated":
        return state, found, effort
    claim = np.zeros(len(found.known), np.bool_)
    claim[clients] = found.known[clients]
    again = 0 if state.signal is None else 1 + state.round
    rounds = [first + 2 * again for first in PROBE_ROUNDS]
    probed = _probe(setting, PROBE, np.flatnonzero(claim), rounds)
    book, limits = open_book(state), trust.mix_gap + _allowance(setting, found)
    verdict = judge(found.rows, claim, probed.updates, PROBE["lr"], limits)
    known = found.known.copy()
    known[verdict.silent] = False
    rows = np.where(known[:, None], verdict.rows, 0.0)
    untrue = dict.fromkeys(verdict.refuted.tolist(), "its label counts contradict its own update")
    spent = Effort(
        effort.transfers + probed.transfers,
        effort.cost + _probe_cost(setting, probed),
        {**effort.failures, **probed.failures, **untrue},
    )
    return (
        with_book(state, book.stain(verdict.refuted)),
        replace(found, rows=rows, known=known),
        spent,
    )


def _allowance(setting: Setting, found: Signal) -> Floats:
    """(K,) how far the noise of private counts may move a label mix."""
    signal, scale = setting.method.signal, 0.0
    if found.epsilon is not None and signal is not None:
        scale = SENSITIVITY[signal.options.get("neighbours", "add_remove")] / found.epsilon
    sizes = setting.description.population.num_examples
    return noise_allowance(sizes, setting.description.num_classes, scale)


def _probe(
    setting: Setting,
    options: Mapping[str, Any],
    clients: Ints,
    rounds: Sequence[int] = PROBE_ROUNDS,
) -> Probed:
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
        options,
        train=train,
        rounds=rounds,
    )


def _probe_cost(setting: Setting, probed: Probed) -> Cost:
    size = setting.description.layout.bytes
    total = NOTHING
    for attempt in probed.attempts:
        total += throw_away_cost(
            setting, attempt.clients, probed.job, up=size, silent=attempt.silent
        )
    return total
