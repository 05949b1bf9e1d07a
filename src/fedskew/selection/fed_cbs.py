"""Draw clients one after another, favouring those that make the group's labels more balanced.

Zhang, Li, Tang, Sun, Chen, Zhang, Chen, Chen, Li: "Fed-CBS: A Heterogeneity-Aware Client Sampling
Mechanism for Federated Learning via Class-Imbalance Reduction", ICML 2023; docs/methods.md 4.10.
How unbalanced a group is:

    QCID(S) = sum_c (n_c(S) / n(S) - 1/C)^2 = (sum over i, j in S of G_ij) / n(S)^2 - 1/C
    G = N N^T for the counts N (K, C)

The first client is drawn with probability ~ 1 / QCID({k})^beta_1 + lambda sqrt(3 ln t / (2 T_k)),
the j-th with ~ QCID(S)^beta_(j-1) / QCID(S with k)^beta_j; the exponents rise from 1 to 10. T_k
starts at 1.

Differs from the paper:
- Known to us from a third-party implementation; that one takes the argmax for
  the first client and floors QCID at 1e-3. lambda = 1 is to be tuned.
- Probabilities are formed in log space with QCID floored at 1e-12; the factor QCID(S)^beta_(j-1) is
  the same for every k and drops out. The best of ``draws`` groups is kept.
- The original obtains G under homomorphic encryption, because its clients do not disclose N. Here N
  is the signal, so G need not exist: its sums over S and k are products of two rows of counts.
"""

from __future__ import annotations

import numpy as np

from fedskew.errors import RecipeError, RunError
from fedskew.types import Floats, Ints, View, needs

QCID_FLOOR = 1e-12
BETAS = (1.0, 10.0)  # exponents of the first and the last client


@needs("signal")
def fed_cbs(
    view: View, rng: np.random.Generator, *, exploration: float = 1.0, draws: int = 5
) -> Ints:
    """Clients drawn one after another to balance the group, in order (Fed-CBS, ICML 2023).

    The most balanced of ``draws`` groups is kept. ``exploration`` is lambda.
    """
    if view.signal is None:
        raise RunError("selection fed_cbs", "needs label proportions", "Add [signal] to the recipe")
    if draws < 1:
        raise RecipeError(
            "selection.draws", f"{draws} is not positive", "Give 1 or more, for example 5"
        )
    if exploration < 0:
        raise RecipeError(
            "selection.exploration", f"{exploration} is negative", "Give 0 or more, for example 1"
        )
    candidates = np.flatnonzero(view.available)
    m = min(view.budget, len(candidates))
    if m == 0:
        return candidates
    sizes = np.maximum(view.signal.num_examples[candidates], QCID_FLOOR)
    counts = view.signal.rows[candidates] * sizes[:, None]
    bonus = np.sqrt(3 * np.log(view.round) / (2 * (1.0 + view.times_selected[candidates])))
    groups, worth = draw_groups(counts, sizes, exploration * bonus, m, draws, rng)
    best: Ints = groups[int(np.argmin(worth))]
    return candidates[best]


def draw_groups(
    counts: Floats, sizes: Floats, bonus: Floats, m: int, draws: int, rng: np.random.Generator
) -> tuple[Ints, Floats]:
    """(draws, m) groups, all drawn side by side, and their QCID."""
    squares, rows = np.square(counts).sum(axis=1), np.arange(draws)
    groups, free = np.empty((draws, m), np.int64), np.zeros((draws, len(counts)))
    total, mass = np.zeros((draws, counts.shape[1])), np.zeros((draws, 1))
    for place, beta in enumerate(np.linspace(*BETAS, m)):
        # the sums of G over S and k
        joint = squares + 2 * total @ counts.T + np.square(total).sum(axis=1)[:, None]
        after = np.maximum(joint / np.square(mass + sizes) - 1 / counts.shape[1], QCID_FLOOR)
        chances = 1 / after**beta + bonus if place == 0 else _relative(-beta * np.log(after) + free)
        groups[:, place] = chosen = _draw(chances, rng)
        free[rows, chosen] = -np.inf
        total, mass = total + counts[chosen], mass + sizes[chosen][:, None]
    return groups, after[rows, chosen]


def _relative(log_chances: Floats) -> Floats:
    """Chances relative to the likeliest of each row."""
    return np.asarray(np.exp(log_chances - log_chances.max(axis=1, keepdims=True)), np.float64)


def _draw(chances: Floats, rng: np.random.Generator) -> Ints:
    """One index from each row, with probability proportional to the chances (0: never)."""
    edges = np.cumsum(chances, axis=1)
    # in (0, total]: the first edge at or above is never that of a zero chance
    marks = (1 - rng.random((len(edges), 1))) * edges[:, -1:]
    return np.asarray((edges < marks).sum(axis=1), np.int64)


def qcid(counts: Floats, group: Ints) -> float:
    """How unbalanced a group is: 0 when all classes have the same number of examples.

    >>> qcid(np.array([[2.0, 0.0], [0.0, 2.0], [1.0, 0.0]]), np.array([0, 1]))
    0.0
    >>> qcid(np.eye(2), np.array([0]))
    0.5
    """
    total = counts[group].sum(axis=0)
    return float(np.square(total / total.sum() - 1 / counts.shape[1]).sum())
