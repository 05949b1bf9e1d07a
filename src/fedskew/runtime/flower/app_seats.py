"""Who is there, in an app whose nodes need not say who they are: every node gets a client number
and keeps it.

A rule that needs label counts has every newcomer asked for them (:mod:`disclosing` answers). A node
that was started with a number (``partition-id``) keeps its place under it when it comes back as
another node; without one, a newcomer takes the place of a node that has left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.serverapp import Grid

from fedskew.errors import RunError
from fedskew.runtime.border import MOST_COUNT, Array
from fedskew.runtime.flower.answers import Hello, hello_of, said_by
from fedskew.runtime.flower.disclosing import KIND
from fedskew.runtime.flower.exchange import Letter, Outcome
from fedskew.runtime.flower.greetings import Greetings
from fedskew.runtime.flower.records import ForeignMessage, Note
from fedskew.runtime.flower.registry import Registry
from fedskew.runtime.flower.tally import Tally
from fedskew.types import Floats

LINE = "app = ClientApp(mods=[fedskew.flower.disclose(labels)])"
ADD = (
    f"Write {LINE} in the ClientApp, where labels(context) gives this client's training labels; "
    "or set signal.use = 'estimated'"
)
ALLOW = (
    "Start nodes with --node-config 'policy=\"policy.toml\"' that allows it (docs/flower.md 8), "
    "simulations with FEDSKEW_POLICY=open; or set signal.use = 'estimated'"
)


def wait_for_nodes(grid: Grid, needed: int, say: Callable[[str], None]) -> int:
    """How many nodes are connected, once there are so many."""
    while len(there := list(grid.get_node_ids())) < needed:
        say(f"waiting for nodes to connect: {len(there)} are there, {needed} needed")
        time.sleep(1.0)
    return len(there)


@dataclass
class Seats:
    """Nodes and their client numbers. ``signal`` is what newcomers are asked for, None: nothing."""

    grid: Grid
    clients: int
    num_classes: int
    signal: Mapping[str, Any] | None
    deadline_seconds: float
    say: Callable[[str], None]
    tally: Tally
    hello_seconds: float = 30.0
    poll_seconds: float = 0.5
    sizes: dict[int, int] = field(default_factory=dict)  # client -> examples, as disclosed
    counts: dict[int, Floats] = field(default_factory=dict)  # client -> label counts it disclosed
    _numbers: dict[int, int] = field(default_factory=dict)  # a node's own number -> client

    def __post_init__(self) -> None:
        self.registry = Registry(self.clients)
        self._greetings = Greetings(self.grid, self.deadline_seconds)

    @property
    def present(self) -> dict[int, int]:
        """client -> node, of everyone who is there."""
        return self.registry.present

    def gather(self, needed: int) -> None:
        """Take in who is new, and wait until so many are there, as Flower's strategies do."""
        said = 0.0
        while True:
            self.look()
            self._greet()
            if len(self.present) >= needed and not self._worth_waiting:
                return
            self._check_hopeless()
            if time.monotonic() - said > 10:
                said = time.monotonic()
                self.say(f"waiting for clients: {len(self.present)} are there, {needed} needed")
            time.sleep(self.poll_seconds)

    @property
    def _worth_waiting(self) -> bool:
        return self._greetings.worth_waiting(self.hello_seconds)

    def look(self) -> None:
        """Who is connected now."""
        before = self.present
        self.registry.see(self.grid.get_node_ids())
        for client, node in before.items():
            if self.registry.node_of(client) != node:
                self.say(f"client {client} has left (node {node})")

    def _greet(self) -> None:
        strangers = [n for n in self.registry.strangers if n not in self._greetings.nodes]
        if self.signal is None:
            for node in strangers:
                self._seat(node, None)
            return
        question = Note(KIND, {"signal": dict(self.signal), "classes": self.num_classes})
        # a train message: see fedskew.runtime.flower.disclosing
        letters = [Letter(node, "train", question) for node in strangers]
        for letter in letters:
            self.tally.count_sent(letter)
        for letter, outcome in self._greetings.send(letters) + self._greetings.collect():
            self.tally.count_reply(outcome)
            self.registry.heard(letter.node, failed=outcome.lost)
            self._hear(letter.node, outcome)

    def _hear(self, node: int, outcome: Outcome) -> None:
        try:
            said = hello_of(outcome, self.num_classes)
            released = self._released(outcome, said)
        except ForeignMessage as error:
            seconds = self.registry.refuse(node, error.what)
            self.say(f"node {node} takes no part: {error.what} (asked again in {seconds:g} s)")
            return
        numbered = outcome.note is not None and outcome.note.values.get("numbered") is True
        client = self._seat(node, said.client if numbered else None)
        if client is None:
            return
        self.sizes[client] = said.num_examples
        counts = said.counts if released is None else released
        if counts is None:
            self.tally.withheld[client] = said.withheld or "gives no label counts"
            self.say(f"client {client} gives no label counts: {self.tally.withheld[client]}")
        else:
            self.counts[client] = np.asarray(counts, np.float64)
            self.tally.withheld.pop(client, None)

    def _released(self, outcome: Outcome, said: Hello) -> Floats | None:
        """Noised counts, if those were asked for and not withheld."""
        if self.signal is None or self.signal["use"] != "private" or said.withheld:
            return None
        form = {"released": Array((self.num_classes,), "<f8", -MOST_COUNT, MOST_COUNT)}
        released: Floats = said_by(outcome, form).arrays["released"]
        return released

    def _seat(self, node: int, number: int | None) -> int | None:
        """Give a node its place; None: there is none."""
        client = self._place(node, number)
        if client is None:
            self.registry.refuse(node, f"there are {self.clients} places, all of them taken")
            self.say(f"node {node} takes no part: all {self.clients} places are taken")
            return None
        if number is not None:
            self._numbers[number] = client
        complaint = self.registry.claim(node, client)
        self.say(complaint or f"client {client} has joined (node {node})")
        return None if complaint else client

    def _place(self, node: int, number: int | None) -> int | None:
        """The place it had, the one with its own number, a free one, or that of one who left."""
        claims = self.registry.claims
        if node in claims and number is None:
            return claims[node]
        if number is not None and number in self._numbers:
            return self._numbers[number]
        taken, there = set(claims.values()), set(self.present)
        free = [client for client in range(self.clients) if client not in taken]
        if number is not None and number in free:
            return number
        gone = [client for client in range(self.clients) if client not in there]
        return next(iter(free + gone), None)

    def _check_hopeless(self) -> None:
        """Everybody has answered and nobody usefully: waiting would not help. As long as somebody
        is there, those refused are asked again.
        """
        online = self.registry.online
        refused = [(n, why) for n, why in self.registry.refused.items() if n in online]
        if self.signal is None or self.present or len(refused) < max(1, len(online)):
            return
        reasons = "; ".join(f"node {node}: {why}" for node, why in refused[:3])
        what = f"none of {len(refused)} nodes says what the rule needs ({reasons})"
        raise RunError(f"signal {self.signal['use']}", what, ADD)

    def check_any_counts(self) -> None:
        """A recipe that needs label counts cannot begin without any."""
        if self.counts or self.signal is None:
            return
        withheld = list(self.tally.withheld.items())[:3]
        reasons = "; ".join(f"client {client}: {why}" for client, why in withheld)
        what = f"none of {len(self.present)} clients gives its label counts ({reasons})"
        raise RunError(f"signal {self.signal['use']}", what, ALLOW)
