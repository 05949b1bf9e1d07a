"""Train in parallel while clients are alike, one after another when they are not: AFLS.

Lee, Lee: "Non-IID Degree Aware Adaptive Federated Learning Procedure Selection Scheme for
Edge-Enabled IoT Network" (AFLS, paper 003), Algorithm 1; docs/methods.md 6.4. omega of all clients
at or above theta: sequential, from device to device; else parallel.

Not in the paper, and off unless asked for:

- ``refresh``: look again every so many rounds; if the label proportions have changed, decide again.
  ``hysteresis``: to leave what it is doing, omega must pass theta by this share, so that it does
  not swing to and fro.
- ``dial``: instead of one chain or as many as clients, the largest number of chains whose omega,
  with groups of clients for clients, stays below theta (docs/methods.md 6.7). It looks at the
  clients of the round; where those change, set ``refresh`` = 1.
- ``pilot_rounds``: decide by trying. So many rounds in parallel, then sequential if the loss they
  are heading for is above ``required_loss``. omega is not used.

Differs from the paper:

- The paper names neither theta nor epsilon. 8.5 with 1e-6 is what its reported behaviour allows for
  10 classes (docs/methods.md 6.4); ``theta_classes`` = 2 says the same for any number of classes.
- A pilot could compare accuracies. A procedure never sees the test set, so it compares losses:
  the mean over the clients of a round, by examples, of the loss of the model they received on their
  own training data (``local.report_loss`` = "start"). That is the model everybody shares before
  they pull it apart; the loss during local training is no guide, under label skew it is low
  wherever a client has forgotten all labels but its own.
- Where they head for is a of a + b * rho^t, fitted by least squares (rho in 0.05..0.98, a at least
  0).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from fedskew.errors import RecipeError
from fedskew.labels.omega import omega, reaches, threshold
from fedskew.procedure.groups import (
    Broken,
    Builder,
    Kind,
    Relay,
    choose_count,
    cut,
    labels_of,
    link,
    predicted_omega,
)
from fedskew.types import Floats, Ints, Memory, Plan, ProcedureRule, View

PARALLEL, SEQUENTIAL = 0, 1  # numbers of chains in memory; 0 = one per client
FEWEST_PILOT_ROUNDS = 3  # points that a + b * rho^t needs
RATES = np.linspace(0.05, 0.98, 94)


@dataclass(frozen=True)
class Adaptive(ProcedureRule):
    """Parallel or sequential by how skewed the labels are (AFLS, paper 003).

    theta is ``theta``, or omega of clients with ``theta_classes`` classes each if that is not 0.
    ``groups`` and ``builder`` are for the ``dial``, as in ``chains``.
    """

    theta: float = 8.5
    theta_classes: int = 0
    epsilon: float = 1e-6
    refresh: int = 0
    hysteresis: float = 0.05
    dial: bool = False
    groups: Kind = "balanced"
    builder: Builder = "swap"
    pilot_rounds: int = 0
    required_loss: float = 0.0
    relay: Relay = "d2d"
    broken: Broken = "skip"

    hands_on = True

    def needs(self) -> Collection[str]:
        """What the decision rests on; options that contradict each other are refused."""
        if not self.pilot_rounds:
            by_clusters = self.dial and self.groups == "clusters"
            return {"signal", "clustering"} if by_clusters else {"signal"}
        if self.dial:
            what = "a pilot chooses between parallel and sequential only"
            raise RecipeError("procedure.dial", what, "Set pilot_rounds = 0")
        if self.pilot_rounds < FEWEST_PILOT_ROUNDS:
            what = f"{self.pilot_rounds} rounds show no trend"
            remedy = f"Give {FEWEST_PILOT_ROUNDS} or more, or 0 for no pilot"
            raise RecipeError("procedure.pilot_rounds", what, remedy)
        if not self.required_loss > 0:
            what = f"{self.required_loss} can never be reached"
            remedy = "Say which loss the pilot's rounds must head for"
            raise RecipeError("procedure.required_loss", what, remedy)
        return {"loss"}

    def plan(
        self, memory: Memory, ids: Ints, view: View, rng: np.random.Generator
    ) -> tuple[Plan, Memory]:
        """One chain of everybody, one each, or by the dial something in between."""
        order = rng.permutation(np.asarray(ids, np.int64))
        if not len(order):
            return Plan(()), memory
        kept = self._decide(memory, order, view, rng)
        count = min(kept.get("chains", PARALLEL) or len(order), len(order))
        groups = cut(order, view, count, rng, groups=self.groups, builder=self.builder)
        return link(ids, order, groups, relay=self.relay, broken=self.broken), kept

    def _decide(self, memory: Memory, order: Ints, view: View, rng: np.random.Generator) -> Memory:
        if self.pilot_rounds:
            return _try(memory, view, self.pilot_rounds, self.required_loss)
        due = self.refresh and view.round - memory.get("looked", 0) >= self.refresh
        if "chains" in memory and not due:
            return memory
        return self._look(memory, order, view, rng)

    def _look(self, memory: Memory, order: Ints, view: View, rng: np.random.Generator) -> Memory:
        """Decide, unless the label proportions are those of the last decision."""
        rows = self._rows(order, view)
        mark = hashlib.sha256(rows.tobytes()).hexdigest()[:16]
        if memory.get("mark") == mark:
            return {**memory, "looked": view.round}
        theta = threshold(
            rows.shape[1], theta=self.theta, theta_classes=self.theta_classes, eps=self.epsilon
        )
        now = memory.get("chains")

        def level(count: int) -> float:
            if now is None:
                return theta
            return stiffened(theta, self.hysteresis, count, now or len(order))

        def predict(count: int) -> float:
            groups = cut(order, view, count, rng, groups=self.groups, builder=self.builder)
            return predicted_omega(order, view, groups, self.epsilon)

        if self.dial:
            count, value = choose_count(len(order), predict, level)
            chains = PARALLEL if count == len(order) else count
        else:
            value = omega(rows, eps=self.epsilon)
            chains = SEQUENTIAL if reaches(value, level(len(order))) else PARALLEL
        return {"chains": chains, "omega": value, "looked": view.round, "mark": mark}

    def _rows(self, order: Ints, view: View) -> Floats:
        """The label proportions a decision rests on.

        Of the round's clients for the dial, else of everybody known.
        """
        if self.dial:
            return labels_of(view, np.sort(order)).rows
        known = view.signal is not None and view.signal.known.any()
        everybody = np.flatnonzero(view.signal.known) if known and view.signal else order
        return labels_of(view, everybody).rows


def stiffened(theta: float, hysteresis: float, count: int, now: int) -> float:
    """The level for ``count`` chains where ``now`` are in use: higher to stay or go back to fewer,
    lower to spread further.

    >>> stiffened(8.0, 0.05, count=4, now=4), stiffened(8.0, 0.05, count=5, now=4)
    (8.4, 7.6)
    """
    return theta * (1 + hysteresis) if count <= now else theta * (1 - hysteresis)


# ---------------------------------------------------------------- by trying


def _try(memory: Memory, view: View, pilot_rounds: int, required_loss: float) -> Memory:
    """Note the loss of the round before; after the pilot, decide once and for all.

    Nothing reported: stay parallel.
    """
    if "chains" in memory:
        return memory
    losses = memory.get("losses", np.empty(0))
    if view.round > 1:
        losses = np.append(losses, reported_loss(view))
    if view.round <= pilot_rounds:
        return {"losses": losses}
    heading = plateau(losses)
    return {
        "chains": SEQUENTIAL if heading > required_loss else PARALLEL,
        "heading": heading,
        "losses": losses,
    }


def reported_loss(view: View) -> float:
    """Mean, by examples, of what the clients of the round before reported; nan if none did."""
    reported = (view.last_selected == view.round - 1) & np.isfinite(view.loss)
    sizes = view.population.num_examples[reported]
    return (
        float(np.average(view.loss[reported], weights=np.maximum(sizes, 1)))
        if reported.any()
        else float("nan")
    )


def plateau(losses: Floats) -> float:
    """Where geometrically falling losses end: a of the best a + b * rho^t, else the last loss.

    nan with fewer than three of them.

    >>> round(plateau(0.7 + 1.6 * 0.8 ** np.arange(12)), 3), plateau(np.array([1.0, 2.0, 3.0]))
    (0.7, 3.0)
    """
    time, values = np.arange(len(losses))[np.isfinite(losses)], losses[np.isfinite(losses)]
    if len(values) < FEWEST_PILOT_ROUNDS:
        return float("nan")
    fits = [
        np.linalg.lstsq(np.column_stack([np.ones(len(time)), rate**time]), values)[0]
        for rate in RATES
    ]
    errors = [
        np.square(a + b * rate**time - values).sum()
        for (a, b), rate in zip(fits, RATES, strict=True)
    ]
    end, fall = fits[int(np.argmin(errors))]
    return float(max(end, 0.0) if fall > 0 else values[-1])
