"""The bank: what methods gave on many small federations, measured once and shipped.

``bank.json`` is written by ``evidence/bank/ship.py`` from the results of the study beside it. Costs
have no unit: models per place in a round, passes over a mean client's examples, models on the
longest way through a round. So they can be read for any model, link and pace
(:mod:`fedskew.advice.costs`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from fedskew.errors import DataError, foreign_file
from fedskew.types import Floats

FORMAT = 1
LEVELS = (1, 2, 3, 5, 8, 12, 18, 27, 40, 60)  # rounds after which accuracies are kept
COSTS = (
    # per place in a round (chosen: how many trained)
    *("down", "up", "d2d", "passes", "chosen"),
    # the longest way through a round: models over the server, from device to device, mean clients
    *("hops", "handed", "turns"),
    # before the first round, per client; start_hops for all at once
    *("start_down", "start_up", "start_passes", "start_hops"),
)
BASE = "fedavg"  # what gains are counted from


@dataclass(frozen=True)
class Entry:
    """A method of the bank: a shipped recipe with settings of its own."""

    recipe: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Federation:
    """One federation of the bank, in words."""

    data: str
    partition: str
    shape: str

    @property
    def text(self) -> str:
        """One line."""
        return f"{self.data}, {self.partition}, {self.shape}"


@dataclass(frozen=True, eq=False)
class Bank:
    """F federations, M methods, accuracies after L numbers of rounds."""

    version: str  # of fedskew that made it
    methods: Mapping[str, Entry]  # M
    federations: Sequence[Federation]  # F
    feature_names: Sequence[str]  # P
    features: Floats  # (F, P)
    levels: Floats  # (L,) rounds
    accuracy: Floats  # (F, M, L) nan: not measured
    costs: Mapping[str, Floats]  # name -> (F, M)

    @cached_property
    def names(self) -> list[str]:
        """Of the methods, in order."""
        return list(self.methods)

    def feature(self, name: str) -> Floats:
        """(F,) of one name."""
        column: Floats = self.features[:, list(self.feature_names).index(name)]
        return column

    @property
    def num_clients(self) -> Floats:
        """(F,) K."""
        return np.exp(self.feature("clients"))

    @property
    def per_round(self) -> Floats:
        """(F,) m."""
        return np.exp(self.feature("share")) * self.num_clients

    def accuracy_at(self, rounds: Sequence[float] | Floats) -> Floats:
        """(F, M) of each method after its own number of rounds, in between by their logarithm;
        beyond the last level, what it was there; nan for a method that cannot play one round.
        """
        places = np.log(np.clip(rounds, self.levels[0], self.levels[-1]))
        known = np.log(self.levels)
        above = np.clip(np.searchsorted(known, places), 1, len(known) - 1)
        share = (places - known[above - 1]) / (known[above] - known[above - 1])
        index = np.arange(len(self.names))
        low, high = self.accuracy[:, index, above - 1], self.accuracy[:, index, above]
        found: Floats = np.where(np.asarray(rounds) >= 1, low + share * (high - low), np.nan)
        return found


def read_bank(path: str | Path | None = None) -> Bank:
    """A bank from a file; by default the one that comes with the package."""
    file = Path(str(resources.files("fedskew") / "advice" / "bank.json")) if path is None else path
    with foreign_file(DataError, str(file), "Install fedskew again, or make the bank"):
        raw = json.loads(Path(file).read_text(encoding="utf8"))
        if raw["format"] != FORMAT:
            raise ValueError(f"format {raw['format']}, not {FORMAT}")
        return _bank(raw)


def _bank(raw: Mapping[str, Any]) -> Bank:
    shape = (len(raw["federations"]), len(raw["methods"]))
    costs = np.full((*shape, len(raw["costs"])), np.nan)
    accuracy = np.full((*shape, len(raw["levels"])), np.nan)
    for f, federation in enumerate(raw["federations"]):
        for m, method in enumerate(raw["methods"]):
            if method in federation["runs"]:
                found = federation["runs"][method]
                accuracy[f, m], costs[f, m] = found["accuracy"], found["costs"]
    return Bank(
        version=str(raw["version"]),
        methods={name: Entry(**entry) for name, entry in raw["methods"].items()},
        federations=[
            Federation(one["data"], one["partition"], one["shape"]) for one in raw["federations"]
        ],
        feature_names=list(raw["features"]),
        features=np.array([one["features"] for one in raw["federations"]], np.float64),
        levels=np.array(raw["levels"], np.float64),
        accuracy=accuracy,
        costs={name: costs[:, :, place] for place, name in enumerate(raw["costs"])},
    )


def bank_bytes(bank: Bank) -> bytes:
    """The file, a line per federation, so that two versions can be compared by eye."""
    head = {
        "format": FORMAT,
        "version": bank.version,
        "methods": {
            name: {"recipe": entry.recipe, "settings": entry.settings}
            for name, entry in bank.methods.items()
        },
        "features": list(bank.feature_names),
        "costs": list(bank.costs),
        "levels": [int(level) for level in bank.levels],
    }
    lines = [f"{_text(key)}: {_text(value)}" for key, value in head.items()]
    rows = ",\n".join(_text(_plain(bank, number)) for number in range(len(bank.federations)))
    lines.append(f'"federations": [\n{rows}\n]')
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _plain(bank: Bank, number: int) -> dict[str, Any]:
    federation = bank.federations[number]
    runs = {
        name: {
            "accuracy": bank.accuracy[number, place].round(4).tolist(),
            "costs": [round(float(bank.costs[cost][number, place]), 4) for cost in bank.costs],
        }
        for place, name in enumerate(bank.names)
        if not np.isnan(bank.accuracy[number, place]).any()
    }
    return {
        **vars(federation),
        "features": bank.features[number].round(4).tolist(),
        "runs": runs,
    }


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
