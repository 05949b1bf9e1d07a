"""A finished run: what happened, and its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedskew.accounting.energy import watt_hours
from fedskew.accounting.fairness import Fairness, fairness
from fedskew.accounting.targets import Plateau, ToTarget, to_plateau, to_target
from fedskew.accounting.traffic import total_bytes
from fedskew.errors import RunFolderError
from fedskew.experiment.tables import rows_of, to_arrow, to_pandas
from fedskew.recipe import load
from fedskew.records import CLIENTS, FINAL, RECIPE, RESULT, RUN, read_json, read_model, read_rounds
from fedskew.types import Layout, Params, RoundRecord

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Run:
    """A finished run: its recipe, every round, per-client results and the final model."""

    recipe: Mapping[str, Any]
    seed: int
    rounds: Sequence[RoundRecord]
    clients: Mapping[str, Any]  # column -> one value per client
    models: Params  # (S, D)
    layout: Layout
    folder: Path | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: str | Path) -> Run:
        """Read a finished run from its folder."""
        folder = Path(folder)
        if not (folder / RESULT).is_file():
            raise RunFolderError(
                str(folder), "is not the folder of a finished run", "Finish it with --resume"
            )
        facts, clients = read_json(folder / RUN), read_json(folder / CLIENTS)
        vectors, layout = read_model(folder / FINAL)
        return cls(
            load(folder / RECIPE),
            facts["seed"],
            read_rounds(folder),
            clients,
            vectors,
            layout,
            folder,
            facts,
        )

    @property
    def evaluations(self) -> list[tuple[int, float]]:
        """(round, accuracy) of the global model on the central test set, wherever it was
        measured.
        """
        return [(r.round, r.accuracy) for r in self.rounds if not np.isnan(r.accuracy)]

    @property
    def client_evaluations(self) -> list[tuple[int, float]]:
        """(round, accuracy) of the clients' own models on their own test sets, weighted by test
        examples.
        """
        return [
            (r.round, r.client_accuracy) for r in self.rounds if not np.isnan(r.client_accuracy)
        ]

    @property
    def fairness(self) -> Fairness | None:
        """How the final models serve the clients' own test sets; None if clients have none."""
        return (
            fairness(self.clients["accuracy"], self.clients["test_examples"])
            if "accuracy" in self.clients
            else None
        )

    def state_dict(self, slot: int = 0) -> dict[str, Params]:
        """The final model as named arrays, ready for ``module.load_state_dict`` after
        ``torch.from_numpy``.

        Frozen parameters never travel and are not in it: give a module that has them, and
        ``strict=False``.
        """
        return {name: array.copy() for name, array in self.layout.unpack(self.models[slot]).items()}

    def to_target(self, accuracy: float) -> ToTarget:
        """Rounds, bytes, simulated seconds and joules until this accuracy was held; None in it:
        never within the run.
        """
        return to_target(self.rounds, accuracy)

    def to_plateau(self) -> Plateau:
        """Where the run stopped getting better."""
        return to_plateau(self.rounds)

    @property
    def joules(self) -> float:
        """What the clients spent: measured where it was, else modelled."""
        return sum(r.joules for r in self.rounds)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """A tidy table as plain dicts: "rounds", "choices" (a row per client and round),
        "transfers" or "clients".
        """
        return rows_of(self, table)

    def frame(self, table: str) -> pd.DataFrame:
        """:meth:`rows` as pandas."""
        return to_pandas(self.rows(table))

    def arrow(self, table: str) -> Any:
        """:meth:`rows` as a pyarrow.Table."""
        return to_arrow(self.rows(table))

    def summary(self) -> dict[str, Any]:
        """The numbers that ``fedskew run --json`` prints. A method with several models has no
        global accuracy: nan.
        """
        one_model = not np.isnan(self.rounds[-1].accuracy)
        accuracies = [accuracy for _, accuracy in self.evaluations] if one_model else [float("nan")]
        clients = self.fairness
        transfers = [t for r in self.rounds for t in r.transfers]
        return {
            "name": self.recipe["name"],
            "seed": self.seed,
            "final_accuracy": accuracies[-1],
            "last5_accuracy": float(np.mean(accuracies[-5:])),
            "best_accuracy": max(accuracies),
            "final_loss": self.rounds[-1].test_loss,
            "models": len(self.models),
            "client_accuracy": None if clients is None else clients.as_dict(),
            "rounds": self.rounds[-1].round,
            "bytes_down": total_bytes(transfers, "down"),
            "bytes_up": total_bytes(transfers, "up"),
            "bytes_d2d": total_bytes(transfers, "d2d"),
            "seconds": sum(r.seconds for r in self.rounds),
            "simulated_seconds": sum(r.cost.seconds for r in self.rounds),
            "joules": self.joules,
            "wh": watt_hours(self.joules),
            "energy": self.recipe["run"].get("energy", "modelled"),
            "sample_passes": sum(r.cost.sample_passes for r in self.rounds),
            "failures": sum(len(r.failures) for r in self.rounds),
            "out": None if self.folder is None else str(self.folder),
        }
