"""How the losses of clients move together: a Gaussian process over the K loss changes of a round,
fitted by maximum likelihood.

Tang, Ning, Wang, Sun, Wang, Li, Chen: "FedCor: Correlation-Based Active Client Selection Strategy
for Heterogeneous Federated Learning", CVPR 2022, with the linear kernel of the authors' code
(docs/methods.md 4.5). The changes are N(μ, Σ) with Σ = XᵀX + σ²I, where column k of the embedding X
(d, K) says where client k lies.

Everything is computed with the d x d matrix A = XXᵀ + σ²I instead of the K x K matrix Σ (d = 15):

    log det Σ = (K - d) log σ² + log det A,    XΣ⁻¹ = A⁻¹X,    Σ⁻¹r = (r - XᵀA⁻¹Xr) / σ²

so one step costs O(dK) per remembered round and no Σ is ever factorised.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy

from fedskew.errors import RunError
from fedskew.types import Bools, Floats, Ints

# times the mean of the diagonal (docs/methods.md 4.5), tried until Cholesky succeeds
JITTERS = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
ADAM_DECAYS = (0.9, 0.999)
# residuals this much smaller than the changes themselves are rounding: nothing to learn from
SAME_SEEN = 1e-9


def standardise(changes: Floats, weights: Floats, *, centre: bool) -> Floats | None:
    """(T, K) changes minus their weighted mean per client, in units of their own spread; None if
    they do not differ.

    >>> standardise(np.array([[1.0, 5.0], [3.0, 5.0]]), np.ones(2), centre=True).round(3).tolist()
    [[-1.414, 0.0], [1.414, 0.0]]
    """
    seen = np.isfinite(changes)
    filled, weight = np.where(seen, changes, 0.0), weights[:, None] * seen
    mean = (weight * filled).sum(axis=0) / np.maximum(weight.sum(axis=0), np.finfo(np.float64).tiny)
    residuals = np.where(seen, filled - mean * centre, 0.0)
    scale = float(
        np.sqrt((weight * residuals**2).sum() / max(weight.sum(), np.finfo(np.float64).tiny))
    )
    if not scale > SAME_SEEN * np.abs(filled).max(initial=0.0):
        return None
    return np.where(seen, residuals / scale, np.nan)


def log_likelihood(embedding: Floats, residuals: Floats, weights: Floats, *, noise: float) -> float:
    """Σ_t w_t log N(r_t; 0, Σ) over the clients seen in round t, without n/2 log 2π."""
    total = 0.0
    for columns, rows, weight in _patterns(residuals, weights):
        located = embedding[:, columns]
        solved, factor = _solve(located, noise)
        inner = solved @ rows.T
        squares = (rows.T * (rows.T - located.T @ inner)).sum(axis=0) / noise**2
        free = located.shape[1] - len(located)
        log_det = 2 * np.log(np.diagonal(factor)).sum() + 2 * free * np.log(noise)
        total += float((weight * (-squares - log_det)).sum() / 2)
    return total


def gradient(
    embedding: Floats, patterns: list[tuple[Ints, Floats, Floats]], *, noise: float
) -> Floats:
    """Of :func:`log_likelihood` in the embedding: -(Σ w) XΣ⁻¹ + Σ_t w_t (XΣ⁻¹r_t)(Σ⁻¹r_t)ᵀ,
    group by group of seen clients.
    """
    slope = np.zeros_like(embedding)
    for columns, rows, weight in patterns:
        located = embedding[:, columns]
        solved, _ = _solve(located, noise)
        inner = solved @ rows.T
        outer = (rows.T - located.T @ inner) / noise**2
        slope[:, columns] += (inner * weight) @ outer.T - weight.sum() * solved
    return slope


def fit(
    embedding: Floats, residuals: Floats, weights: Floats, *, noise: float, steps: int, lr: float
) -> Floats:
    """The embedding after ``steps`` of Adam up the log likelihood.

    A client that was never seen keeps its place.
    """
    moved = np.array(embedding)
    patterns = list(_patterns(residuals, weights))
    first, second = np.zeros_like(moved), np.zeros_like(moved)
    for step in range(1, steps + 1):
        slope = gradient(moved, patterns, noise=noise)
        first += (1 - ADAM_DECAYS[0]) * (slope - first)
        second += (1 - ADAM_DECAYS[1]) * (slope**2 - second)
        pace = lr * np.sqrt(1 - ADAM_DECAYS[1] ** step) / (1 - ADAM_DECAYS[0] ** step)
        moved += pace * first / (np.sqrt(second) + 1e-8)
    return moved


def most_informative(
    embedding: Floats,
    share: Floats,
    discount: Floats,
    candidates: Ints,
    counted: Bools,
    m: int,
    *,
    noise: float,
) -> Ints:
    """One after another the candidate that, after those before it, foretells most of the loss.

    k* = argmax a_k Σ_i p_i Σ_ik / sqrt(Σ_kk), i over the ``counted`` clients not yet chosen; then Σ
    is conditioned on k*. What remains of XᵀX after some choices is XᵀCX with a d x d matrix C; the
    (d, K) product CX is kept and changed by one outer product a choice: 2.5 ms for 50 out of 1,000
    clients, where the K x K matrix took 150 ms.
    """
    located, part, factor = embedding[:, candidates], share[candidates], discount[candidates]
    projected, variance = located.copy(), (located**2).sum(axis=0) + noise**2
    pull = embedding[:, counted] @ share[counted]
    chosen: list[int] = []
    for _ in range(min(m, len(candidates))):
        score = factor * (pull @ projected + part * noise**2) / np.sqrt(variance)
        score[chosen] = -np.inf
        best = int(np.argmax(score))
        chosen.append(best)
        pull = pull - part[best] * located[:, best]
        cross = located[:, best] @ projected
        ahead = projected[:, best] / (cross[best] + noise**2)
        variance = np.maximum(variance - cross**2 / (cross[best] + noise**2), noise**2)
        projected -= ahead[:, None] * cross
    return candidates[chosen]


def _patterns(residuals: Floats, weights: Floats) -> Iterator[tuple[Ints, Floats, Floats]]:
    """Rounds in which the same clients were seen.

    (their columns, (n, seen) residuals, (n,) weights)
    """
    seen = np.isfinite(residuals)
    masks, group = np.unique(seen, axis=0, return_inverse=True)
    for number, mask in enumerate(masks):
        rows = group.reshape(-1) == number
        if mask.any():
            yield np.flatnonzero(mask), residuals[rows][:, mask], weights[rows]


def _solve(located: Floats, noise: float) -> tuple[Floats, Floats]:
    """A⁻¹X and the Cholesky factor of A = XXᵀ + σ²I."""
    matrix = located @ located.T + noise**2 * np.eye(len(located))
    for jitter in JITTERS:
        shifted = matrix + jitter * np.trace(matrix) / len(matrix) * np.eye(len(matrix))
        factor, solved, info = scipy.linalg.lapack.dposv(shifted, located)
        if info == 0 and np.isfinite(solved).all():
            return np.asarray(solved, np.float64), np.asarray(factor, np.float64)
    raise RunError(
        "selection fedcor",
        "the covariance of the losses cannot be factorised",
        "Give a larger selection.noise",
    )
