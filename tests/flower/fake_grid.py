"""A Grid without processes: messages go straight into the ClientApp, through Flower's own
serialisation both ways.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedskew.experiment.fleet import (
    client_app,
    read_settings,
    recipe_model,
    recipe_share,
    recipe_test,
)
from fedskew.runtime.flower.task import Task

TASK = Task(10, recipe_share, recipe_model, recipe_test)
# node, question, reply -> what arrives (None: nothing)
Tamper = Callable[[int, Message, Message], Message | None]


def wired(message: Message) -> Message:
    """The message as it comes out at the other end of a wire."""
    return message_from_proto(message_to_proto(message))


@dataclass
class FakeGrid(Grid):
    """Nodes by number, each with the configuration it was started with."""

    config: dict[str, Any]
    nodes: dict[int, Context] = field(default_factory=dict)
    task: Task = TASK
    tamper: Tamper = lambda node, question, reply: reply
    # (node, message type) of every message pushed
    log: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        # as inside a ServerApp process
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 7, 1, 1
        self._app = client_app(self.task, Path("."))
        self._numbers = itertools.count(1)
        self._replies: dict[str, Message] = {}
        read_settings(self.config, Path("."))

    def join(self, client: int, node: int | None = None, policy: str = "open") -> int:
        node = 1000 + client if node is None else node
        state = {"partition-id": client, "num-partitions": 99, "policy": policy}
        self.nodes[node] = Context(7, node, state, RecordDict(), dict(self.config))
        return node

    def leave(self, node: int) -> None:
        del self.nodes[node]

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        return [self._push(message) for message in messages]

    def _push(self, message: Message) -> str:
        name = f"message-{next(self._numbers)}"
        message.metadata.__dict__["_message_id"] = name
        node = message.metadata.dst_node_id
        self.log.append((node, message.metadata.message_type))
        question = wired(message)
        reply = self._answer(node, question)
        arrived = self.tamper(node, question, reply)
        if arrived is not None:
            self._replies[name] = wired(arrived)
        return name

    def _answer(self, node: int, question: Message) -> Message:
        if node not in self.nodes:
            return Message(Error(5, "Node Unavailable"), reply_to=question)
        try:
            return self._app(question, self.nodes[node])
        except Exception as error:  # as Flower does it
            return Message(Error(2, f"{type(error)}:<'{error}'>"), reply_to=question)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [self._replies.pop(name) for name in message_ids if name in self._replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        return self.pull_messages(self.push_messages(messages))

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any: ...

    def create_message(self, *given: Any, **named: Any) -> Message:
        raise AssertionError("deprecated in Flower")


def server_context(config: dict[str, Any]) -> Context:
    return Context(7, 1, {}, RecordDict(), dict(config))
