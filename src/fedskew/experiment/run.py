"""One run, finished or not: its recipe, its rounds, its clients, its final model.

Reading one from its folder needs no torch, and the model is only read when somebody asks for it.
Its figures are computed in :mod:`fedskew.experiment.figures`, each once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedskew.accounting.fairness import Fairness
from fedskew.errors import RunError, RunFolderError, foreign_file
from fedskew.experiment import figures
from fedskew.experiment.coverage import coverage_notes
from fedskew.experiment.figures import Curve, Plateau, Resource, ToTarget
from fedskew.experiment.notebook import OF_CLIENTS, curves_svg, table_html
from fedskew.experiment.plausible import fault_of
from fedskew.experiment.run_folders import path_of
from fedskew.experiment.tables import rows_of, to_arrow, to_pandas
from fedskew.recipe import fingerprint, read_recorded
from fedskew.records import (
    FINAL,
    RECIPE,
    RESULT,
    RUN,
    SUMS,
    Labels,
    read_folder,
    read_frozen,
    read_model,
    read_num_models,
)
from fedskew.types import Floats, Ints, Layout, Params, RoundRecord

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """What happened in one run, and what it came to."""

    recipe: Mapping[str, Any]  # resolved
    seed: int
    rounds: Sequence[RoundRecord]
    # column -> one value per client; empty while the run goes on
    clients: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)  # where and with what it was made
    finished: bool = True
    labels: Labels | None = None  # None: not known
    # row -> columns, or why there is none
    references: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # (S, D) and what stands where in it; None: it lies in the folder
    final_model: tuple[Params, Layout] | None = None
    # parameters that were never trained; None: they lie in the folder
    frozen: Mapping[str, Params] | None = None
    result: Mapping[str, Any] = field(default_factory=dict)  # what its folder keeps as the result
    checked: bool = True  # False: its folder was written before folders had checksums

    @classmethod
    def load(cls, folder: str | Path) -> Run:
        """Read a finished run from its folder."""
        folder = path_of("run", folder)
        if not folder.is_dir():
            raise RunFolderError(str(folder), "there is no such folder", "Check the path")
        if not (folder / RESULT).is_file():
            raise RunFolderError(
                str(folder), "is not the folder of a finished run", "Finish it with --resume"
            )
        return cls.read(folder)

    @classmethod
    def read(cls, folder: str | Path, *, trust: bool = False) -> Run:
        """Read a run from its folder, finished or not; a half-written last record is passed over,
        any other damage is an error.

        Reading imports nothing. ``trust``: code that its recipe names may be imported when this
        run is trained further (:func:`fedskew.experiment.references.with_references`).
        """
        folder = path_of("run", folder)
        with foreign_file(RunFolderError, str(folder), "Remove the folder and run again"):
            run = cls._read(folder, trust)
            fault = fault_of(run)
        if fault:
            raise RunFolderError(str(folder), fault, "Remove the folder and run again")
        return run

    @classmethod
    def _read(cls, folder: Path, trust: bool) -> Run:
        found = read_folder(folder)
        return cls(
            recipe=read_recorded(folder / RECIPE, trust=trust),
            seed=_seed(folder, found.facts),
            rounds=found.rounds,
            clients=found.clients,
            folder=folder,
            facts=found.facts,
            finished=found.finished,
            labels=found.labels,
            references=found.references,
            result=found.result,
            checked=found.checked,
        )

    # ---------------------------------------------------------------- what it is

    def __repr__(self) -> str:
        played = f"round {self.rounds[-1].round}" if self.rounds else "no rounds"
        return (
            f"Run({self.name}, seed {self.seed}, {played}{'' if self.finished else ', going on'})"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows: figures and the curve."""
        name = self.name + ("" if self.curve.is_global else OF_CLIENTS)
        return table_html(self._facts()) + curves_svg({name: self.curve.points})

    def _facts(self) -> list[tuple[str, str]]:
        if not self.finished:
            return [("run", repr(self)), ("folder", str(self.folder))]
        known = self.summary()
        clients = known["client_accuracy"] or {}
        shares = {
            "final accuracy": known["final_accuracy"],
            "best accuracy": known["best_accuracy"],
            "clients' accuracy": clients.get("weighted", np.nan),
        }
        costs = {
            "MB down, up": f"{known['bytes_down'] / 1e6:.2f}, {known['bytes_up'] / 1e6:.2f}",
            "simulated seconds": f"{known['simulated_seconds']:.1f}",
            "Wh": f"{known['wh']:.3f}",
        }
        accuracies = [(k, "–" if np.isnan(v) else f"{v:.4f}") for k, v in shares.items()]
        return [("run", repr(self)), *accuracies, *costs.items()]

    @property
    def name(self) -> str:
        """The recipe's name."""
        return str(self.recipe["name"])

    @property
    def fingerprint(self) -> str:
        """What all runs of one resolved recipe have in common; else the name."""
        # a recipe read back from disk has lost its options that are None: the mark tells
        mark = str(self.facts.get("mark", "")).rpartition("-")[0]
        return mark or (fingerprint(self.recipe) if "run" in self.recipe else self.name)

    @property
    def notes(self) -> list[str]:
        """What its recipe asked for and did not get, and whom its figures do not cover."""
        kept = self.facts.get("notes", [])
        written = [str(note) for note in kept] if isinstance(kept, list) else []
        return written + coverage_notes(self)

    @property
    def num_clients(self) -> int:
        """K."""
        if self.labels is not None:
            return len(self.labels.counts)
        if "client" in self.clients:
            return len(self.clients["client"])
        chosen = [c for record in self.rounds for chain in record.chains for c in chain.clients]
        return max([int(self.recipe["data"]["clients"]) - 1, *chosen]) + 1

    # ---------------------------------------------------------------- the final model

    @cached_property
    def _model(self) -> tuple[Params, Layout]:
        if self.final_model is not None:
            return self.final_model
        if self.folder is None or not self.finished:
            raise RunError(repr(self), "has no final model", "Finish it with --resume")
        return read_model(self.folder / FINAL, expected=self._model_sum)

    @property
    def _model_sum(self) -> str | None:
        """The checksum that its final model must have; None: not known."""
        found: str | None = self.result.get(SUMS, {}).get(FINAL)
        return found

    @property
    def models(self) -> Params:
        """(S, D) the final models."""
        return self._model[0]

    @property
    def layout(self) -> Layout:
        """What stands where in a model."""
        return self._model[1]

    @cached_property
    def num_models(self) -> int:
        """S."""
        if SUMS in self.result and "models" in self.result:
            return int(self.result["models"])
        if self.final_model is None and self.folder is not None and self.finished:
            return read_num_models(self.folder / FINAL)
        return len(self.models)

    def state_dict(self, slot: int = 0) -> dict[str, Params]:
        """The final model as named arrays: ``torch.from_numpy`` and ``load_state_dict`` take them.

        Parameters that were never trained are in it; tables of integers and buffers that are not
        persistent are not.
        """
        if not 0 <= slot < len(self.models):
            what = f"has no model number {slot}"
            raise RunError(repr(self), what, f"Give a number from 0 to {len(self.models) - 1}")
        frozen = self.frozen
        if frozen is None:
            frozen = (
                {}
                if self.folder is None
                else read_frozen(self.folder / FINAL, expected=self._model_sum)
            )
        trained = self.layout.unpack(self.models[slot])
        return {name: array.copy() for name, array in {**trained, **frozen}.items()}

    # ---------------------------------------------------------------- its figures

    @cached_property
    def curve(self) -> Curve:
        """The evaluations it is judged by."""
        return figures.curve_of(self)

    @property
    def evaluations(self) -> list[tuple[int, float]]:
        """(round, accuracy) of the global model on the central test set, where it was measured."""
        return [(r.round, r.accuracy) for r in self.rounds if not np.isnan(r.accuracy)]

    @property
    def client_evaluations(self) -> list[tuple[int, float]]:
        """(round, accuracy) of the clients' own models on their own test sets.

        Weighted by test examples.
        """
        return [
            (r.round, r.client_accuracy) for r in self.rounds if not np.isnan(r.client_accuracy)
        ]

    @cached_property
    def _spent(self) -> dict[Resource, Floats]:
        return {}

    def spent(self, resource: Resource) -> Floats:
        """(R,) of a resource after each record; nan = not known."""
        if resource not in self._spent:
            self._spent[resource] = figures.spent(self, resource)
        return self._spent[resource]

    @cached_property
    def times_selected(self) -> Ints:
        """(K,) how often each client was in a plan."""
        return figures.times_selected(self)

    @cached_property
    def fairness(self) -> Fairness | None:
        """How the final models serve the clients' own test sets; None if clients have none."""
        return figures.fairness_of(self.clients)

    def to_target(self, accuracy: float) -> ToTarget:
        """Rounds, bytes, simulated seconds and joules until this accuracy was held; None in it:
        never within the run.
        """
        return figures.to_target(self, accuracy)

    def to_plateau(self) -> Plateau:
        """Where the run stopped getting better."""
        return figures.to_plateau(self)

    @property
    def joules(self) -> float:
        """What the clients spent: measured where it was, else modelled."""
        return figures.total(self, "energy")

    @cached_property
    def _summary(self) -> dict[str, Any]:
        return figures.summary(self)

    def summary(self, target: float | None = None) -> dict[str, Any]:
        """The numbers that ``fedskew run --json`` prints, with what a target took if one is
        given. A method with several models has no global accuracy: nan.
        """
        reached = {} if target is None else {"to_target": self.to_target(target).as_dict()}
        return {**self._summary, **reached}

    # ---------------------------------------------------------------- its tables

    def rows(self, table: str) -> list[dict[str, Any]]:
        """A tidy table as plain dicts: "rounds", "choices", "transfers" or "clients".

        "choices" has a row per client and round.
        """
        return rows_of(self, table)

    def frame(self, table: str) -> pd.DataFrame:
        """:meth:`rows` as pandas."""
        return to_pandas(self.rows(table))

    def arrow(self, table: str) -> Any:
        """:meth:`rows` as a pyarrow.Table."""
        return to_arrow(self.rows(table))


def _seed(folder: Path, facts: Mapping[str, Any]) -> int:
    try:
        return int(facts["seed"])
    except (KeyError, TypeError, ValueError):
        raise RunFolderError(
            str(folder / RUN), "names no seed", "Remove the folder and run again"
        ) from None
