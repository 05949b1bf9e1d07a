"""Choose clients whose labels together are most balanced, and use nobody much more than others.

Yadav, Bor-Yaliniz: "BACSA: A Bias-Aware Client Selection Algorithm for Privacy-Preserving Federated
Learning in Wireless Healthcare Networks" (paper 001), eqs 10-11; docs/methods.md 4.8. With b the
clients' label proportions, usually ``estimated`` (but any signal will do), u the target and m_k how
often client k was chosen before round r,

    F(S) = C * sum_c (q_c - u_c)^2 + gamma * mean over S of f_k
    q = mean of b over S,    f_k = sqrt(m_k / (r - 1) / s_k)

is as small as it can be made. s_k is 1, or with ``use_snr`` (BACSA-SNR) the client's
signal-to-noise ratio over the median one, within [0.1, 10]: a client with a good channel may be
used more often.

Differs from the paper:
- Eqs 10-11 are garbled: the "variance" printed there is smallest when the chosen clients are
  IDENTICAL, one of its symbols is undefined, and the fairness term (about 37 at r = 100, m_k = 50)
  drowns the other (at most 1). ``objective = "literal"`` is that formula, for the record only: it
  is WORSE THAN RANDOM. Imbalance of the sets chosen from 20 Dirichlet(0.1) clients, 5 at a time:
  group 0.017, random 0.095, literal 0.295 (docs/methods.md 4.8).
- The root in eq 11 is a mangled combinatorial-UCB bonus. ``objective = "ucb"`` is the bonus
  unmangled, after everybody has been chosen once; ``"penalty_raw"`` is the term as printed, beside
  the group balance (wants gamma near 0.001). docs/methods.md 4.8 divides the bonus by the SNR; that
  would reward bad channels, so here ``use_snr`` multiplies it by s_k inside the root.
- theta of eq 11 only rescales gamma; it is 1 / median SNR, so that s_k has no unit.
- ``solver``: the paper does not say how its mixed-integer problem is solved. See
  :mod:`fedskew.labels.balance`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedskew.errors import RecipeError, RunError
from fedskew.labels.balance import Balance, Solver, pose, solve, target_of
from fedskew.types import Floats, Ints, Signal, View, needs

SNR_RANGE = (0.1, 10.0)  # of the median


@needs("signal", when=lambda options: ["snr"] if options["use_snr"] else [])
def bacsa(
    view: View,
    rng: np.random.Generator,
    *,
    objective: Literal["group", "ucb", "penalty_raw", "literal"] = "group",
    gamma: float = 0.1,
    use_snr: bool = False,
    target: Literal["uniform", "global"] = "uniform",
    weights: Literal["uniform", "examples"] = "uniform",
    solver: Solver = "auto",
    restarts: int = 5,
) -> Ints:
    """The group whose labels together are most balanced, with fairness to all (BACSA, paper 001).

    Ids ascend.

    ``gamma`` weighs fairness against balance (0: balance only; try 0.01, 0.1, 1). ``target`` is
    what the set should look like: every class alike, or the whole federation. ``weights``: whether
    q counts clients or their examples; match the aggregation. ``literal`` is worse than random and
    ignores ``weights``.
    """
    if gamma < 0:
        raise RecipeError(
            "selection.gamma", f"{gamma} is negative", "Give 0 or more, for example 0.1"
        )
    signal, candidates = signal_of(view, "bacsa"), np.flatnonzero(view.available)
    m = min(view.budget, len(candidates))
    rows, aim = signal.rows[candidates], target_of(signal, target)
    quality = channel_quality(view, candidates) if use_snr else np.ones(len(candidates))
    cost = unfairness(objective, gamma, view, candidates, quality)
    if objective == "literal":
        problem = _literal(rows, aim, cost, m)
    else:
        mass = (
            view.population.num_examples[candidates]
            if weights == "examples"
            else np.ones(len(candidates))
        )
        problem = pose(
            rows,
            target=aim,
            weights=np.maximum(mass, 1),
            cost=cost * (m if objective == "penalty_raw" else 1),
        )
    return candidates[
        solve(problem, m, rng, solver=solver, restarts=restarts, where="selection bacsa")
    ]


def signal_of(view: View, rule: str) -> Signal:
    """The label proportions a rule cannot do without."""
    if view.signal is None:
        raise RunError(f"selection {rule}", "needs label proportions", "Add [signal] to the recipe")
    return view.signal


def channel_quality(view: View, clients: Ints) -> Floats:
    """SNR over the median of everybody's, within [0.1, 10]; a client whose SNR is not known
    counts as the median.
    """
    snr = view.population.snr
    if snr is None or np.isnan(snr).all():
        raise RunError(
            "selection bacsa",
            "use_snr needs signal-to-noise ratios",
            "Set devices.snr_db = [0, 30]",
        )
    median = max(float(np.nanmedian(snr)), np.finfo(np.float64).tiny)
    return np.clip(np.nan_to_num(snr[clients] / median, nan=1.0, posinf=SNR_RANGE[1]), *SNR_RANGE)


def unfairness(objective: str, gamma: float, view: View, clients: Ints, quality: Floats) -> Floats:
    """What choosing each client costs; a bonus is negative."""
    times, r = view.times_selected[clients].astype(np.float64), view.round
    cost: Floats
    if objective == "group":
        cost = gamma * np.sqrt(times / max(1, r - 1) / quality)
    elif objective == "ucb":
        bonus = gamma * np.sqrt(3 * np.log(r) * quality / (2 * np.maximum(times, 1)))
        cost = -bonus - np.where((times == 0) & (gamma > 0), _first(view, bonus), 0.0)
    else:  # as printed in eq 11, theta = 1 / median SNR
        cost = gamma * np.sqrt(3 * np.log(r) * 2 * times / quality)
    return cost


def _first(view: View, bonus: Floats) -> float:
    """A bonus so large that one never-chosen client more in the set outweighs all else: C |q -
    u|^2 is at most 2 C.
    """
    classes = 0 if view.signal is None else view.signal.num_classes
    return view.budget * (4.0 * classes + 2 * float(bonus.max(initial=0.0)))


def _literal(rows: Floats, aim: Floats, cost: Floats, m: int) -> Balance:
    """Eq 11: sum over S and c of (b_kc - q_c)^2 + penalty_k.

    That is sum_S |b_k - u|^2 - m |q - u|^2 + C sum_S penalty_k.
    """
    spread = np.square(rows - aim).sum(axis=1)
    return pose(rows, target=aim, cost=m * (spread + rows.shape[1] * cost), scale=-float(m))
