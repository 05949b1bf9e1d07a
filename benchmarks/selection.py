"""How long selection takes, in yardsticks (yardstick.py), each rule against its limit; exit code 1
if one is missed.

A rule plays a few rounds with clients that do not exist (fedskew.testing); only the time inside the
rule is counted, all its turns of a round together, answering its questions not. Processor time, so
that other work on the machine matters little, with one BLAS thread and the memory settings of a
run; the median round counts, after the first ones.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from fedskew.runtime.local.allocator import tune_allocator
from fedskew.selection import SELECTIONS
from fedskew.selection.loss_process import fit
from fedskew.testing import World, play
from fedskew.types import SelectionRule, bind
from table import Figure, report
from yardstick import in_yardsticks

OWN_NUMBER = {"one_per_cluster", "stratified", "psi_pfl"}
AT_A_THOUSAND: dict[str, dict[str, Any]] = {
    "fedcor": {"warm_up": 2, "every": 1000, "first_steps": 30},  # its fit is measured apart
}
LARGE = ("uniform", "power_of_choice", "fedlecc", "one_per_cluster")


@dataclass(frozen=True)
class Timed(SelectionRule):
    """A rule that notes how long each of its calls took, round by round."""

    inner: SelectionRule
    seconds: dict[int, float] = field(default_factory=dict)

    @property
    def learns_from(self) -> Any:  # type: ignore[override]
        return self.inner.learns_from

    @property
    def uses_auxiliary(self) -> bool:  # type: ignore[override]
        return self.inner.uses_auxiliary

    def needs(self) -> Any:
        return self.inner.needs()

    def choose(self, memory: Any, view: Any, rng: Any) -> Any:
        began = time.process_time()
        result = self.inner.choose(memory, view, rng)
        spent = time.process_time() - began
        self.seconds[view.round] = self.seconds.get(view.round, 0.0) + spent
        return result

    def learn(self, memory: Any, feedback: Any) -> Any:
        return self.inner.learn(memory, feedback)


def seconds_of(name: str, world: World, skip: int = 1, **options: Any) -> float:
    """The median seconds of a round after the first ``skip``."""
    timed = Timed(bind("selection", SELECTIONS[name], options))
    for _ in play(timed, world, fills_budget=name not in OWN_NUMBER):
        pass
    return statistics.median(seconds for round, seconds in timed.seconds.items() if round > skip)


def rule(title: str, name: str, world: World, limit: float, **more: Any) -> Figure:
    """What a rule takes for a round, in yardsticks."""
    return in_yardsticks(f"{name} {title}", lambda: seconds_of(name, world, **more), limit)


def thousand() -> Iterator[Figure]:
    world = World(clients=1000, budget=50, rounds=31)
    for name in SELECTIONS:
        # by then all clients can be known
        yield rule("K=1,000 m=50", name, world, 3, skip=21, **AT_A_THOUSAND.get(name, {}))


def fits() -> Iterator[Figure]:
    for clients, steps, limit in [(100, 1000, 200), (1000, 1000, None), (1000, 100, None)]:
        title = f"fedcor fit, {steps} steps, K={clients:,}"
        yield in_yardsticks(title, partial(seconds_of_fit, clients, steps), limit)


def seconds_of_fit(clients: int, steps: int) -> float:
    rng = np.random.default_rng(0)
    embedding = rng.normal(size=(15, clients)) / np.sqrt(15)
    changes = rng.normal(size=(16, clients))
    began = time.process_time()
    fit(embedding, changes, 0.95 ** np.arange(16.0), noise=0.01, steps=steps, lr=0.01)
    return time.process_time() - began


def large() -> Iterator[Figure]:
    world = World(clients=10_000, budget=100, rounds=5)
    yield rule("swap K=10,000 m=100", "bacsa", world, 30, solver="swap")
    for name in LARGE:
        world = World(clients=1_000_000, budget=100, rounds=4)
        yield rule("K=1,000,000 m=100", name, world, 50)


def main() -> int:
    tune_allocator()
    seconds_of_fit(10, 1)  # loads SciPy's BLAS, which could not be limited before
    with threadpool_limits(1):
        parts = [("selection", thousand()), ("fits", fits()), ("many", large())]
        return max([report(title, list(part)) for title, part in parts])


if __name__ == "__main__":
    sys.exit(main())
