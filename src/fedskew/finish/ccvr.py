"""The output layer is fitted anew to features drawn from class-wise Gaussians (CCVR).

Luo, Chen, Hu, Zhang, Liang, Feng: "No Fear of Heterogeneity: Classifier Calibration for Federated
Learning with Non-IID Data", NeurIPS 2021, Algorithm 1: each client sends, for each class, how many
examples it has and mean and covariance of their features; the server puts them together (eqs 3
and 4), draws ``virtual`` features a class and trains the output layer on them.

Differs from the paper:

- Clients send sums and sums of products instead of means and covariances: the same after eqs 3
  and 4.
- The output layer is fitted by L-BFGS from where it stood, with a small ``ridge``, instead of some
  epochs of SGD: no learning rate to choose, and the same bytes again.
- ``clients`` asks only so many, drawn at random, which costs that much less (0 = everybody, as in
  the paper).
- A class of one example or none in all has no Gaussian: its examples are left out, and its row of
  the output layer can only move because the others do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedskew.types import CalibrationRule, Floats, Ints, Moments


@dataclass(frozen=True)
class CCVR(CalibrationRule):
    """The output layer that fits ``virtual`` features of each class."""

    virtual: int = 500
    ridge: float = 1e-4
    clients: int = 0

    def calibrate(
        self, moments: Moments, weight: Floats, bias: Floats, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Draw, then fit."""
        features, labels = virtual_features(moments, self.virtual, rng)
        if not len(labels):
            return weight, bias
        return fitted(features, labels, weight, bias, self.ridge)


def gaussians(counts: Ints, sums: Floats, products: Floats) -> dict[int, tuple[Floats, Floats]]:
    """class -> mean (L,) and covariance (L, L) of its features, over all clients.

    >>> counts, sums = np.array([3, 1]), np.array([[6.0], [5.0]])
    >>> gaussians(counts, sums, np.array([[[14.0]], [[25.0]]]))
    {0: (array([2.]), array([[1.]]))}
    """
    found = {}
    for label in np.flatnonzero(counts > 1).tolist():
        n, mean = counts[label], sums[label] / counts[label]
        found[label] = mean, (products[label] - n * np.outer(mean, mean)) / (n - 1)
    return found


def virtual_features(
    moments: Moments, virtual: int, rng: np.random.Generator
) -> tuple[Floats, Ints]:
    """(n, L) features drawn from the Gaussian of each class, and their labels."""
    total = (part.sum(axis=0) for part in (moments.counts, moments.sums, moments.products))
    drawn, labels = [np.empty((0, moments.sums.shape[2]))], [np.empty(0, np.int64)]
    for label, (mean, covariance) in gaussians(*total).items():
        values, axes = np.linalg.eigh(covariance)
        spread = axes * np.sqrt(np.maximum(values, 0.0))  # rounding may leave them below 0
        drawn.append(mean + rng.normal(size=(virtual, len(mean))) @ spread.T)
        labels.append(np.full(virtual, label))
    return np.concatenate(drawn), np.concatenate(labels)


def fitted(
    features: Floats, labels: Ints, weight: Floats, bias: Floats, ridge: float
) -> tuple[Floats, Floats]:
    """Multinomial logistic regression from a given start."""
    # half a second to import: only for a run that comes this far
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    shape, rows = weight.shape, np.arange(len(labels))

    def loss(flat: Floats) -> tuple[float, Floats]:
        w, b = flat[: weight.size].reshape(shape), flat[weight.size :]
        log_p = log_softmax(features @ w.T + b, axis=1)
        error = np.exp(log_p)
        error[rows, labels] -= 1
        error /= len(labels)
        value = -log_p[rows, labels].mean() + ridge / 2 * np.square(w).sum()
        return float(value), np.concatenate(
            [(error.T @ features + ridge * w).ravel(), error.sum(0)]
        )

    start = np.concatenate([weight.ravel(), bias]).astype(np.float64)
    best = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 200}).x
    return best[: weight.size].reshape(shape), best[weight.size :]
