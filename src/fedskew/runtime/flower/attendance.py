"""Who is there: nodes that say hello and are taken in, leave, come back.

The number of clients K is the recipe's. A client that has not joined yet, or has left, is not
available; one that joins late is taken in before the next round. A node says once who it is, how
many examples it has and, where the recipe discloses them, its label counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from flwr.serverapp import Grid

from fedskew.errors import RunError
from fedskew.runtime.flower.answers import Hello, hello_of
from fedskew.runtime.flower.exchange import Letter, Outcome
from fedskew.runtime.flower.greetings import Greetings
from fedskew.runtime.flower.members import wrong_number
from fedskew.runtime.flower.records import OTHER_MODEL, ForeignMessage, Note
from fedskew.runtime.flower.registry import Registry
from fedskew.runtime.flower.tally import Tally
from fedskew.types import Bools, Ints

OTHER_MODEL_BUILT = "builds a model of another layout"
Say = Callable[[str], None]
Admitted = Callable[[], Mapping[int, int] | None]


@dataclass(frozen=True)
class Patience:
    """How long the server waits for what."""

    deadline_seconds: float = 300.0  # for one batch; Flower notices a dead node after about 65 s
    # for clients to join, before the first round and when too few are left
    wait_seconds: float = 120.0
    # for a newcomer's first answer, before a round; later ones are taken in whenever they come
    hello_seconds: float = 30.0
    min_clients: int = 0  # how many must be there to go on; 0 = all at the start, one later
    poll_seconds: float = 0.5


class Attendance:
    """The clients of a fleet, as far as they have said who they are."""

    def __init__(
        self,
        grid: Grid,
        clients: int,
        num_classes: int,
        mark: str,
        patience: Patience,
        tally: Tally,
        say: Say,
        admitted: Admitted,
    ) -> None:
        self._grid, self._mark, self._patience = grid, mark, patience
        self._tally, self._say, self._admitted = tally, say, admitted
        self._num_classes = num_classes
        self._registry = Registry(clients)
        self._greetings = Greetings(grid, patience.deadline_seconds)
        self._begun = self._over = False
        self._doubted: set[int] = set()  # nodes that must build the model to be taken in
        self.sizes: Ints = np.zeros(clients, np.int64)  # a new array whenever one of them changes
        self.test_sizes: Ints = np.zeros(clients, np.int64)
        self.counts: dict[int, Ints] = {}  # client -> exact counts it disclosed

    @property
    def clients(self) -> int:
        """K."""
        return self._registry.clients

    @property
    def present(self) -> dict[int, int]:
        """client -> node, of everyone who is there."""
        return self._registry.present

    def gather(self) -> None:
        """Say hello to nodes that are new, and wait if too few are there."""
        if self._over:
            self._look()
            return self._greet()
        needed = self._patience.min_clients or (1 if self._begun else self.clients)
        until = time.monotonic() + self._patience.wait_seconds
        while True:
            self._look()
            self._greet()
            enough = len(self.present) >= needed
            if enough and not self._greetings.worth_waiting(self._patience.hello_seconds):
                break
            if time.monotonic() >= until and (self._can_begin or not self._greetings.under_way):
                break
            time.sleep(self._patience.poll_seconds)
        self._check_anyone()
        if not self._begun and len(self.present) < self.clients:
            self._say(f"going on with {len(self.present)} of {self.clients} clients")
        self._begun = True

    def rounds_over(self) -> None:
        """Nobody is needed any more: from now on nobody is waited for."""
        self._over = True

    def there(self) -> Bools:
        """(K,) who is connected now and has examples."""
        self._look()
        found = np.zeros(self.clients, np.bool_)
        found[list(self.present)] = True
        return found & (self.sizes > 0)

    def heard(self, letter: Letter, outcome: Outcome) -> None:
        """How a message ended, hellos or any other. A hello is light, so that a node has another
        model shows when it is sent one: then it is left out until it builds the right one. That is
        for the node to say; a reply that is marked wrongly costs no more than itself.
        """
        self._registry.heard(letter.node, failed=outcome.lost)
        self._tally.count_reply(outcome)
        if outcome.note is None and f"the message {OTHER_MODEL}" in outcome.why:
            self._doubted.add(letter.node)
            self._refuse(letter.node, OTHER_MODEL_BUILT)

    def without_signal(self, client: int, why: str) -> None:
        """The run goes on without this client's label counts; rules that need them pass it over."""
        if self._tally.withheld.get(client) != why:
            self._say(f"client {client} gives no label counts: {why}")
        self._tally.withheld[client] = why

    # ------------------------------------------------------------ coming and going

    @property
    def _can_begin(self) -> bool:
        return len(self.present) >= max(1, self._patience.min_clients)

    def _check_anyone(self) -> None:
        if not self._can_begin:
            there, needed = len(self.present), max(1, self._patience.min_clients)
            refused = "; ".join(list(self._registry.refused.values())[:5])
            what = f"{there} clients have joined, {needed} needed" + (
                f" ({refused})" if refused else ""
            )
            raise RunError(
                "fleet",
                what,
                "Start SuperNodes with --node-config 'partition-id=0', or set min-clients",
            )

    def _look(self) -> None:
        before = self.present
        self._registry.see(self._grid.get_node_ids())
        for client, node in before.items():
            if self._registry.node_of(client) != node:
                self._say(f"client {client} has left (node {node})")

    def _greet(self) -> None:
        """Ask strangers who they are, and take in those that have answered. Those that answer
        nothing useful are left out until they are asked again, and the run goes on.
        """
        asked = self._greetings.nodes
        letters = [
            Letter(node, "query.hello", self._hello(node))
            for node in self._registry.strangers
            if node not in asked
        ]
        for letter in letters:
            self._tally.count_sent(letter)
        for letter, outcome in self._greetings.send(letters) + self._greetings.collect():
            self.heard(letter, outcome)
            self._hear(letter.node, outcome)

    def _hello(self, node: int) -> Note:
        return Note("hello", {"model": True} if node in self._doubted else {}, layout=self._mark)

    def _hear(self, node: int, outcome: Outcome) -> None:
        try:
            self._take_in(node, outcome)
        except ForeignMessage as error:
            self._refuse(node, error.what)

    def _refuse(self, node: int, why: str) -> None:
        seconds = self._registry.refuse(node, f"node {node}: {why}")
        self._say(f"node {node} takes no part: {why} (asked again in {seconds:g} s)")

    def _take_in(self, node: int, outcome: Outcome) -> None:
        said = self._introduction(node, outcome)
        complaint = self._registry.claim(node, said.client)
        if complaint:
            self._say(complaint)
            return
        refusals = self._registry.again.forget(node)
        after = f" after {refusals} refusals" if refusals else ""
        facts = f"node {node}, {said.num_examples} examples"
        self._say(f"client {said.client} has joined ({facts}){after}")
        if said.counts is not None:
            self.counts[said.client] = said.counts
            self._tally.withheld.pop(said.client, None)
        elif said.withheld:
            self.without_signal(said.client, said.withheld)
        self.test_sizes[said.client] = said.num_test
        if self.sizes[said.client] != said.num_examples:
            self.sizes = self.sizes.copy()
            self.sizes[said.client] = said.num_examples

    def _introduction(self, node: int, outcome: Outcome) -> Hello:
        """What a node says of itself, if this run can have it; else ForeignMessage with the
        reason.
        """
        said = hello_of(outcome, self._num_classes)
        if outcome.note is None or outcome.note.layout not in ("", self._mark):
            raise ForeignMessage("hello", OTHER_MODEL_BUILT)
        wrong = wrong_number(node, said.client, self._admitted())
        wrong = wrong or self._registry.out_of_range(said.client)
        if wrong:
            raise ForeignMessage("hello", wrong)
        return said
