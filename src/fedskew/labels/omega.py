"""AFLS's omega: how far clients, or groups, are from their average; and when order matters.

Lee, Lee: "Non-IID Degree Aware Adaptive Federated Learning Procedure Selection Scheme for
Edge-Enabled IoT Network" (AFLS, paper 003); docs/methods.md 2.12, 6.4. Used where a federation is
measured (:mod:`fedskew.distance.skew`) and where its order is chosen (:mod:`fedskew.procedure`):
stages do not import each other, so it lies outside both.

omega depends on eps wherever a client lacks a class (k = 2 of 10 classes: 8.888 at 1e-6, 12.573 at
1e-8), so a threshold means something only together with eps and the number of classes.
``omega_reverse`` does not, and is at most ln C.
"""

from __future__ import annotations

import math

import numpy as np
import scipy

from fedskew.errors import RecipeError
from fedskew.types import Floats

ROUNDING = 1e-9  # omega of exactly 2 classes each must not miss the threshold by a rounding error


def omega(rows: Floats, *, eps: float = 1e-6) -> float:
    """AFLS's omega: the mean of KL(average client, client), every client alike.

    Absent classes of a client are clipped at eps.
    """
    if not eps > 0:
        raise RecipeError(
            "omega", f"eps = {eps} makes absent classes infinite", "Give a number above 0"
        )
    average = rows.mean(axis=0)
    return float(
        scipy.special.xlogy(average, average).sum()
        - average @ np.log(np.maximum(rows, eps)).mean(axis=0)
    )


def omega_reverse(rows: Floats) -> float:
    """Mean of KL(client, average client): needs no eps, at most ln C."""
    return max(0.0, float(scipy.special.rel_entr(rows, rows.mean(axis=0)).sum()) / len(rows))


def omega_balanced(classes_per_client: int, num_classes: int, *, eps: float = 1e-6) -> float:
    """omega when every client has k classes in equal parts and every class as many owners.

    A threshold in units of classes.

    >>> [round(omega_balanced(k, 10), 3) for k in (1, 2, 3, 10)]
    [10.131, 8.888, 7.698, 0.0]
    """
    k, all_classes = classes_per_client, num_classes
    if not 1 <= k <= all_classes:
        raise RecipeError(
            "omega_balanced", f"{k} of {all_classes} classes", "Give between 1 and all classes"
        )
    return k / all_classes * math.log(k / all_classes) + (1 - k / all_classes) * math.log(
        1 / (all_classes * eps)
    )


def cap_classes(classes: int, num_classes: int) -> int:
    """A threshold in classes, as it can be used: of 2 classes, "2 each" is no skew, so it is 1.

    >>> cap_classes(2, 10), cap_classes(2, 2)
    (2, 1)
    """
    return min(classes, max(1, num_classes - 1))


def threshold(num_classes: int, *, theta: float, theta_classes: int, eps: float) -> float:
    """The omega from which clients train in order.

    ``theta``, or that of clients with ``theta_classes`` classes each.

    A theta no federation with so many classes can reach is refused: it would never switch, without
    a word.

    >>> [threshold(10, theta=theta, theta_classes=0, eps=1e-6) for theta in (8.5, 0.5)]
    [8.5, 0.5]
    >>> round(threshold(4, theta=8.5, theta_classes=2, eps=1e-6), 3)
    5.868
    """
    if not 0 < eps * num_classes < 1:
        what = f"{eps:g} is out of range for {num_classes} classes"
        raise RecipeError(
            "procedure.epsilon",
            what,
            f"Give a number above 0 and below 1/{num_classes}, for example 1e-6",
        )
    if theta_classes > 0:
        return omega_balanced(cap_classes(theta_classes, num_classes), num_classes, eps=eps)
    most = omega_balanced(1, num_classes, eps=eps)
    if not 0 < theta <= most:
        what = (
            f"{theta:g} is out of range: "
            f"with {num_classes} classes and epsilon = {eps:g} omega is at most {most:.3f}"
        )
        raise RecipeError("procedure.theta", what, "Give less, or set theta_classes = 2")
    return theta


def reaches(value: float, level: float) -> bool:
    """Whether an omega is at a level or above it (Algorithm 1, line 3: >=), rounding aside.

    >>> reaches(8.888, 8.5), reaches(5.0 * (1 - 1e-15), 5.0), reaches(5.0, 8.5)
    (True, True, False)
    """
    return value >= level * (1 - ROUNDING)
