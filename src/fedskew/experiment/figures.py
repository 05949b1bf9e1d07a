"""Every figure of one run. ``fedskew run``, ``compare``, the report and a fleet all read them here,
so that one name means one number everywhere.

- **final accuracy**: mean of the last five evaluations. The untrained model (round 0) never counts,
  unless nothing else was evaluated. Where the recipe has a [finish], what it left counts alone.
- **last accuracy**: the last evaluation alone.
- Both are of the one global model on the central test set. A method that ends with several models
  has none; its curve is the accuracy of the clients' own models on their own test sets.
- **to target** (docs/methods.md 9.6): the first of three consecutive evaluations of that curve at
  or above the target. Costs run up to and including that round, round 0 (measuring the clients)
  included.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from fedskew.accounting.energy import watt_hours
from fedskew.accounting.fairness import Fairness, fairness
from fedskew.accounting.participation import jain
from fedskew.accounting.targets import CONSECUTIVE, first_held, first_plateau
from fedskew.accounting.traffic import total_bytes
from fedskew.errors import RunError, did_you_mean
from fedskew.types import Floats, Ints, RoundRecord

if TYPE_CHECKING:
    from fedskew.experiment.run import Run

Resource: TypeAlias = Literal["rounds", "bytes", "time", "energy"]
RESOURCES: tuple[Resource, ...] = get_args(Resource)
LAST = 5  # "final" is the mean of this many last evaluations
NAN = float("nan")


# ---------------------------------------------------------------- accuracy


@dataclass(frozen=True, eq=False)
class Curve:
    """A run's evaluations, one after the other."""

    positions: Ints  # (n,) which of the run's records they stand in
    rounds: Ints  # (n,)
    accuracy: Floats  # (n,)
    loss: Floats  # (n,)
    # of one global model on the central test set; if not, of the clients' own models on their own
    is_global: bool

    @property
    def points(self) -> list[tuple[int, float]]:
        """(round, accuracy) of each."""
        return list(zip(self.rounds.tolist(), self.accuracy.tolist(), strict=True))


def curve_of(run: Run) -> Curve:
    """The evaluations that a run is judged by."""
    is_global = ends_with_one_model(run)
    name, of_loss = ("accuracy", "test_loss") if is_global else ("client_accuracy", "client_loss")
    accuracy = np.array([getattr(record, name) for record in run.rounds], np.float64)
    loss = np.array([getattr(record, of_loss) for record in run.rounds], np.float64)
    rounds = np.array([record.round for record in run.rounds], np.int64)
    known = np.flatnonzero(~np.isnan(accuracy))
    return Curve(known, rounds[known], accuracy[known], loss[known], is_global)


def ends_with_one_model(run: Run) -> bool:
    """Whether there was one global model when it was last due to be tested. If there is none, only
    the clients' own models have an accuracy then.
    """
    every = run.recipe.get("run", {}).get("evaluate_every", 1)
    due = [record for record in run.rounds if every and record.round % every == 0]
    last = [*run.rounds[:1], *due, *(run.rounds[-1:] if run.finished else ())][-1:]
    return not any(math.isnan(r.accuracy) and not math.isnan(r.client_accuracy) for r in last)


def last_mean(rounds: Ints, values: Floats, before_finish: int | None = None) -> float:
    """Mean of the last five values; round 0 only counts if there is nothing else, and what was
    before the recipe's ``[finish]`` (its last round) if that was not evaluated.

    >>> last_mean(np.arange(7), np.array([0.1, 0.5, 0.25, 0.5, 0.75, 1.0, 1.0]))
    0.7
    >>> last_mean(np.arange(2), np.array([0.1, 0.5])), last_mean(np.arange(1), np.array([0.1]))
    (0.5, 0.1)
    """
    trained = values[rounds > 0]
    counted = trained if len(trained) else values
    if before_finish is not None and (rounds > before_finish).any():
        counted = values[rounds > before_finish]
    return float(np.mean(counted[-LAST:])) if len(counted) else NAN


def final_accuracy(run: Run) -> float:
    """Mean of the last five evaluations."""
    return last_mean(run.curve.rounds, run.curve.accuracy, before_finish(run))


def before_finish(run: Run) -> int | None:
    """The last round before the recipe's ``[finish]``; None: it has none. A budget may end the
    rounds earlier: then the round that gathered features says so.
    """
    if "finish" not in run.recipe:
        return None
    gathered = [r.round for r in run.rounds if any(t.kind == "features" for t in r.transfers)]
    return min([int(run.recipe["run"]["rounds"]), *(number - 1 for number in gathered)])


def last_accuracy(run: Run) -> float:
    """The last evaluation alone."""
    return float(run.curve.accuracy[-1]) if len(run.curve.accuracy) else NAN


def best_accuracy(run: Run) -> float:
    """The highest evaluation."""
    return float(run.curve.accuracy.max(initial=-math.inf)) if len(run.curve.accuracy) else NAN


def accuracy_at(run: Run, resource: Resource, budget: float) -> float:
    """Mean of the last five evaluations within a budget."""
    curve = run.curve
    within = run.spent(resource)[curve.positions] <= budget * (1 + 1e-12)
    return last_mean(curve.rounds[within], curve.accuracy[within], before_finish(run))


# ---------------------------------------------------------------- cost


def spent(run: Run, resource: Resource) -> Floats:
    """(R,) of a resource after each record: rounds, bytes of all directions, simulated seconds,
    joules; nan = not known.
    """
    if resource not in RESOURCES:
        raise RunError(
            "resource", f"there is no '{resource}'", did_you_mean(str(resource), RESOURCES)
        )
    if resource == "rounds":
        return np.array([record.round for record in run.rounds], np.float64)
    each = np.array([_spent_in(record, resource) for record in run.rounds], np.float64)
    if len(each) and math.isnan(each[0]):  # nothing is said of the time before training
        each[0] = NAN if len(each) > 1 and math.isnan(each[1]) else 0.0
    return np.cumsum(each)


def _spent_in(record: RoundRecord, resource: Resource) -> float:
    if resource == "bytes":
        return sum(total_bytes(record.transfers, way) for way in ("down", "up", "d2d"))
    return record.simulated_seconds if resource == "time" else record.joules


def total(run: Run, resource: Resource) -> float:
    """What the whole run spent; nan = not known."""
    amounts = run.spent(resource)
    return float(amounts[-1]) if len(amounts) else NAN


@dataclass(frozen=True)
class ToTarget:
    """What one run needed for one accuracy. None: not reached within ``last_round``, or (seconds,
    joules) not accounted for.
    """

    target: float
    last_round: int
    rounds: int | None  # first of three consecutive evaluations at or above the target
    bytes: int | None  # up, down and between devices, until then
    seconds: float | None  # simulated, until then
    joules: float | None
    accuracy: float | None  # mean of the three
    accuracy_std: float | None  # of the three, ddof 0: "Acc (std)"
    first_hit: int | None  # first single evaluation at or above the target
    first_hit_seconds: float | None  # docs/methods.md 6.6: time_to_target

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


def to_target(run: Run, target: float, *, consecutive: int = CONSECUTIVE) -> ToTarget:
    """Rounds, bytes, simulated seconds and joules until an accuracy was held."""
    if not isinstance(target, int | float | np.number) or not 0 <= target <= 1:
        raise RunError(
            "target", f"{target} is no accuracy", "Give a number from 0 to 1, for example 0.9"
        )
    if consecutive < 1:
        raise RunError("target", f"{consecutive} consecutive evaluations", "Give at least 1")
    curve = run.curve
    held = first_held(curve.accuracy, target, consecutive)
    hit = first_held(curve.accuracy, target, 1)
    window = None if held is None else curve.accuracy[held : held + consecutive]
    size = _until(run, held, "bytes")
    return ToTarget(
        target=float(target),
        last_round=run.rounds[-1].round if run.rounds else 0,
        rounds=None if held is None else int(curve.rounds[held]),
        bytes=None if size is None else int(size),
        seconds=_until(run, held, "time"),
        joules=_until(run, held, "energy"),
        accuracy=None if window is None else float(window.mean()),
        accuracy_std=None if window is None else float(window.std()),
        first_hit=None if hit is None else int(curve.rounds[hit]),
        first_hit_seconds=_until(run, hit, "time"),
    )


def _until(run: Run, evaluation: int | None, resource: Resource) -> float | None:
    """What was spent up to and including an evaluation; None if there is none, or no account."""
    if evaluation is None:
        return None
    amount = float(run.spent(resource)[run.curve.positions[evaluation]])
    return None if math.isnan(amount) else amount


@dataclass(frozen=True)
class Plateau:
    """Where a run stopped getting better; None: it had not, or ended before that could be seen."""

    round: int | None
    seconds: float | None
    accuracy: float | None


def to_plateau(run: Run) -> Plateau:
    """The first evaluation that the best of the next ten exceeds by less than half a point."""
    place = first_plateau(run.curve.accuracy)
    if place is None:
        return Plateau(None, None, None)
    accuracy = float(run.curve.accuracy[place])
    return Plateau(int(run.curve.rounds[place]), _until(run, place, "time"), accuracy)


# ---------------------------------------------------------------- clients


def fairness_of(clients: Mapping[str, Any]) -> Fairness | None:
    """How the final models serve the clients' own test sets (docs/methods.md 9.5), from the columns
    of a run; None if clients have none.

    >>> served = fairness_of({"accuracy": [1.0, 0.5, None], "test_examples": [1, 3, 0]})
    >>> served.weighted, served.ad, served.sdad
    (0.625, 0.25, 0.25)
    """
    if "accuracy" not in clients:
        return None
    accuracy = np.array(clients["accuracy"], np.float64)
    return fairness(accuracy, clients.get("test_examples", np.ones(len(accuracy), np.int64)))


def times_selected(run: Run) -> Ints:
    """(K,) how often each client was in a plan."""
    chosen = [client for r in run.rounds for chain in r.chains for client in chain.clients]
    return np.bincount(np.array(chosen, np.int64), minlength=run.num_clients)


def evenness(run: Run) -> float:
    """Jain's index of how often clients were chosen: 1 = all alike."""
    return jain(run.times_selected)


def share_never_chosen(run: Run) -> float:
    """Of all clients."""
    return float((run.times_selected == 0).mean())


# ---------------------------------------------------------------- all of it


def summary(run: Run) -> dict[str, Any]:
    """The numbers that ``fedskew run --json`` prints and ``result.json`` keeps. A method with
    several models has no global accuracy: nan.
    """
    joules = total(run, "energy")
    return {
        "name": run.name,
        "seed": run.seed,
        **_of_global_model(run),
        "models": run.num_models,
        "client_accuracy": None if run.fairness is None else run.fairness.as_dict(),
        "rounds": run.rounds[-1].round,
        **{f"bytes_{way}": _bytes_sent(run, way) for way in ("down", "up", "d2d")},
        "seconds": sum(record.seconds for record in run.rounds),
        "simulated_seconds": total(run, "time"),
        "joules": joules,
        "wh": watt_hours(joules),
        "energy": run.recipe["run"].get("energy", "modelled"),
        "sample_passes": sum(record.cost.sample_passes for record in run.rounds),
        "failures": sum(len(record.failures) for record in run.rounds),
        "notes": sum(len(record.notes) for record in run.rounds),
        "out": None if run.folder is None else str(run.folder),
    }


def _of_global_model(run: Run) -> dict[str, float]:
    curve = run.curve
    if not curve.is_global:
        names = ("final_accuracy", "last_accuracy", "best_accuracy", "final_loss", "last_loss")
        return dict.fromkeys(names, NAN)
    return {
        "final_accuracy": final_accuracy(run),
        "last_accuracy": last_accuracy(run),
        "best_accuracy": best_accuracy(run),
        "final_loss": last_mean(curve.rounds, curve.loss, before_finish(run)),
        "last_loss": float(curve.loss[-1]) if len(curve.loss) else NAN,
    }


def _bytes_sent(run: Run, way: Literal["down", "up", "d2d"]) -> int:
    return sum(total_bytes(record.transfers, way) for record in run.rounds)
