"""How long the rest of a study will take.

A cell is expected to take what its twins (same labels, other seeds) took. Without a twin it is
expected to take its share of work, at the speed of the finished cells of its kind (same data and
model), or of all. The work of a run is what it takes in steps; a measurement may say its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from fedskew.evidence.cells import Cell
from fedskew.evidence.playing import module_of

Kind = tuple[str, ...]


def work_of(cell: Cell) -> float:
    """Expected work up to a factor: ``work(cell)`` beside the study's measurement, or the steps of
    a run.
    """
    if cell.grid.measure:
        own = getattr(module_of(cell.folder, cell.grid.measure), "work", None)
        return float(own(cell)) if own is not None else 1.0
    local, run = cell.recipe["local"], cell.recipe["run"]
    clients = min(float(run["clients_per_round"]), float(cell.recipe["data"]["clients"]))
    passes = float(local["epochs"]) * float(run["rounds"]) * clients
    return passes / min(float(local["batch"]), 256.0)


def kind_of(cell: Cell) -> Kind:
    """Cells that run at the same speed."""
    return cell.grid.name, str(cell.recipe["data"]["use"]), str(cell.recipe["model"]["use"])


@dataclass
class Forecast:
    """Work and kind of every cell, and the seconds of those that are finished."""

    works: Sequence[float]
    kinds: Sequence[Kind]
    twins: Sequence[str]  # cells with one name take equally long
    seconds: dict[int, float] = field(default_factory=dict)
    shares: dict[int, float] = field(default_factory=dict)  # done of cells that are being played

    @classmethod
    def of(cls, cells: Sequence[Cell]) -> Forecast:
        """Nothing is finished yet."""
        twins = [str(sorted(cell.labels.items())) for cell in cells]
        return cls([work_of(c) for c in cells], [kind_of(c) for c in cells], twins)

    def expected(self, number: int) -> float | None:
        """Seconds of one cell; None before anything is known."""
        return self._expected(number, self._rates())

    def remaining(self, cores: int) -> float | None:
        """Seconds until all cells are finished; None before the first of them is."""
        rates = self._rates()
        left = []
        for number in range(len(self.works)):
            if number in self.seconds:
                continue
            expected = self._expected(number, rates)
            if expected is None:
                return None
            left.append(expected * (1 - self.shares.get(number, 0.0)))
        return max(sum(left) / cores, max(left)) if left else 0.0

    def _groups(self, number: int) -> tuple[Hashable, ...]:
        """Cells it is like: its twins, its kind, all; the nearest first."""
        return self.twins[number], self.kinds[number], None

    def _rates(self) -> Mapping[Hashable, float]:
        """Seconds per work of every group that has a finished cell."""
        seconds: dict[Hashable, float] = defaultdict(float)
        works: dict[Hashable, float] = defaultdict(float)
        for number, took in self.seconds.items():
            for group in self._groups(number):
                seconds[group] += took
                works[group] += self.works[number]
        return {group: seconds[group] / work for group, work in works.items() if work}

    def _expected(self, number: int, rates: Mapping[Hashable, float]) -> float | None:
        known = (rates[group] for group in self._groups(number) if group in rates)
        rate = next(known, None)
        return None if rate is None else rate * self.works[number]


def order_of(cells: Sequence[Cell]) -> list[int]:
    """Which cell to play when: the smallest of every kind first, because the forecast learns most
    from those; then seed by seed, the longest first.
    """
    works, kinds = [work_of(cell) for cell in cells], [kind_of(cell) for cell in cells]
    smallest: Mapping[Kind, int] = {
        kind: min((i for i, other in enumerate(kinds) if other == kind), key=works.__getitem__)
        for kind in dict.fromkeys(kinds)
    }
    first = list(smallest.values())
    rest = [i for i in range(len(cells)) if i not in first]
    return first + sorted(rest, key=lambda i: (cells[i].seed, -works[i]))
