"""Train clients whose losses promise most in their time, and keep trying some never asked.

Lai, Zhu, Madhyastha, Chowdhury: "Oort: Efficient Federated Learning via Guided Participant
Selection", OSDI 2021, Algorithm 1, with the constants of the authors' code in FedScale.

A client's utility is its number of examples times its loss when it last trained. Its score is that
utility, clipped at the 90th percentile and scaled to 0..1, plus sqrt(0.1 ln t / t_last) for a
figure that has grown old; a client slower than the preferred duration is cut by (preferred /
duration)². A falling share of the budget goes to clients never asked, drawn by size and speed.

Differs from the paper:

- The utility uses the mean loss a client reports. The paper's root mean square of the losses of
  single examples would have to be computed by the client; it is never below the mean.
- Clients are admitted to the draw from 5 % of the cut-off score on (``cut_off``), as FedScale is
  set up; the paper says 95 %.
- A client that was asked and never gave a usable loss counts as one of lowest utility. In FedScale
  it stays "never tried", and once everybody else is tried it is asked in every round.
- The pacer looks at every ``pacer_rounds``-th round and also steps back when utility changes
  sharply, as in FedScale.
- No over-commitment: as many clients train as the round allows. No blacklist.

Durations are ``population.latency_seconds`` where the recipe has devices. Otherwise they are the
seconds that clients were measured to take, and then a run repeats exactly only as far as the clock
does; ``duration = "ignored"`` leaves them out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fedskew.errors import RecipeError
from fedskew.types import Bools, Feedback, Floats, Ints, Memory, SelectionRule, View

# relative changes of exploited utility at which the pacer moves on, and back
FLAT, SHARP = 0.1, 5.0


@dataclass(frozen=True)
class Oort(SelectionRule):
    """Clients of high loss and little delay, and some never asked before (Oort, OSDI 2021)."""

    epsilon: float = 0.9
    epsilon_decay: float = 0.98
    epsilon_floor: float = 0.3
    clip_percentile: float = 90.0
    staleness: float = 0.1
    cut_off: float = 0.05
    penalty: float = 2.0
    preferred_percentile: float = 30.0
    pacer_percent: float = 5.0
    pacer_rounds: int = 20
    duration: Literal["auto", "measured", "ignored"] = "auto"

    learns_from = "none"  # losses and seconds; updates are not looked at

    def needs(self) -> Collection[str]:
        """The losses clients report with their models."""
        return ("loss",)

    def choose(self, memory: Memory, view: View, rng: np.random.Generator) -> tuple[Ints, Memory]:
        """Exploit scores for most places, explore with the rest."""
        self._check()
        kept = _begun(memory, view.size, self.preferred_percentile)
        m = min(view.budget, int(view.available.sum()))
        tried = np.flatnonzero(view.available & (view.times_selected > 0))
        fresh = np.flatnonzero(view.available & (view.times_selected == 0))
        share = max(self.epsilon_floor, self.epsilon * self.epsilon_decay**view.round)
        num_explored = min(len(fresh), m - min(m - int(m * share), len(tried)))
        seconds = _durations(kept, view, self.duration)
        slow = _slowness(seconds, kept["percentile"], self.penalty)
        score = _scores(kept["utility"], view, tried, self.clip_percentile, self.staleness)
        score = score * slow[tried]
        exploited = tried[_exploit(score, m - num_explored, self.cut_off, rng)]
        weights = view.population.num_examples[fresh] * slow[fresh]
        explored = fresh[draw(weights, num_explored, rng)]
        return np.concatenate([exploited, explored]), kept | {"exploited": exploited}

    def learn(self, memory: Memory, feedback: Feedback) -> Memory:
        """Note utilities and durations of the clients that trained; the pacer looks at the gain.

        That is what exploitation gained.
        """
        utility, seconds = np.array(memory["utility"]), np.array(memory["seconds"])
        reported = np.isfinite(feedback.loss)
        clients = feedback.clients[reported]
        utility[clients] = (feedback.examples * feedback.loss)[reported]
        seconds[feedback.clients] = feedback.seconds
        gain = utility[np.intersect1d(memory["exploited"], clients)]
        window = self.pacer_rounds
        gained = np.append(memory["gained"], gain.mean() if len(gain) else 0.0)[-2 * window :]
        percentile = memory["percentile"]
        if feedback.round % window == 0 and len(gained) == 2 * window:
            before, now = gained[:window].sum(), gained[window:].sum()
            percentile = paced(percentile, before, now, self.pacer_percent)
        return {
            **memory,
            "utility": utility,
            "seconds": seconds,
            "gained": gained,
            "percentile": percentile,
        }

    def _check(self) -> None:
        for name in ("epsilon", "epsilon_floor", "cut_off"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                what = f"{value} is not between 0 and 1"
                raise RecipeError(f"selection.{name}", what, "Give a share")
        if self.pacer_rounds < 1:
            what = f"{self.pacer_rounds} is not positive"
            raise RecipeError("selection.pacer_rounds", what, "Give at least 1")


def paced(percentile: float, before: float, now: float, by: float) -> float:
    """Allow slower clients once exploited utility stands still; fewer of them when it jumps.

    >>> paced(30.0, 10.0, 10.5, 5.0), paced(30.0, 10.0, 20.0, 5.0), paced(30.0, 1.0, 20.0, 5.0)
    (35.0, 30.0, 25.0)
    """
    if abs(now - before) <= FLAT * before:
        return min(100.0, percentile + by)
    return max(by, percentile - by) if abs(now - before) >= SHARP * before else percentile


def draw(weights: Floats, n: int, rng: np.random.Generator) -> Ints:
    """Positions of ``n`` draws without replacement, each with probability proportional to its
    weight among those left.

    The ``n`` smallest of exponential waiting times with these rates: the same law as drawing one by
    one, in one pass.

    >>> draw(np.array([0.0, 5.0, 0.0]), 1, np.random.default_rng(0)).tolist()
    [1]
    """
    waits = rng.exponential(size=len(weights)) / np.maximum(weights, 1e-300)
    return np.argsort(waits, kind="stable")[:n]


def _begun(memory: Memory, size: int, percentile: float) -> dict[str, Any]:
    unknown = np.full(size, np.nan)
    empty = {
        "utility": unknown,
        "seconds": unknown,
        "gained": np.empty(0),
        "percentile": float(percentile),
    }
    return {**empty, **memory}


def _durations(kept: Memory, view: View, duration: str) -> Floats:
    """(K,) seconds; nan = not known."""
    if duration == "ignored":
        return np.full(view.size, np.nan)
    latency = view.population.latency_seconds
    measured: Floats = kept["seconds"]
    return measured if duration == "measured" or latency is None else latency


def _slowness(seconds: Floats, percentile: float, penalty: float) -> Floats:
    """(K,) the factor for clients slower than the preferred duration; 1 for all others.

    Also for those never measured.
    """
    known: Bools = np.isfinite(seconds)
    if not known.any() or percentile >= 100:
        return np.ones(len(seconds))
    preferred = np.percentile(seconds[known], percentile)
    return np.where(
        known & (seconds > preferred),
        (preferred / np.where(known, np.maximum(seconds, 1e-9), 1)) ** penalty,
        1.0,
    )


def _scores(
    utility: Floats, view: View, tried: Ints, clip_percentile: float, staleness: float
) -> Floats:
    """Scaled utility plus the bonus for old figures, of the clients tried."""
    known = utility[tried][np.isfinite(utility[tried])]
    low, high = (known.min(), known.max()) if len(known) else (0.0, 0.0)
    clip = np.percentile(known, clip_percentile) if len(known) else 0.0
    filled = np.where(np.isfinite(utility[tried]), utility[tried], low)
    age = np.sqrt(staleness * np.log(max(view.round, 1)) / np.maximum(view.last_selected[tried], 1))
    return np.asarray((np.minimum(filled, clip) - low) / max(high - low, 1e-4) + age, np.float64)


def _exploit(score: Floats, n: int, cut_off: float, rng: np.random.Generator) -> Ints:
    """Positions of ``n`` clients, drawn by score among those near the n-th best score.

    Near: at least a share of it.
    """
    if n <= 0:
        return np.empty(0, np.int64)
    threshold = cut_off * np.partition(score, len(score) - n)[len(score) - n]
    admitted = np.flatnonzero(score >= threshold)
    return admitted[draw(score[admitted], n, rng)]
