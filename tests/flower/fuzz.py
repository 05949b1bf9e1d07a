"""Hostile messages of every kind against whole runs, over a Grid without processes.

    make fuzz                                             100,000 messages, some minutes
    python tests/flower/fuzz.py --messages 3000 --seed 7  fewer of them, others

Of 64 clients four are honest. The others answer with what no server may accept; then the run must
end as if they had been dead from the start, to the last bit of the model. In every fourth run they
answer at random instead, so that some of it is accepted; then the run must only come to its end,
with finite models. Any exception is a finding. It is printed with the seed that repeats it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
from fake_grid import FakeGrid, server_context
from flwr.app import Error, Message
from poison import Client, Random, honest_note, poisoned, scrambled

from fedskew.experiment.fleet import serve
from fedskew.experiment.run import Run
from fedskew.recipe import num_rounds
from fedskew.runtime.flower import backoff
from fedskew.runtime.flower.records import to_records

HONEST = 4
Mode = Literal["poisoned", "scrambled", "honest", "dead"]
KINDS = ("query.hello", "query.release", "train", "evaluate", "query.vote", "query.moments")
ALL = "run.clients_per_round=64; run.evaluate_clients_every=1"


@dataclass(frozen=True)
class Scene:
    """One recipe, and which questions hostile nodes answer with poison."""

    recipe: str
    kinds: tuple[str, ...]
    changes: str = ALL
    # hostile nodes that join and leave again with every look at the fleet
    strangers: int = 0
    # what a run without poison is: nobody joined, or they joined and answered those with an error
    like: Literal["alone", "dead"] = "dead"


SCENES = {
    "hello": Scene("fedavg", ("query.hello",), strangers=100, like="alone"),
    "counts": Scene("fedlecc", ("query.hello",), "signal.use=histogram", 100, "alone"),
    "train": Scene("fedavg", ("train",), like="alone"),
    "scores": Scene("fedavg", ("train", "evaluate"), like="alone"),
    "losses": Scene("poc", ("evaluate",), "selection.d=64"),
    "slots": Scene("ifca", ("evaluate", "train")),
    "votes": Scene("fedsoft", ("query.vote", "evaluate"), f"{ALL}; procedure.estimate_every=1"),
    "probes": Scene("bacsa", ("train",)),
    "features": Scene("ccvr", ("query.moments",)),
    "releases": Scene("fedlecc", ("query.release",), "signal.use=private"),
}


@dataclass
class HostileGrid(FakeGrid):
    """A fleet whose first clients are honest; the others answer some questions by ``mode``."""

    scene: Scene = SCENES["train"]
    mode: Mode = "poisoned"
    rng: Random = field(default_factory=lambda: np.random.default_rng(0))
    sent: Counter[str] = field(default_factory=Counter)  # poison, by kind of question
    kept: dict[tuple[int, str], Message] = field(default_factory=dict)  # honest releases

    def get_node_ids(self) -> Iterable[int]:
        if self.mode == "dead" and self.scene.like == "alone":
            return range(1000, 1000 + HONEST)
        present = list(range(1000, 1000 + HONEST if self.scene.strangers else 1064))
        if not self.scene.strangers or self.mode == "dead":
            return present
        first = 10_000 + 1000 * len(self.log)
        return present + list(range(first, first + self.scene.strangers))

    def _answer(self, node: int, question: Message) -> Message | None:
        kind = question.metadata.message_type
        if node < 1000 + HONEST:
            return self._honest(node, question)
        client = Client((node - 1000) % 64 if node < 10_000 else 4 + node % 60)
        if kind not in self.scene.kinds or self.mode == "honest":
            note = honest_note(question, client, np.random.default_rng(node))  # in every run alike
            return Message(to_records(note), reply_to=question)
        if self.mode == "dead":
            return Message(Error(2, "dead"), reply_to=question)
        self.sent[kind] += 1
        return (poisoned if self.mode == "poisoned" else scrambled)(self.rng, question, client)

    def _honest(self, node: int, question: Message) -> Message:
        """Noise cannot be drawn again: a run to compare with gets the same."""
        answer = super()._answer(node, question)
        if question.metadata.message_type != "query.release":
            return answer
        first = self.kept.setdefault((node, "release"), answer)
        return Message(first.content, reply_to=question)


def play(
    name: str, mode: Mode, seed: int, rounds: int, kept: dict[tuple[int, str], Message]
) -> tuple[Run, Counter[str]]:
    """One run of a scene; its result and what was sent."""
    scene = SCENES[name]
    small = f"data.clients=64; partition.use=iid; run.rounds={rounds}; local.epochs=1"
    with tempfile.TemporaryDirectory() as folder:
        config: dict[str, Any] = {
            "recipe": scene.recipe, "set": f"{small}; {scene.changes}", "seed": 3, "out": folder,
            "poll-seconds": 0.0, "wait-seconds": 0.0, "deadline-seconds": 0.0, "hello-seconds": 0.0,
        }  # fmt: skip
        rng = np.random.default_rng([seed, sorted(SCENES).index(name)])
        grid = HostileGrid(config, scene=scene, mode=mode, rng=rng, kept=kept)
        for client in range(HONEST):
            grid.join(client)
        with redirect_stdout(StringIO()), asked_again_at_once():
            run = serve(grid, server_context(config), grid.task, Path("."))
        played = num_rounds(run.recipe)
        assert [r.round for r in Run.load(folder).rounds] == list(range(played + 1))
    return run, grid.sent


@contextmanager
def asked_again_at_once() -> Iterator[None]:
    """Whoever was refused is asked again in the next round, not after some seconds."""
    seconds, backoff.FIRST_SECONDS = backoff.FIRST_SECONDS, 0.0
    try:
        yield
    finally:
        backoff.FIRST_SECONDS = seconds


def same(run: Run, other: Run) -> bool:
    """Whether honest clients have what they had without the hostile ones."""
    honest = range(HONEST)
    losses = [[[r.loss.get(c) for c in honest] for r in one.rounds] for one in (run, other)]
    names = [name for name in ("accuracy", "test_loss") if name in other.clients]
    scores = [[one.clients[name][:HONEST] for name in names] for one in (run, other)]
    alike = np.array_equal(run.models, other.models) and losses[0] == losses[1]
    return alike and np.array_equal(np.array(scores[0]), np.array(scores[1]), equal_nan=True)


def fuzz(messages: int, seed: int, rounds: int) -> int:
    """So many messages in turns over all scenes; how many runs went wrong."""
    sent: Counter[str] = Counter()
    wrong, turn, began = 0, 0, time.monotonic()
    kept: dict[tuple[int, str], Message] = {}
    calm = {name: play(name, "dead", 0, rounds, kept)[0] for name in SCENES}
    while sum(sent.values()) < messages:
        for name in SCENES:
            mode: Mode = "scrambled" if turn % 4 == 3 else "poisoned"
            try:
                run, counted = play(name, mode, seed + turn, rounds, kept)
                sent += counted
                if not np.isfinite(run.models).all():
                    raise AssertionError("the model is not finite")
                if mode == "poisoned" and not same(run, calm[name]):
                    raise AssertionError("hostile clients changed the result")
            except Exception:
                wrong += 1
                print(f"FOUND {name} {mode} --seed {seed + turn}\n{traceback.format_exc()}")
        turn += 1
        line = f"{sum(sent.values()):,} messages, {time.monotonic() - began:.0f} s, {wrong} wrong"
        print(f"{line}: " + ", ".join(f"{k} {sent[k]:,}" for k in KINDS), flush=True)
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=4, help="of each run")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("error")
    sys.exit(1 if fuzz(given.messages, given.seed, given.rounds) else 0)


if __name__ == "__main__":
    main()
