"""One body per group of clients with similar labels, all of them side by side under one output
layer (FedConcat).

Diao, Li, He: "Exploiting Label Skews in Federated Learning with Model Concatenation", AAAI 2024,
Algorithm 1: clients are grouped by their label mixes, each group trains a model of its own by
FedAvg; then the bodies of all groups go to every client, side by side and no longer trained, and
FedAvg trains one output layer over all their features. The first part is the recipe's own pipeline
(any signal, distance, clustering and selection before ``procedure.per_cluster``), this is the
second.

Differs from the paper: each client is sent the bodies once, when it first trains the output layer;
local training is the recipe's own, but for the learning rate where ``lr`` is given.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedskew.errors import RecipeError
from fedskew.types import LocalJob, SecondActRule


@dataclass(frozen=True)
class FedConcat(SecondActRule):
    """So many rounds for the output layer; 0 for the learning rate: the recipe's."""

    rounds: int = 20
    lr: float = 0.0

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.lr < 0:
            what = f"rounds = {self.rounds}, lr = {self.lr}"
            raise RecipeError("finish fedconcat", what, "Give 1 round or more, and no negative lr")

    @property
    def num_rounds(self) -> int:
        """As the recipe says."""
        return self.rounds

    def job(self, job: LocalJob) -> LocalJob:
        """As before, with a learning rate of its own if there is one."""
        return replace(job, lr=self.lr) if self.lr else job
