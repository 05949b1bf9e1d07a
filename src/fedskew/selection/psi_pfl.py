"""Train only with the clients whose labels look most like everybody's: a fixed cohort below a
percentile of the PSI.

Jimenez-Gutierrez, Solans, Elbamby, Kourtellis: "PSI-PFL: Population Stability Index for Client
Selection in non-IID Personalized Federated Learning", arXiv 2506.00440, 2025, and the authors'
public code: PSI_i of every client against the label mix of all examples; those at or below the q-th
percentile, q in {10, 25, 50}, form the cohort of the whole run; FedAvg draws half of it per round.
docs/methods.md 4.11 and 2.11.

Differs from the paper:

- The number of clients is ``fraction`` of the cohort, at least 1, halves rounded to even;
  ``number="budget"`` takes ``run.clients_per_round`` instead (at most the cohort).
- Their code copies a cohort of one or two clients four times to satisfy its framework; here one
  client is enough.
- They choose q by test accuracy. Choose it on something else (``data.holdout`` keeps such data
  apart).
- If no one of the cohort is available, the available client with the smallest PSI trains alone.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedskew.errors import RecipeError, RunError
from fedskew.types import Bools, Floats, Ints, Signal, View, needs


@needs("signal")
def psi_pfl(
    view: View,
    rng: np.random.Generator,
    *,
    percentile: float = 25.0,
    number: Literal["fraction", "budget"] = "fraction",
    fraction: float = 0.5,
    eps: float = 1e-6,
) -> Ints:
    """Uniformly random available clients of the cohort, ids ascending."""
    if not (0 <= percentile <= 100 and 0 < fraction <= 1 and eps > 0):
        raise RecipeError(
            "selection psi_pfl",
            "an option is out of range",
            "percentile in [0, 100], fraction in (0, 1], eps > 0",
        )
    if view.signal is None:
        raise RunError("selection psi_pfl", "there is no signal", "Add [signal] to the recipe")
    if not view.available.any():
        return np.empty(0, np.int64)
    psi = psi_of(view.signal, eps=eps)
    member = cohort(psi, percentile)
    wanted = view.budget if number == "budget" else max(1, round(fraction * int(member.sum())))
    candidates = np.flatnonzero(member & view.available)
    if len(candidates) == 0:
        return np.array([np.where(view.available, psi, np.inf).argmin()], np.int64)
    return np.sort(rng.choice(candidates, min(wanted, len(candidates)), replace=False))


def psi_of(signal: Signal, *, eps: float = 1e-6) -> Floats:
    """(K,) PSI_i = sum over classes of (p - g) ln((p + eps) / (g + eps)).

    It is infinite for clients without known labels.

    >>> rows = np.array([[.7, .2, .1, 0], [.1, .2, .3, .4]])
    >>> signal = Signal(rows, np.array([10, 30]), "disclosed")
    >>> psi_of(signal).round(6)
    array([4.384233, 0.175327])
    """
    size = np.where(signal.known, signal.num_examples, 0.0)
    mix = size @ signal.rows / max(size.sum(), 1e-300)
    terms = (signal.rows - mix) * np.log((signal.rows + eps) / (mix + eps))
    return np.where(signal.known, np.maximum(terms, 0).sum(axis=1), np.inf)


def cohort(psi: Floats, percentile: float) -> Bools:
    """(K,) who lies at or below the percentile of the finite values (linear interpolation).

    >>> cohort(np.array([3.0, 1.0, np.inf, 2.0]), 50)
    array([False,  True, False,  True])
    """
    known = np.isfinite(psi)
    if not known.any():
        return np.zeros(len(psi), np.bool_)
    bar = np.percentile(psi[known], percentile)
    # interpolation may round a client's own value down by one ulp
    return psi <= bar + 1e-12 * (1 + bar)
