"""Where a run is played, and one run on its way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from fedskew.loop.method import Setting
from fedskew.records import Labels, RunFolder
from fedskew.types import Runtime, Unscored


@dataclass(frozen=True)
class Backend:
    """Where a run is played: clients behind a runtime, and what is special about them."""

    runtime: Runtime
    clients_have_tests: Callable[[], bool]
    # what may be kept of the clients' labels, as far as it is known by now
    labels: Callable[[], Labels | None]
    facts: Mapping[str, Any] = field(default_factory=dict)  # about this run, for run.json
    # joules measured since it was last asked; None: energy is modelled
    measured_joules: Callable[[], float] | None = None
    # whether it has given label_flip's clients their labels (only who owns the examples can)
    owns_examples: bool = False
    # clients may go at any moment: every round is saved as soon as it is played (else as often as
    # the recipe's run.checkpoint_seconds says), and the final model before clients are tested
    save_every_round: bool = False
    # called when nothing is left to play: from then on nobody is waited for
    rounds_over: Callable[[], None] = lambda: None
    # what clients did not say of the models' quality, since it was last asked
    unscored: Callable[[], Unscored] = Unscored
    # called when a round is on disk, and once more when the clients have been tested
    after_round: Callable[[int], None] = lambda round: None


# the last round that is on disk (-1: none) -> the backend, open as long as the run goes on
OpenBackend = Callable[[int], AbstractContextManager[Backend]]


@dataclass(frozen=True)
class Session:
    """One run on its way."""

    recipe: Mapping[str, Any]
    setting: Setting
    backend: Backend
    folder: RunFolder | None

    def keep_labels(self) -> Labels | None:
        """Write what may be kept of the clients' labels; returns it."""
        labels = self.backend.labels()
        if labels is None or self.folder is None:
            return labels
        return self.folder.keep_labels(labels)
