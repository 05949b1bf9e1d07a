"""The same share of every cluster, so that a cluster takes part in proportion to its size.

Paper 004 (Clust-PSI-PFL): in every round each cluster trains max(1, round(q K_c)) of its K_c
clients, drawn uniformly, with q = 0.5. The number of clients follows from q;
``run.clients_per_round`` is not used. docs/methods.md 7.1.

Differs from the paper:

- Halves are rounded to even, as Python and numpy do; the paper does not say.
- K_c counts all members. A cluster of which fewer are available sends those.
- The authors' public code copies the clients of clusters of one or two four times, to satisfy their
  framework's minimum; here such a cluster sends one client.
- Clients in no cluster train only if no one else is available.
"""

from __future__ import annotations

import numpy as np

from fedskew.errors import RecipeError
from fedskew.selection.groups import group, labels_of
from fedskew.types import Ints, View, needs


@needs("clustering")
def stratified(view: View, rng: np.random.Generator, *, fraction: float = 0.5) -> Ints:
    """``max(1, round(fraction * K_c))`` uniformly random available clients of every cluster."""
    if not 0 < fraction <= 1:
        raise RecipeError(
            "selection.fraction",
            f"{fraction} is not a share",
            "Give a number above 0 and at most 1",
        )
    labels = labels_of(view, "stratified")
    candidates = rng.permutation(np.flatnonzero(view.available))
    if not (labels[candidates] >= 0).any():
        labels = np.zeros_like(labels)  # only clients in no cluster are there: they stand for one
    grouped = group(candidates, labels)
    total = np.bincount(labels[labels >= 0], minlength=len(grouped.sizes))
    return grouped.first(np.maximum(1, np.rint(fraction * total)).astype(np.int64))
