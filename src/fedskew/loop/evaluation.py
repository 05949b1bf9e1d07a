"""How good the models are, seen two ways that are never mixed (docs/methods.md 9.5).

- ``accuracy``: the one global model on the central test set. A method with several models has no
  such figure.
- ``client_accuracy``: every client's own model on the client's own test set, weighted by its number
  of test examples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedskew.accounting.fairness import weighted_mean
from fedskew.loop.method import Method, Setting
from fedskew.loop.serving import served
from fedskew.loop.slots import rehome
from fedskew.loop.training import score_clients
from fedskew.types import ScoreOrder, State

NAN = float("nan")


@dataclass(frozen=True)
class Evaluation:
    """Figures of one round; nan = not measured."""

    accuracy: float = NAN
    loss: float = NAN
    client_accuracy: float = NAN
    client_loss: float = NAN


def evaluate(setting: Setting, state: State) -> tuple[State, Evaluation]:
    """The figures that are due after the state's round, and the state with every client in the
    slot it was tested with.
    """
    method, one = setting.method, len(state.models) == 1
    everywhere = is_due(method, state.round, method.evaluate_every)
    of_clients = one_by_one(method, state.round)
    if not everywhere and not of_clients:
        return state, Evaluation()
    models = served(state)
    home = rehome(setting, replace(state, models=models)).home
    state = replace(state, home=home)
    quality = Evaluation()
    if one and everywhere:
        central = setting.runtime.evaluate(models)
        quality = Evaluation(float(central.accuracy[0]), float(central.loss[0]))
    if of_clients or not one:
        clients = range(setting.description.population.size)
        home = np.zeros(len(clients), np.int64) if home is None else home
        scores = score_clients(setting, state, ScoreOrder(clients, models, home, "test"))
        accuracy = weighted_mean(scores.accuracy, scores.num_examples)
        loss = weighted_mean(scores.loss, scores.num_examples)
        quality = replace(quality, client_accuracy=accuracy, client_loss=loss)
    return state, quality


def is_due(method: Method, round: int, every: int) -> bool:
    """Whether something done every so many rounds is done now; the first and last always are."""
    return round in (0, method.rounds) or (every > 0 and round % every == 0)


def one_by_one(method: Method, round: int) -> bool:
    """Whether clients are tested one by one although there is one model for all: only where the
    recipe asks for it.
    """
    return method.evaluate_clients_every > 0 and is_due(
        method, round, method.evaluate_clients_every
    )
