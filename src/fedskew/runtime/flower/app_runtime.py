"""The runtime whose clients train by an app of somebody else's: the loop's orders become Flower's
ordinary train and evaluate messages, and the model is the app's ArrayRecord as a flat vector.

What training, testing and losses are is the app's business; a client's size and seconds are known
once it has told them. So rules that prescribe how to train, or that want a loss without training,
cannot be played here (:mod:`fedskew.experiment.app_recipe` says so before anything runs).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from flwr.app import RecordDict
from flwr.serverapp import Grid

from fedskew.accounting.fairness import weighted_mean
from fedskew.aggregation.shares import bounded, usual_share
from fedskew.errors import RunError
from fedskew.runtime.border import LOSS, Number
from fedskew.runtime.flower.answers import reply_of
from fedskew.runtime.flower.app_arrays import AppArrays
from fedskew.runtime.flower.app_letters import Writer, first, merged, metrics_of, words
from fedskew.runtime.flower.app_seats import Seats
from fedskew.runtime.flower.app_terms import Diary, Terms, population_of, told
from fedskew.runtime.flower.exchange import Letter, Outcome, exchange
from fedskew.runtime.flower.policy import FIRST_PROBE
from fedskew.runtime.replies import collect
from fedskew.streams import stream
from fedskew.types import (
    Auxiliary,
    Bools,
    Description,
    Floats,
    Ids,
    Ints,
    Moments,
    Params,
    Population,
    ReleasedCounts,
    Replies,
    Runtime,
    ScoreOrder,
    Scores,
    TrainOrder,
)

THROWN_AWAY = 1 << 30  # training that is thrown away has the round's number and this
SHARE = Number(0, 1)


class AppRuntime:
    """Clients of an app behind a Grid, in their seats."""

    def __init__(
        self, grid: Grid, seats: Seats, writer: Writer, model: Params, terms: Terms, seed: int
    ) -> None:
        self._grid, self._seats, self._writer, self._terms = grid, seats, writer, terms
        self._form: AppArrays = writer.form
        self._model, self._seed, self._round = model, seed, 0
        self._sizes = np.zeros(seats.clients, np.int64)  # as told with the last reply
        self._seconds = np.full(seats.clients, np.nan)
        self._population: Population | None = None
        self._contents: list[RecordDict] = []  # usable replies of the round
        self.diary = Diary()

    # ------------------------------------------------------------ who is there

    def describe(self) -> Description:
        """Clients, classes and the model; waits as long as too few are there."""
        self._seats.gather(self._terms.min_available_nodes)
        sizes = self._known_sizes()
        seconds = self._seconds
        known = self._population
        if (
            known is None
            or not np.array_equal(known.num_examples, sizes)
            or not np.array_equal(known.latency_seconds, seconds, equal_nan=True)  # type: ignore[arg-type]
        ):
            self._population = known = population_of(sizes, seconds)
        return Description(known, self._seats.num_classes, self._form.layout)

    def _known_sizes(self) -> Ints:
        """(K,) examples: as told last, else as disclosed, else as the median client has; 0: nobody
        has ever been there.
        """
        sizes = self._sizes.copy()
        for client, size in self._seats.sizes.items():
            sizes[client] = sizes[client] or size
        told = sizes[sizes > 0]
        usual = max(1, int(np.median(told))) if len(told) else 1
        for client in self._seats.registry.claims.values():
            if client not in self._seats.sizes:
                sizes[client] = sizes[client] or usual
        return sizes

    def available(self, round: int) -> Bools:
        """Who is connected."""
        self._round = round
        self._contents = []
        self._seats.look()
        there = np.zeros(self._seats.clients, np.bool_)
        there[list(self._seats.present)] = True
        return there

    def label_counts(self) -> Ints:
        """(K, C) exact counts, as disclosed; zeros where they are not."""
        self._seats.check_any_counts()
        return self._table().astype(np.int64)

    def released_counts(self, clients: Ids) -> ReleasedCounts:
        """Counts with the noise each client added."""
        self._seats.check_any_counts()
        known = np.isin(np.arange(self._seats.clients), list(self._seats.counts))
        return ReleasedCounts(known, self._table())

    def _table(self) -> Floats:
        table = np.zeros((self._seats.clients, self._seats.num_classes))
        for client, row in self._seats.counts.items():
            table[client] = row
        return table

    # ------------------------------------------------------------ work

    def initial(self, seed: int) -> Params:
        """The model that the run was started with, whatever the seed."""
        return self._model

    def train(self, order: TrainOrder) -> Replies:
        """One of the app's own train messages to each client."""
        probe = order.round >= FIRST_PROBE
        round = 0 if probe else order.round % THROWN_AWAY
        config = told(self._terms.train_config, round)
        arrays = {int(slot): self._form.record(order.models[slot]) for slot in set(order.start)}

        def write(node: int, row: int) -> Letter:
            slot = int(order.start[row])
            return self._writer.train(node, order.models[slot], arrays[slot], config)

        outcomes = self._ask(order.clients, write)
        forms = [self._writer.form_of(outcome.note) for outcome in outcomes]
        answers = [reply_of(outcome) for outcome in outcomes]
        size = order.models.shape[1]
        replies = collect(answers, size, layout=self._form.layout, forms=forms)
        self._learn(order, outcomes, replies, kept=order.round == self._round)
        return replies

    def _learn(
        self, order: TrainOrder, outcomes: Sequence[Outcome], replies: Replies, *, kept: bool
    ) -> None:
        """Sizes and seconds that clients tell, and the metrics of the round."""
        sizes, seconds = self._sizes.copy(), self._seconds.copy()
        for row, client in enumerate(order.clients):
            note = outcomes[row].note
            if replies.failures[row] or note is None:
                self._seats.say(f"client {client}: {replies.failures[row]}")
                continue
            sizes[client], seconds[client] = replies.examples[row], replies.seconds[row]
            if kept:
                self._contents.append(note.values["content"])
        self._sizes, self._seconds = sizes, seconds
        merge, weight = self._terms.merge_train, self._writer.names.examples
        found = merged(self._contents, weight, merge) if kept and merge else None
        if found is not None:
            self.diary.train[self._round] = found

    def evaluate(self, models: Params) -> Scores:
        """The model by the server's own function, and by the clients' own tests from round 1 on;
        what the record shows is the server's, if it has a function.
        """
        by_clients = self._tested(models)
        if self._terms.evaluate_fn is None:
            return by_clients
        found = self._terms.evaluate_fn(self._round, self._form.record(models[0]))
        if found is None:
            return nothing(1)
        self.diary.central[self._round] = found
        self._seats.say(f"round {self._round}, server: {words(found)}")
        return self._scores([(1, found)])

    def _tested(self, models: Params) -> Scores:
        clients = self._testers() if self._round else []
        arrays = self._form.record(models[0])
        config = told(self._terms.evaluate_config, self._round)
        outcomes = self._ask(
            clients, lambda node, row: self._writer.evaluate(node, models[0], arrays, config)
        )
        for client, outcome in zip(clients, outcomes, strict=True):
            if outcome.note is None:
                self._seats.say(f"client {client} was not tested: {outcome.why}")
        notes = [outcome.note for outcome in outcomes if outcome.note is not None]
        contents = [note.values["content"] for note in notes]
        merge = self._terms.merge_evaluate
        found = merged(contents, self._writer.names.examples, merge) if merge else None
        if found is not None:
            self.diary.evaluate[self._round] = found
            self._seats.say(f"round {self._round}, {len(notes)} clients: {words(found)}")
        each = [(note.values["examples"], metrics_of(note.values["content"])) for note in notes]
        scores = self._scores(each)
        sizes = bounded(scores.num_examples, usual_share(len(scores.num_examples)))
        loss, accuracy = weighted_mean(scores.loss, sizes), weighted_mean(scores.accuracy, sizes)
        return Scores(np.array([loss]), np.array([accuracy]), np.array([sizes.sum()]))

    def _testers(self) -> list[int]:
        """Who tests the model in this round: a share of those present, at least so many."""
        terms, there = self._terms, list(self._seats.present)
        if terms.fraction_evaluate == 0:
            return []
        wanted = max(int(len(there) * terms.fraction_evaluate), terms.min_evaluate_nodes)
        rng = stream(self._seed, "testers", self._round)
        return sorted(rng.choice(there, min(wanted, len(there)), replace=False).tolist())

    def _scores(self, each: Sequence[tuple[int, Mapping[str, Any]]]) -> Scores:
        """Loss and accuracy as far as metrics of a known name say them; nan where they do not, or
        where they make no sense.
        """
        names, rows = self._writer.names, []
        for size, metrics in each:
            loss = first(metrics, names.test_loss)
            accuracy = first(metrics, names.accuracy)
            loss = float("nan") if LOSS.why_not("loss", loss) else loss
            accuracy = float("nan") if SHARE.why_not("accuracy", accuracy) else accuracy
            rows.append((loss, accuracy, size))
        table = np.array(rows, np.float64).reshape(-1, 3)
        return Scores(table[:, 0], table[:, 1], table[:, 2].astype(np.int64))

    def _ask(self, clients: Ids, write: Callable[[int, int], Letter]) -> list[Outcome]:
        """One message per client, written for a node and a row of ``clients``, one outcome each;
        who is not there costs no message.
        """
        present, places, sent = self._seats.present, [], []
        for place, client in enumerate(clients):
            node = present.get(int(client))
            if node is not None:
                places.append(place)
                sent.append(write(node, place))
        seats = self._seats
        seconds, poll = seats.deadline_seconds, seats.poll_seconds
        outcomes = exchange(self._grid, sent, deadline_seconds=seconds, poll_seconds=poll)
        for letter, outcome in zip(sent, outcomes, strict=True):
            seats.tally.count_sent(letter)
            seats.tally.count_reply(outcome)
            seats.registry.heard(letter.node, failed=outcome.lost)
        absent = Outcome("error", why="is not connected")
        found = dict(zip(places, outcomes, strict=True))
        return [found.get(place, absent) for place in range(len(clients))]

    # ------------------------------------------------------------ what an app cannot do

    def score(self, order: ScoreOrder) -> Scores:
        """An app tests on examples of its own choice, and no rule may choose by tests."""
        self._cannot("the loss of a model on training examples")

    def best_fit(self, clients: Ids, models: Params) -> Floats:
        """As :meth:`score`."""
        self._cannot("which of several models fits which examples")

    def auxiliary(self, models: Params) -> Auxiliary:
        """The server has no examples that fedskew knows of."""
        self._cannot("how models react to examples of the server's")

    def moments(self, clients: Ids, model: Params) -> Moments:
        """Features are the app's business."""
        self._cannot("features of clients' examples")

    def concatenated(self, models: Params) -> Runtime:
        """An app has the model it has."""
        self._cannot("a model of another form")

    def _cannot(self, what: str) -> NoReturn:
        raise RunError("strategy", f"an app of your own does not give {what}", "Use another recipe")

    def frozen(self) -> Mapping[str, Params]:
        """Everything an app trains is in its arrays."""
        return {}

    def close(self) -> None:
        """Nothing was started."""


def nothing(models: int) -> Scores:
    """Nobody said anything."""
    unknown = np.full(models, np.nan)
    return Scores(unknown, unknown, np.zeros(models, np.int64))
