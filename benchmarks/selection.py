"""How long selection takes, each rule against its limit; exit code 1 if one is missed.

A rule plays a few rounds with clients that do not exist (fedskew.testing); only the time inside the
rule is counted, all its turns of a round together, answering its questions not. Processor time, so
that other work on the machine does not matter, with one BLAS thread and the memory settings of a
run; the median round counts, after the first ones.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from fedskew.runtime.local.allocator import tune_allocator
from fedskew.selection import SELECTIONS
from fedskew.selection.loss_process import fit
from fedskew.testing import World, play
from fedskew.types import SelectionRule, bind
from table import Figure, report

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


def seconds_of(name: str, world: World, skip: int = 1, **options: Any) -> tuple[float, float]:
    """(median, largest) seconds of a round after the first ``skip``."""
    timed = Timed(bind("selection", SELECTIONS[name], options))
    for _ in play(timed, world, fills_budget=name not in OWN_NUMBER):
        pass
    rounds = [seconds for round, seconds in timed.seconds.items() if round > skip]
    return statistics.median(rounds), max(rounds)


def thousand() -> Iterator[Figure]:
    world = World(clients=1000, budget=50, rounds=31)
    for name in SELECTIONS:
        # by then all clients can be known
        median, worst = seconds_of(name, world, skip=21, **AT_A_THOUSAND.get(name, {}))
        yield Figure(f"{name} K=1,000 m=50 [ms]", 1e3 * median, 20, f"largest {1e3 * worst:.1f}")


def fits() -> Iterator[Figure]:
    for clients, steps, limit in [(100, 1000, 2.0), (1000, 1000, None), (1000, 100, None)]:
        rng = np.random.default_rng(0)
        embedding, changes = (
            rng.normal(size=(15, clients)) / np.sqrt(15),
            rng.normal(size=(16, clients)),
        )
        began = time.process_time()
        fit(embedding, changes, 0.95 ** np.arange(16.0), noise=0.01, steps=steps, lr=0.01)
        yield Figure(
            f"fedcor fit, {steps} steps, K={clients:,} [s]", time.process_time() - began, limit
        )


def large() -> Iterator[Figure]:
    if "bacsa" in SELECTIONS:
        median, worst = seconds_of(
            "bacsa", World(clients=10_000, budget=100, rounds=5), solver="swap"
        )
        yield Figure("bacsa swap K=10,000 m=100 [s]", median, 0.3, f"largest {worst:.3f}")
    for name in LARGE:
        if name in SELECTIONS:
            median, worst = seconds_of(name, World(clients=1_000_000, budget=100, rounds=4))
            yield Figure(f"{name} K=1,000,000 m=100 [s]", median, 0.5, f"largest {worst:.3f}")


def main() -> int:
    tune_allocator()
    with threadpool_limits(1):
        parts = [("selection", thousand()), ("fits", fits()), ("many", large())]
        return max([report(title, list(part)) for title, part in parts])


if __name__ == "__main__":
    sys.exit(main())
