"""A run that ends when its simulated time or its bytes are used up, its [finish] included.

After each round it is asked whether another one as dear as the dearest so far, and then what the
[finish] costs, would still fit. The answer follows from the records alone, so a run that was killed
ends where it would have ended.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedskew.accounting.traffic import feature_transfers, total_bytes
from fedskew.loop.costs import feature_cost
from fedskew.loop.evaluation import evaluate
from fedskew.loop.federation import run as play
from fedskew.loop.finishing import moment_bytes
from fedskew.loop.method import Setting
from fedskew.types import CalibrationRule, RoundRecord, State, Transfer


@dataclass(frozen=True)
class Spent:
    """Simulated seconds and bytes, of all directions."""

    seconds: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.seconds + other.seconds, self.bytes + other.bytes)

    def dearer(self, other: Spent) -> Spent:
        """The larger of both, figure by figure."""
        return Spent(max(self.seconds, other.seconds), max(self.bytes, other.bytes))

    def exceeds(self, budget: Spent) -> bool:
        """Whether it is more than a budget; 0 is no limit.

        >>> Spent(9.0, 5.0).exceeds(Spent(seconds=10.0)), Spent(9.0, 5.0).exceeds(Spent(bytes=4.0))
        (False, True)
        """
        late = 0 < budget.seconds < self.seconds
        return late or 0 < budget.bytes < self.bytes


def budget_of(recipe: Mapping[str, Any]) -> Spent:
    """What the recipe's [run] allows."""
    return Spent(recipe["run"]["max_seconds"], recipe["run"]["max_megabytes"] * 1e6)


def play_within(
    setting: Setting, state: State | None, records: Sequence[RoundRecord], budget: Spent
) -> Iterator[tuple[State, RoundRecord]]:
    """The rounds of a run from a state, and its [finish], as long as the budget allows."""
    if budget == Spent():
        yield from play(setting, state)
        return
    ending, meter = finish_spends(setting), Meter()
    for record in records:
        meter = meter.after(record, budget, ending)
    if meter.end is None:
        for reached, record in play(setting, state):
            meter = meter.after(record, budget, ending)
            over = meter.end is not None and meter.end < setting.method.rounds
            state, record = _looked_at(setting, reached, record) if over else (reached, record)
            yield state, record
            if over:
                break
    end = meter.end
    if state is not None and end is not None and end < setting.method.rounds:
        yield from play(_ended(setting, end), state)


def _looked_at(setting: Setting, state: State, record: RoundRecord) -> tuple[State, RoundRecord]:
    """The last round, tested as every last round is."""
    if not (math.isnan(record.accuracy) and math.isnan(record.client_accuracy)):
        return state, record
    state, quality = evaluate(_ended(setting, record.round), state)
    return state, replace(
        record,
        accuracy=quality.accuracy,
        test_loss=quality.loss,
        client_accuracy=quality.client_accuracy,
        client_loss=quality.client_loss,
    )


def _ended(setting: Setting, rounds: int) -> Setting:
    return replace(setting, method=replace(setting.method, rounds=rounds))


@dataclass(frozen=True)
class Meter:
    """What a run has spent so far; ``end`` is the first round after which another one would not
    fit, None as long as there is none. One round is always played.
    """

    spent: Spent = Spent()
    dearest: Spent = Spent()
    end: int | None = None

    def after(self, record: RoundRecord, budget: Spent, ending: Spent) -> Meter:
        """With one more round."""
        cost = spends(record)
        spent = self.spent + cost
        dearest = self.dearest.dearer(cost) if record.round else self.dearest
        full = record.round and (spent + dearest + ending).exceeds(budget)
        return Meter(spent, dearest, record.round if self.end is None and full else self.end)


def spends(record: RoundRecord) -> Spent:
    """What a round took."""
    return Spent(record.cost.seconds, _bytes(record.transfers))


def _bytes(transfers: Sequence[Transfer]) -> int:
    return sum(total_bytes(transfers, way) for way in ("down", "up", "d2d"))


def finish_spends(setting: Setting) -> Spent:
    """What the [finish] will take at most: as if the slowest clients were among those it asks."""
    rule = None if setting.method.finish is None else setting.method.finish.rule
    if not isinstance(rule, CalibrationRule):
        return Spent()
    description = setting.description
    head = description.layout.head(description.num_classes)
    if head is None:
        return Spent()  # calibrating says why that is no good
    clients = np.flatnonzero(description.population.num_examples > 0)
    asked = min(rule.clients or len(clients), len(clients))
    size = moment_bytes(*head[0].shape)
    sent = feature_transfers(asked, description.layout.bytes, size)
    return Spent(feature_cost(setting, clients, size).seconds, _bytes(sent))
