"""What it took to reach an accuracy: rounds, bytes, simulated time and energy, and when a run
stopped getting better.

METHODS 9.6, after paper 002: R is the first of three CONSECUTIVE evaluations at or above the
target; ``first_hit`` the first single one. METHODS 6.6: the plateau is the first evaluation that
the best of the next ten exceeds by less than half a point. A target that was not reached has no
number: it is censored, None, printed ``>T``. Costs run up to and including the round that is named,
round 0 (measuring the clients) included.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fedskew.errors import RunError
from fedskew.types import RoundRecord

CONSECUTIVE = 3
PLATEAU_WINDOW, PLATEAU_MARGIN = 10, 0.005


@dataclass(frozen=True)
class ToTarget:
    """What one run needed for one accuracy. None: not reached within ``last_round``."""

    target: float
    last_round: int
    rounds: int | None  # first of three consecutive evaluations at or above the target
    bytes: int | None  # up, down and between devices, until then
    seconds: float | None  # simulated, until then; None also if the records have no clock
    joules: float | None
    accuracy: float | None  # mean of the three
    accuracy_std: float | None  # of the three, ddof 0: "Acc (std)"
    first_hit: int | None  # first single evaluation at or above the target
    first_hit_seconds: float | None  # METHODS 6.6: time_to_target

    @property
    def censored(self) -> bool:
        """Whether the target was never held."""
        return self.rounds is None

    @property
    def text(self) -> str:
        """Rounds as a table prints them."""
        return f">{self.last_round}" if self.rounds is None else str(self.rounds)

    def as_dict(self) -> dict[str, Any]:
        """Every figure by name, and the marker."""
        return {**asdict(self), "censored": self.censored, "text": self.text}


def to_target(
    records: Sequence[RoundRecord], target: float, *, consecutive: int = CONSECUTIVE
) -> ToTarget:
    """Rounds, bytes, simulated seconds and joules until an accuracy was held.

    >>> def played(t, accuracy): return RoundRecord(t, (), {}, {}, (), accuracy, 0.0, 0.0, {})
    >>> curve = [played(t, a) for t, a in enumerate([0.1, 0.6, 0.5, 0.6, 0.7, 0.7])]
    >>> found = to_target(curve, 0.6)
    >>> found.rounds, found.first_hit, round(found.accuracy, 3)
    (3, 1, 0.667)
    >>> to_target(curve, 0.9).text
    '>5'
    """
    if not 0 <= target <= 1:
        raise RunError(
            "target", f"{target} is no accuracy", "Give a number from 0 to 1, for example 0.9"
        )
    if consecutive < 1:
        raise RunError("target", f"{consecutive} consecutive evaluations", "Give at least 1")
    rounds, accuracy = evaluations(records)
    good = accuracy >= target
    held, hits = first_held(accuracy, target, consecutive), np.flatnonzero(good)
    window = None if held is None else accuracy[held : held + consecutive]
    reached, first = (
        (None if held is None else rounds[held]),
        (rounds[hits[0]] if len(hits) else None),
    )
    return ToTarget(
        target=float(target),
        last_round=records[-1].round if records else 0,
        rounds=reached,
        bytes=None if reached is None else _bytes_until(records, reached),
        seconds=_until(records, reached, "seconds"),
        joules=_until(records, reached, "joules"),
        accuracy=None if window is None else float(window.mean()),
        accuracy_std=None if window is None else float(window.std()),
        first_hit=first,
        first_hit_seconds=_until(records, first, "seconds"),
    )


def first_held(accuracies: ArrayLike, target: float, consecutive: int = CONSECUTIVE) -> int | None:
    """Position of the first of so many evaluations in a row that all reach the target; None: never.

    >>> first_held([0.5, 0.9, 0.8, 0.9, 0.95, 0.9], 0.9), first_held([0.9, 0.9], 0.9)
    (3, None)
    """
    good = np.asarray(accuracies) >= target
    return next(
        (i for i in range(len(good) - consecutive + 1) if good[i : i + consecutive].all()), None
    )


@dataclass(frozen=True)
class Plateau:
    """Where a run stopped getting better; None: it had not, or ended before that could be seen."""

    round: int | None
    seconds: float | None
    accuracy: float | None


def to_plateau(
    records: Sequence[RoundRecord], *, window: int = PLATEAU_WINDOW, margin: float = PLATEAU_MARGIN
) -> Plateau:
    """The first evaluation that the best of the next ``window`` exceeds by less than ``margin``.

    Differs from a looser reading: the whole window must have been seen, so the last ten evaluations
    are never a plateau.

    >>> def played(t, accuracy): return RoundRecord(t, (), {}, {}, (), accuracy, 0.0, 0.0, {})
    >>> to_plateau([played(t, min(t, 4) / 10) for t in range(20)]).round
    4
    """
    rounds, accuracy = evaluations(records)
    for i in range(len(rounds) - window):
        if accuracy[i + 1 : i + 1 + window].max() - accuracy[i] < margin:
            return Plateau(rounds[i], _until(records, rounds[i], "seconds"), float(accuracy[i]))
    return Plateau(None, None, None)


def evaluations(records: Sequence[RoundRecord]) -> tuple[list[int], Any]:
    """Rounds in which the accuracy was measured, and what it was."""
    measured = [(r.round, r.accuracy) for r in records if not math.isnan(r.accuracy)]
    return [t for t, _ in measured], np.array([a for _, a in measured], np.float64)


def _until(
    records: Sequence[RoundRecord], last: int | None, name: Literal["seconds", "joules"]
) -> float | None:
    """What was spent up to and including a round; None if it was never reached, or not accounted
    for.
    """
    if last is None:
        return None
    total = math.fsum(_spent(r, name) for r in records if r.round <= last)
    return None if math.isnan(total) else total


def _spent(record: RoundRecord, name: Literal["seconds", "joules"]) -> float:
    measured = record.measured_joules
    return (
        measured
        if name == "joules" and not math.isnan(measured)
        else float(getattr(record.cost, name))
    )


def _bytes_until(records: Sequence[RoundRecord], last: int) -> int:
    return sum(t.bytes for r in records if r.round <= last for t in r.transfers)


# --------------------------------------------- several seeds, and against a baseline


@dataclass(frozen=True)
class OverSeeds:
    """Rounds to one target over several seeds; a censored run counts as its last round, so the
    mean is then a lower bound.
    """

    target: float
    num_runs: int
    num_censored: int
    rounds: float  # mean
    bytes: float | None  # means over the runs that reached it; None if none did
    seconds: float | None
    joules: float | None
    accuracy_std: float | None  # the runs' "Acc (std)", averaged

    @property
    def text(self) -> str:
        """The mean as a table prints it.

        >>> OverSeeds(0.9, 5, 2, 45.8, None, None, None, None).text
        '>45.8 (2 of 5 censored)'
        """
        mean = f"{self.rounds:.1f}"
        return (
            f">{mean} ({self.num_censored} of {self.num_runs} censored)"
            if self.num_censored
            else mean
        )


def over_seeds(runs: Sequence[ToTarget]) -> OverSeeds:
    """The figures of several runs of one method, with the number of those that never reached the
    target.
    """
    if not runs or len({run.target for run in runs}) != 1:
        raise RunError(
            "targets",
            "no runs, or runs with different targets",
            "Give the runs of one method and one target",
        )

    def mean(name: str) -> float | None:
        values = [getattr(run, name) for run in runs if getattr(run, name) is not None]
        return float(np.mean(values)) if values else None

    return OverSeeds(
        target=runs[0].target,
        num_runs=len(runs),
        num_censored=sum(run.censored for run in runs),
        rounds=float(
            np.mean([run.last_round if run.rounds is None else run.rounds for run in runs])
        ),
        bytes=mean("bytes"),
        seconds=mean("seconds"),
        joules=mean("joules"),
        accuracy_std=mean("accuracy_std"),
    )


@dataclass(frozen=True)
class Reduction:
    """How much less than a baseline: 1 - R / R_base. With censored runs on one side it is only a
    bound.
    """

    value: float | None  # None: censored on both sides, nothing can be said
    bound: Literal["", "at least", "at most"] = ""

    @property
    def text(self) -> str:
        """As a table prints it.

        >>> Reduction(0.25).text, Reduction(0.5, "at least").text, Reduction(None).text
        ('25.0 %', 'at least 50.0 %', 'not known')
        """
        return (
            "not known" if self.value is None else f"{self.bound} {100 * self.value:.1f} %".strip()
        )


def reduction(ours: OverSeeds, baseline: OverSeeds) -> Reduction:
    """Rounds saved against a baseline on the same target."""
    if ours.target != baseline.target:
        raise RunError(
            "targets", f"{ours.target} against {baseline.target}", "Compare runs on one target"
        )
    return saving((ours.rounds, ours.num_censored), (baseline.rounds, baseline.num_censored))


def saving(ours: tuple[float, int], baseline: tuple[float, int]) -> Reduction:
    """What was saved against a baseline.

    Of each: what was spent, and in how many seeds the target was never reached.

    >>> saving((30.0, 0), (60.0, 0)).text, saving((30.0, 0), (60.0, 1)).text
    ('50.0 %', 'at least 50.0 %')
    >>> saving((60.0, 2), (60.0, 1)).text
    'not known'
    """
    (spent, never), (base, base_never) = ours, baseline
    if (never and base_never) or not base > 0 or math.isnan(spent):
        return Reduction(None)
    return Reduction(1 - spent / base, "at least" if base_never else "at most" if never else "")


def target_row(found: Mapping[str, Any]) -> dict[str, str]:
    """The figures of :meth:`ToTarget.as_dict` in the words of a table; ``-`` where a censored
    run has no number.
    """

    def shown(key: str, scale: float, digits: int) -> str:
        return "-" if found[key] is None else f"{found[key] / scale:.{digits}f}"

    return {
        f"rounds to {found['target']:g}": found["text"],
        "MB to target": shown("bytes", 1e6, 2),
        "simulated s to target": shown("seconds", 1, 1),
        "Wh to target": shown("joules", 3600, 3),
    }
