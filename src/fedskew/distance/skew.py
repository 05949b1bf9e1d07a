"""How skewed is a whole federation: one number per definition, from the label counts alone.

- HD, JSD, EMD as the FedArtML package defines them (docs/methods.md 1.7). HD is the root mean
  square Hellinger distance over pairs of clients, JSD the normalised generalised Jensen-Shannon
  distance, EMD the root of the mean ``w1_values`` over pairs.
- WPSI of Clust-PSI-PFL (paper 004; docs/methods.md 2.11).
- omega of AFLS (paper 003; docs/methods.md 2.12): mean KL of the average client from each client,
  reference first, from :mod:`fedskew.labels.omega`.

Differs from the papers: nothing in the values. All are computed without pairs, in O(K C log K): a
million clients take seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedskew.distance.psi import psi_terms
from fedskew.errors import SignalError
from fedskew.labels.omega import omega, omega_reverse
from fedskew.types import Floats, Ints, frozen


@dataclass(frozen=True)
class SkewFigures:
    """Every figure of one federation.

    Clients without examples are listed in ``empty_clients`` and left out of all others.
    """

    num_clients: int
    num_classes: int
    num_examples: float
    empty_clients: Ints
    hd: float
    jsd: float
    emd_values: float  # FedArtML's "EMD": the proportions as samples, blind to which class is which
    wpsi: float
    omega: float
    omega_reverse: float
    eps: float  # of wpsi and omega
    size_gini: float
    size_min: float
    size_median: float
    size_max: float
    classes_min: int
    classes_mean: float
    classes_max: int
    psi_per_client: Floats  # (K,) nan for empty clients
    psi_per_class: Floats  # (C,) weighted by client size: they add up to wpsi
    classes_per_client: Ints  # (K,)

    def scalars(self) -> dict[str, int | float]:
        """The figures that are one number each, for a table or JSON."""
        numbers = {
            name: value for name, value in vars(self).items() if isinstance(value, int | float)
        }
        return {**numbers, "num_empty": len(self.empty_clients)}


def skew_figures(counts: ArrayLike, *, eps: float = 1e-6) -> SkewFigures:
    """All figures of a (K, C) table of label counts; noisy, fractional counts are welcome too.

    Ten clients with two of ten classes each, every class at two clients:

    >>> figures = skew_figures(np.kron(np.eye(5), np.full((2, 2), 500)))
    >>> round(figures.omega, 3), figures.classes_max, figures.size_gini
    (8.888, 2, 0.0)
    """
    table = _checked(counts)
    sizes = table.sum(axis=1)
    known = sizes > 0
    if not known.any():
        raise SignalError(
            "skew", "no client has any examples", "Give at least one client with a count above zero"
        )
    rows = table[known] / sizes[known, None]
    weights = sizes[known]
    num_held = np.count_nonzero(table, axis=1)
    terms = psi_terms(rows, weights, eps=eps)
    per_client = np.full(len(table), np.nan)
    per_client[known] = terms.sum(axis=1)
    per_class = weights @ terms / weights.sum()
    return SkewFigures(
        num_clients=len(table),
        num_classes=table.shape[1],
        num_examples=float(sizes.sum()),
        empty_clients=frozen(np.flatnonzero(~known), np.int64),
        hd=hellinger_skew(rows),
        jsd=jensen_shannon_skew(rows),
        emd_values=emd_values_skew(rows),
        wpsi=float(per_class.sum()),
        omega=omega(rows, eps=eps),
        omega_reverse=omega_reverse(rows),
        eps=eps,
        size_gini=gini(weights),
        size_min=float(weights.min()),
        size_median=float(np.median(weights)),
        size_max=float(weights.max()),
        classes_min=int(num_held[known].min()),
        classes_mean=float(num_held[known].mean()),
        classes_max=int(num_held[known].max()),
        psi_per_client=frozen(per_client),
        psi_per_class=frozen(per_class),
        classes_per_client=frozen(num_held, np.int64),
    )


def _checked(counts: ArrayLike) -> Floats:
    """A float table, or an error that names the first bad entry."""
    table = np.asarray(counts, np.float64)
    if table.ndim != 2 or table.size == 0:
        raise SignalError(
            "skew",
            f"label counts of shape {table.shape}",
            "Give one row per client, one column per class",
        )
    bad = ~np.isfinite(table) | (table < 0)
    if bad.any():
        client, label = np.unravel_index(int(bad.argmax()), table.shape)
        raise SignalError(
            "skew",
            f"client {client}, class {label}: count {table[client, label]:g}",
            "Counts are at least 0",
        )
    return table


# --------------------------------------------- FedArtML's three, on rows (K, C) that sum to 1


def hellinger_skew(rows: Floats) -> float:
    """HD: root mean square Hellinger distance over all pairs, clipped at 1; 0 for one client.

    >>> round(hellinger_skew(np.array([[.7, .2, .1, 0], [.1, .2, .3, .4], [.25] * 4])), 6)
    0.443606
    """
    if len(rows) < 2:
        return 0.0
    # docs/methods.md 1.7: HD^2 = (K^2 - |sum_i sqrt(p_i)|^2) / (K (K-1)). As |sqrt(p_i)| = 1 that
    # equals the variance below, which does not subtract two numbers near K^2: identical clients
    # give 1e-16 instead of 1e-8.
    roots = np.sqrt(rows)
    roots -= roots.mean(axis=0)
    return min(1.0, math.sqrt(float(np.vdot(roots, roots)) / (len(rows) - 1)))


def jensen_shannon_skew(rows: Floats) -> float:
    """JSD: sqrt of (entropy of the mean - mean entropy, in bits) over log2 K.

    It is undivided for two clients, and 0 for one.

    >>> round(jensen_shannon_skew(np.array([[.7, .2, .1, 0], [.1, .2, .3, .4], [.25] * 4])), 6)
    0.432556
    """
    if len(rows) < 2:
        return 0.0
    # The bracket is omega_reverse in bits; bits / log2 K = nats / ln K, and ln 2 for two clients is
    # "undivided".
    return min(1.0, math.sqrt(omega_reverse(rows) / math.log(len(rows))))


def emd_values_skew(rows: Floats) -> float:
    """FedArtML's EMD: sqrt of the mean ``w1_values`` over pairs, exact at any K; 0 for one client.

    >>> round(emd_values_skew(np.array([[.7, .2, .1, 0], [.1, .2, .3, .4], [.25] * 4])), 6)
    0.397911
    """
    num = len(rows)
    if num < 2:
        return 0.0
    # Per rank c: the sum over pairs of |a_i - a_j| is the sum over the sorted a of (2k - K + 1)
    # a_(k), k = 0..K-1.
    ranked = np.sort(np.sort(rows, axis=1), axis=0)
    ranked -= ranked[0].copy()  # changes no difference, and equal clients give exactly 0
    pair_sum = float((np.arange(1 - num, num, 2) @ ranked).sum())
    return math.sqrt(max(0.0, pair_sum) / rows.shape[1] / (num * (num - 1) / 2))


# ---------------------------------------------------------------- PSI


def wpsi(rows: Floats, num_examples: Floats, *, eps: float = 1e-6) -> float:
    """WPSI: the PSI of the clients, weighted by their sizes.

    >>> round(wpsi(np.array([[.7, .2, .1, 0], [.1, .2, .3, .4]]), np.array([10., 30.])), 6)
    1.227553
    """
    return float(
        num_examples @ psi_terms(rows, num_examples, eps=eps).sum(axis=1) / num_examples.sum()
    )


# ---------------------------------------------------------------- sizes


def gini(sizes: ArrayLike) -> float:
    """Gini coefficient: 0 when all are equal, (n - 1)/n when one has everything.

    >>> gini([5, 5, 5]), gini([0, 0, 0, 8])
    (0.0, 0.75)
    """
    ascending = np.sort(np.asarray(sizes, np.float64))
    num = len(ascending)
    total = float(ascending.sum())
    if total == 0:
        return 0.0
    return float(np.arange(1 - num, num, 2) @ ascending) / (num * total)
