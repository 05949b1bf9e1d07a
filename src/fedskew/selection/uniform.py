"""Every available client has the same chance: the selection of FedAvg.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: "Communication-Efficient Learning of Deep Networks
from Decentralized Data", AISTATS 2017, Algorithm 1.
"""

from __future__ import annotations

import numpy as np

from fedskew.types import Ints, View


def uniform(view: View, rng: np.random.Generator) -> Ints:
    """Draw ``view.budget`` available clients without replacement, ids ascending."""
    candidates = np.flatnonzero(view.available)
    return np.sort(rng.choice(candidates, min(view.budget, len(candidates)), replace=False))
