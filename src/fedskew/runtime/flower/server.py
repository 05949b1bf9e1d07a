"""The runtime over Flower's Grid: every call of the loop becomes one batch of messages with one
outcome per client.

Who they are is kept by :mod:`attendance`. Few messages: a loss comes back with the model it belongs
to. The server builds the first model and evaluates on its own test set by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.serverapp import Grid

from fedskew.aggregation.shares import bounded, usual_share
from fedskew.errors import RunError
from fedskew.runtime.flower.answers import (
    moments_of,
    pooled,
    released_counts_of,
    reply_of,
    scores_of,
    shares_of,
    slots_by_client,
)
from fedskew.runtime.flower.attendance import Attendance, Patience, Say
from fedskew.runtime.flower.backoff import Backoff
from fedskew.runtime.flower.exchange import Letter, Outcome, exchange
from fedskew.runtime.flower.members import admitted
from fedskew.runtime.flower.records import ForeignMessage, Note, layout_mark
from fedskew.runtime.flower.silence import Silence
from fedskew.runtime.flower.tally import Tally
from fedskew.runtime.local.runtime import LocalRuntime
from fedskew.runtime.local.store import Store
from fedskew.runtime.replies import collect, forms_of
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
    Unscored,
)

if TYPE_CHECKING:
    from torch import nn


class FlowerRuntime:
    """The clients of a fleet behind a Grid. ``draw`` makes a Population of example counts
    (devices are the recipe's).
    """

    def __init__(
        self,
        grid: Grid,
        store: Store,
        factory: Callable[[], nn.Module],
        clients: int,
        *,
        patience: Patience | None = None,
        draw: Callable[[Ints], Population] = Population,
        say: Say = print,
        admitted: Callable[[], Mapping[int, int] | None] = admitted,
    ) -> None:
        self._grid, self._store, self._say, self._draw = grid, store, say, draw
        self._patience = patience or Patience()
        self._local = LocalRuntime(store, factory, workers=1)
        self._layout = self._local.describe().layout
        self._mark = layout_mark(self._layout)
        self.tally = Tally()
        self._attendance = Attendance(
            *(grid, clients, store.num_classes, self._mark, self._patience),
            *(self.tally, say, admitted),
        )
        self._drawn: tuple[Ints, Population] | None = None  # of which sizes
        self._released: dict[int, Floats] = {}  # client -> counts it noised itself
        self._releases = Backoff()  # when clients that released nothing are asked again
        self._silence = Silence(say)

    # ------------------------------------------------------------ who is there

    def describe(self) -> Description:
        """Clients, classes and the model's layout; says hello to nodes that are new, and waits
        if too few are there.
        """
        self._attendance.gather()
        sizes = self._attendance.sizes
        if self._drawn is None or self._drawn[0] is not sizes:
            self._drawn = sizes, self._draw(sizes)
        return Description(self._drawn[1], self._store.num_classes, self._layout)

    def available(self, round: int) -> Bools:
        """Clients that are connected and have examples."""
        return self._attendance.there()

    def rounds_over(self) -> None:
        """What is left is to test the clients that are still there."""
        self._attendance.rounds_over()

    def take_unscored(self) -> Unscored:
        """What clients did not say of the models' quality, since this was last called."""
        return self._silence.take()

    # ------------------------------------------------------------ what clients tell

    def label_counts(self) -> Ints:
        """(K, C) exact counts, as disclosed with the hello; zeros for clients that have not
        joined, or do not disclose them.
        """
        if not self._attendance.counts:
            self._check_any_signal()
        return self.disclosed_counts()

    def disclosed_counts(self) -> Ints:
        """The same, though it be nobody's."""
        return self._table(self._attendance.counts).astype(np.int64)

    def _check_any_signal(self) -> None:
        """A recipe that needs label counts cannot begin without any."""
        withheld = self.tally.withheld
        if withheld:
            reasons = "; ".join(f"client {c}: {why}" for c, why in sorted(withheld.items())[:3])
            raise RunError(
                "signal",
                f"none of {len(withheld)} clients gives its label counts ({reasons})",
                "Use a recipe without a signal, or other policies at the nodes",
            )

    def released_counts(self, clients: Ids) -> ReleasedCounts:
        """Counts with the noise each client added; asked for once and kept."""
        present = self._attendance.present
        wanted = [
            int(c)
            for c in clients
            if c not in self._released and c in present and self._releases.is_due(int(c))
        ]
        outcomes = self._ask(wanted, "query.release", "release", {}, mark="")
        for client, outcome in zip(wanted, outcomes, strict=True):
            try:
                self._released[client] = released_counts_of(outcome, self._store.num_classes)
                self._releases.forget(client)
                self.tally.withheld.pop(client, None)
            except ForeignMessage as error:
                self._releases.failed(client)
                self._attendance.without_signal(client, error.what)
        if not self._released and set(wanted) == {c for c in present if self._attendance.sizes[c]}:
            self._check_any_signal()
        known = np.isin(np.arange(self._attendance.clients), list(self._released))
        return ReleasedCounts(known, self._table(self._released))

    def _table(self, rows: Mapping[int, Ints | Floats]) -> Floats:
        table = np.zeros((self._attendance.clients, self._store.num_classes))
        for client, row in rows.items():
            table[client] = row
        return table

    # ------------------------------------------------------------ work

    def initial(self, seed: int) -> Params:
        """A fresh model, built by the server."""
        return self._local.initial(seed)

    def train(self, order: TrainOrder) -> Replies:
        """One message to each client with its model; what comes back is checked as it is on one
        machine.
        """
        values = {"job": asdict(order.job), "seed": str(order.seed), "round": order.round}
        arrays = [{"model": order.models[slot]} for slot in order.start]
        if order.corrections is not None:
            for given, correction in zip(arrays, order.corrections, strict=True):
                given["correction"] = correction
        outcomes = self._ask(order.clients, "train", "train", values, arrays)
        replies, forms = [reply_of(o) for o in outcomes], forms_of(order, self._attendance.sizes)
        return collect(replies, order.models.shape[1], layout=self._layout, forms=forms)

    def evaluate(self, models: Params) -> Scores:
        """Every model on the server's test set; without one, on the clients' own, weighted by
        their examples.
        """
        if len(self._store.central_order):
            return self._local.evaluate(models)
        everyone = np.flatnonzero(self._attendance.test_sizes)
        clients = np.tile(everyone, len(models))
        slots = np.repeat(np.arange(len(models)), len(everyone))
        return pooled(self.score(ScoreOrder(clients, models, slots, "test")), len(models))

    def score(self, order: ScoreOrder) -> Scores:
        """One message to each client with all the models it shall score; nan where nothing came
        back.
        """
        wanted = slots_by_client(order.clients, order.start)
        values = {
            "which": order.which,
            "max_examples": order.max_examples,
            "seed": str(order.seed),
            "round": order.round,
        }
        arrays = [{"models": order.models[slots]} for slots in wanted.values()]
        outcomes = self._ask(list(wanted), "evaluate", "evaluate", values, arrays)
        if order.which == "test":
            self._silence.tested(c for c in wanted if self._attendance.test_sizes[c])
        sizes = self._attendance.test_sizes if order.which == "test" else self._attendance.sizes
        scored = {
            (client, slot): row
            for (client, slots), outcome in zip(wanted.items(), outcomes, strict=True)
            for slot, row in self._scores(client, outcome, slots, int(sizes[client])).items()
        }
        nothing = (float("nan"), float("nan"), 0)
        pairs = zip(order.clients, order.start, strict=True)
        rows = [scored.get((int(client), int(slot)), nothing) for client, slot in pairs]
        loss, accuracy, told = zip(*rows, strict=True) if rows else ((), (), ())
        counted = np.array(told, np.int64)
        if order.which == "test":  # nobody's claim outweighs all others
            most = bounded(sizes, usual_share(int(np.count_nonzero(sizes))))
            counted = np.minimum(counted, most[np.asarray(order.clients, np.int64)])
        return Scores(np.array(loss, np.float64), np.array(accuracy, np.float64), counted)

    def _scores(
        self, client: int, outcome: Outcome, slots: Sequence[int], most: int
    ) -> dict[int, tuple[float, float, int]]:
        try:
            return scores_of(outcome, slots, most)
        except ForeignMessage as error:
            self._silence.missed(client, error.what)
            return {}

    def _shares(self, client: int, outcome: Outcome, models: int) -> list[float]:
        try:
            return shares_of(outcome, models, int(self._attendance.sizes[client]))
        except ForeignMessage as error:
            self._silence.missed(client, error.what)
            return [float("nan")] * models

    @property
    def clients_have_tests(self) -> bool:
        """Whether any client said that it has test examples."""
        return bool(self._attendance.test_sizes.any())

    def best_fit(self, clients: Ids, models: Params) -> Floats:
        """One message to each client with all models; nan where nothing usable came back."""
        outcomes = self._ask(clients, "query.vote", "vote", {}, [{"models": models}] * len(clients))
        pairs = zip(clients, outcomes, strict=True)
        shares = [self._shares(int(client), outcome, len(models)) for client, outcome in pairs]
        return np.array(shares).reshape(len(clients), len(models))

    def auxiliary(self, models: Params) -> Auxiliary:
        """Every model on the server's own examples."""
        return self._local.auxiliary(models)

    def moments(self, clients: Ids, model: Params) -> Moments:
        """One message to each client; zeros where nothing usable came back, or where a policy does
        not allow it.
        """
        arrays = [{"model": model}] * len(clients)
        outcomes = self._ask(clients, "query.moments", "moments", {}, arrays)
        classes, head = self._store.num_classes, self._layout.head(self._store.num_classes)
        width = 0 if head is None else head[0].shape[1]
        rows = [
            self._moments(int(client), outcome, classes, width)
            for client, outcome in zip(clients, outcomes, strict=True)
        ]
        return Moments(*(np.stack(part) for part in zip(*rows, strict=True)))

    def _moments(
        self, client: int, outcome: Outcome, classes: int, width: int
    ) -> tuple[Ints, Floats, Floats]:
        try:
            return moments_of(outcome, classes, width, int(self._attendance.sizes[client]))
        except ForeignMessage as error:
            self._silence.missed(client, error.what)
            sums, products = np.zeros((classes, width)), np.zeros((classes, width, width))
            return np.zeros(classes, np.int64), sums, products

    def concatenated(self, models: Params) -> Runtime:
        """Clients of a fleet build the recipe's model and no other."""
        what = "a second act with another model cannot be played on a fleet"
        raise RunError("finish", what, "Use it on one machine, or another [finish]")

    def frozen(self) -> Mapping[str, Params]:
        """As the server has built them; clients build the same."""
        return self._local.frozen()

    def close(self) -> None:
        """Nothing of the fleet is stopped; the server's own model goes."""
        self._local.close()

    # ------------------------------------------------------------ messages

    def _ask(
        self,
        clients: Ids,
        kind: str,
        name: str,
        values: Mapping[str, Any],
        arrays: Sequence[Mapping[str, Params]] | None = None,
        *,
        mark: str | None = None,
    ) -> list[Outcome]:
        """One message per client, one outcome each; a client without a node costs no message.
        ``mark``: the model that is meant, "" for none.
        """
        mark = self._mark if mark is None else mark
        letters: dict[int, Letter] = {}
        present = self._attendance.present
        for place, client in enumerate(clients):
            node = present.get(int(client))
            if node is not None:
                note = Note(
                    name,
                    {"client": int(client), **values},
                    arrays[place] if arrays else {},
                    mark,
                )
                letters[place] = Letter(node, kind, note, mark)
        outcomes = dict(zip(letters, self._send(list(letters.values())), strict=True))
        absent = Outcome("error", why="is not connected")
        return [outcomes.get(place, absent) for place in range(len(clients))]

    def _send(self, letters: Sequence[Letter]) -> list[Outcome]:
        patience = self._patience
        outcomes = exchange(
            self._grid,
            letters,
            deadline_seconds=patience.deadline_seconds,
            poll_seconds=patience.poll_seconds,
        )
        for letter, outcome in zip(letters, outcomes, strict=True):
            self.tally.count_sent(letter)
            self._attendance.heard(letter, outcome)
        return outcomes
