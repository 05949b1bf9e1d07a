"""The ClientApp: answers the server's messages with the client's own data, by the code that trains
on one machine too.

Six messages: ``query.hello`` (who are you), ``query.release`` (label counts, noised here),
``train``, ``evaluate``, ``query.vote`` (which of several models fits best) and ``query.moments``
(features of its examples, added up). The recipe says what is asked, the node's own :mod:`policy`
what is given: exact label counts only if the recipe's signal is ``histogram`` and the policy allows
them; with ``private`` counts it has noised itself, once per run, as long as its budget lasts;
otherwise none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedskew.errors import RunError
from fedskew.foreign import ForeignName
from fedskew.runtime.flower.ledger import count_training
from fedskew.runtime.flower.policy import Policy, Refused, policy_of
from fedskew.runtime.flower.records import (
    OTHER_MODEL,
    ForeignMessage,
    Note,
    from_records,
    layout_mark,
    to_records,
)
from fedskew.runtime.flower.releasing import release_by
from fedskew.runtime.flower.task import FleetSettings, Task, client_store
from fedskew.runtime.local.store import Store
from fedskew.streams import stream
from fedskew.types import Ints, LocalJob

if TYPE_CHECKING:
    from torch import nn

    from fedskew.runtime.local.trainer import Trainer

Read = Callable[[Context], FleetSettings]


@dataclass(frozen=True)
class ClientSide:
    """One client: its number, its data and what it may give away. The model is built, and torch
    loaded, when somebody asks for it.
    """

    client: int
    store: Store
    settings: FleetSettings
    factory: Callable[[], nn.Module]
    policy: Policy = field(default_factory=Policy)
    built: list[Trainer] = field(default_factory=list)  # shared by copies with another policy

    @property
    def trainer(self) -> Trainer:
        """Who trains and scores, with one torch thread as everywhere."""
        if not self.built:
            import torch

            from fedskew.runtime.local.trainer import Trainer

            torch.set_num_threads(1)
            self.built.append(Trainer(self.store, self.factory, self.settings.seed))
        return self.built[0]

    @property
    def mark(self) -> str:
        """A fingerprint of the model this client builds."""
        return layout_mark(self.trainer.model.layout)

    @property
    def counts(self) -> Ints:
        """(C,) exact label counts; they leave this process only if the recipe discloses them."""
        own: Ints = self.store.label_counts()[self.client]
        return own


def client_number(node_config: Mapping[str, Any]) -> int:
    """The client a node stands for, from its ``--node-config``: ``client-id``, or else
    ``partition-id``.

    >>> client_number({"partition-id": 3, "num-partitions": 10})
    3
    """
    value = node_config.get("client-id", node_config.get("partition-id"))
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        found = (
            "has no client number"
            if value is None
            else f"client number {value!r} is not a whole number from 0"
        )
        raise RunError("node", found, "Start flower-supernode with --node-config 'partition-id=0'")
    return value


def make_client_app(task: Task, read: Read) -> ClientApp:
    """A ClientApp for a task; ``read`` finds the recipe and the seed of a run."""
    app = ClientApp()
    sides: dict[tuple[int, int], ClientSide] = {}

    def side_of(context: Context) -> ClientSide:
        """Loaded once per process and run: with Ray one process answers for many clients."""
        key = (context.run_id, client_number(context.node_config))
        if key not in sides:
            if len(sides) >= 4:
                sides.pop(next(iter(sides)))
            sides[key] = build_side(task, key[1], read(context))
        return sides[key]

    def handler(
        kind: str, answer: Callable[[ClientSide, Note, Context], Note]
    ) -> Callable[[Message, Context], Message]:
        def handle(message: Message, context: Context) -> Message:
            # a foreign message is refused before any data is read
            note = from_records(message.content, kind)
            policy = policy_of(context.node_config)  # read anew: its owner may have changed it
            side = replace(side_of(context), policy=policy)
            return Message(to_records(answer(side, note, context)), reply_to=message)

        return handle

    app.query("hello")(handler("hello", hello))
    app.query("release")(handler("release", release_counts))
    app.train()(handler("train", train))
    app.evaluate()(handler("evaluate", evaluate))
    app.query("vote")(handler("vote", vote))
    app.query("moments")(handler("moments", moments))
    return app


def build_side(task: Task, client: int, settings: FleetSettings) -> ClientSide:
    """Load the client's data."""
    store = client_store(client, task.load_data(client, settings), task.num_classes)
    return ClientSide(client, store, settings, lambda: task.build_model(settings))


# ---------------------------------------------------------------- answers


def hello(side: ClientSide, note: Note, context: Context) -> Note:
    """Who this is and how many examples it has; its label counts if recipe and policy disclose
    them. Its model is built only if the server has reason to ask for it.
    """
    store, told = side.store, side.policy.told
    values: dict[str, Any] = {
        "client": side.client,
        "num_examples": told(len(store.rows(side.client, "train"))),
        "num_test": told(len(store.rows(side.client, "test"))),
    }
    arrays: dict[str, Any] = {}
    if side.settings.recipe.get("signal", {}).get("use") == "histogram":
        try:
            side.policy.check_signal("exact", side.client)
            arrays["counts"] = side.counts.astype(np.uint32)
        except Refused as refusal:
            values["withheld"] = refusal.what
    return Note("hello", values, arrays, side.mark if note.values.get("model") else "")


def release_counts(side: ClientSide, note: Note, context: Context) -> Note:
    """Label counts with noise by the recipe's [signal]. Asked again in the same run it repeats
    itself: one release, no more.
    """
    _check_client(side, note)
    signal = dict(side.settings.recipe.get("signal", {}))
    if signal.pop("use", None) != "private":
        raise RunError(
            f"client {side.client}",
            "its recipe releases no label counts",
            "Use signal.use = 'private'",
        )
    noisy = release_by(side.policy, context, side.client, side.counts, signal)
    return Note("release", {}, {"counts": noisy})


def _job(side: ClientSide, asked: Mapping[str, Any]) -> LocalJob:
    """A job as the message has it; of code outside the package only this app's own recipe may name
    some, never the message.
    """
    job = LocalJob(**asked)
    own = side.settings.recipe.get("objective", {}).get("use")
    return job if job.objective == own else replace(job, objective=ForeignName(job.objective))


def train(side: ClientSide, note: Note, context: Context) -> Note:
    """Train from the model in the message; the loss goes back with the trained model."""
    _check(side, note)
    job, round = _job(side, note.values["job"]), int(note.values["round"])
    examples = len(side.trainer.store.rows(side.client, "train"))
    side.policy.check_job(job, round, side.client, examples)
    count_training(side.policy, str(context.run_id), side.client)
    out = np.empty(side.trainer.model.layout.size, np.float32)
    found = side.trainer.train(
        side.client,
        note.arrays["model"],
        out,
        job,
        int(note.values["seed"]),
        round,
        note.arrays.get("correction"),
    )
    values = {
        "loss": found.loss,
        "seconds": found.seconds,
        "steps": side.policy.told_steps(found.steps, found.examples, job),
        "examples": side.policy.told(found.examples),
    }
    return Note("train", values, {"model": out}, side.mark)


def evaluate(side: ClientSide, note: Note, context: Context) -> Note:
    """Mean loss, accuracy and number of examples of every model in the message, on this client's
    own data.
    """
    _check(side, note)
    side.policy.check_scores(side.client)
    rows = own_rows(side, str(note.values["which"]), int(note.values["max_examples"]), note)
    scores = []
    for model in note.arrays["models"]:
        losses, correct = side.trainer.score(model, str(note.values["which"]), rows)
        loss, accuracy = float("nan"), float("nan")
        if len(rows):
            loss, accuracy = float(losses.astype(np.float64).mean()), float(correct.mean())
        told = side.policy.told_share(accuracy), side.policy.told(len(rows))
        scores.append([loss, *told])
    return Note("evaluate", {"scores": scores}, {}, side.mark)


def vote(side: ClientSide, note: Note, context: Context) -> Note:
    """Which share of this client's training examples each model in the message fits best, ties
    to the first.
    """
    _check(side, note)
    side.policy.check_scores(side.client)
    rows, models = side.store.rows(side.client, "train"), note.arrays["models"]
    losses = np.stack([side.trainer.score(model, "train", rows)[0] for model in models])
    best = np.nan_to_num(losses, nan=np.inf).argmin(axis=0)
    votes = np.bincount(best, minlength=len(models))
    if side.policy.round_examples_to > 1:  # their sum is the number of examples
        votes = np.rint(votes / max(len(rows), 1) * 100).astype(np.int64)
    return Note("vote", {"votes": votes.tolist()}, {}, side.mark)


def moments(side: ClientSide, note: Note, context: Context) -> Note:
    """Features of this client's examples, added up class by class; they tell its exact label
    counts, so its policy must allow those. Of a symmetric matrix half is sent.
    """
    _check(side, note)
    side.policy.check_signal("exact", side.client)
    counts, sums, products = side.trainer.moments(note.arrays["model"], side.client)
    rows, columns = np.triu_indices(sums.shape[1])
    arrays = {
        "counts": counts.astype(np.uint32),
        "sums": sums.astype(np.float32),
        "products": products[:, rows, columns].astype(np.float32),
    }
    return Note("moments", {}, arrays, side.mark)


def own_rows(side: ClientSide, which: str, max_examples: int, note: Note) -> Ints:
    """All rows, or the draw the local runtime would make."""
    rows = side.store.rows(side.client, which)
    if not max_examples or len(rows) <= max_examples:
        return rows
    rng = stream(int(note.values["seed"]), "loss", side.client, int(note.values["round"]))
    return np.sort(rng.choice(rows, max_examples, replace=False))


def _check(side: ClientSide, note: Note) -> None:
    """The message is for this client and this model."""
    _check_client(side, note)
    if note.layout != side.mark:
        what = f"{OTHER_MODEL} ({note.layout}, here {side.mark})"
        raise ForeignMessage(
            f"client {side.client}", f"the message {what}", "Build the same model on both sides"
        )


def _check_client(side: ClientSide, note: Note) -> None:
    if int(note.values["client"]) != side.client:
        raise ForeignMessage(
            f"client {side.client}",
            f"the message is for client {note.values['client']}",
            "Join again",
        )
