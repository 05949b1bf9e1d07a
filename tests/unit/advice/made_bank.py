"""A bank that nobody measured: what its methods give follows a rule, so the right answer is known.

Skew (``group_skew``) costs FedAvg 40 points a unit, fed_cbs 10, balanced_chains nothing, but that
one starts 2 points lower; every method rises towards its end as 1 - exp(-rounds / 10).
"""

from __future__ import annotations

import numpy as np

from fedskew.advice.bank import COSTS, LEVELS, Bank, Entry, Federation
from fedskew.advice.features import Training, features_of

METHODS = {
    "fedavg": Entry("fedavg", {}),
    "fed_cbs": Entry("fed_cbs", {}),
    "balanced_chains": Entry("balanced_chains", {"local.epochs": 1}),
    "clust_psi_pfl": Entry("clust_psi_pfl", {}),
}
LOSS = {"fedavg": 0.4, "fed_cbs": 0.1, "balanced_chains": 0.0, "clust_psi_pfl": 0.0}
START = {"fedavg": 0.9, "fed_cbs": 0.9, "balanced_chains": 0.88, "clust_psi_pfl": 0.95}
PLAIN = {"down": 1.0, "up": 1.0, "passes": 1.0, "hops": 2.0, "turns": 1.5}
HANDED = {"down": 0.2, "up": 0.2, "d2d": 0.8, "passes": 1.0, "hops": 2.0, "handed": 4.0}
PROBE = {"turns": 5.0, "start_down": 1.0, "start_up": 1.0, "start_passes": 1.0, "start_hops": 3.0}
CHAINS = {**HANDED, **PROBE}
TRAINING = Training(per_round=5, epochs=1, batch=16, lr=0.1)


def table_of(
    rng: np.random.Generator, clients: int, alpha: float, examples: int = 60
) -> np.ndarray:
    """(K, 10) label counts of Dirichlet clients of one size."""
    shares = rng.dirichlet(np.full(10, alpha), clients)
    return np.array([rng.multinomial(examples, row) for row in shares])


def truth(method: str, group_skew: float, rounds: float) -> float:
    """What a method gives in this world."""
    return (START[method] - LOSS[method] * group_skew) * (1 - np.exp(-rounds / 10))


def make_bank(federations: int = 60, noise: float = 0.01, seed: int = 0) -> Bank:
    rng = np.random.default_rng(seed)
    features, accuracy, chosen = [], [], []
    for _ in range(federations):
        clients, alpha = int(rng.integers(20, 60)), float(10 ** rng.uniform(-1.3, 0.7))
        found = features_of(table_of(rng, clients, alpha), TRAINING)
        features.append(list(found.values()))
        accuracy.append([
            [truth(name, found["group_skew"], level) + noise * rng.standard_normal()
             for level in LEVELS]
            for name in METHODS
        ])  # fmt: skip
        chosen.append([5.0, 5.0, 5.0, clients / 2])
    costs = {name: np.zeros((federations, len(METHODS))) for name in COSTS}
    for place, name in enumerate(METHODS):
        for cost, value in (CHAINS if name == "balanced_chains" else PLAIN).items():
            costs[cost][:, place] = value
    costs["chosen"] = np.array(chosen)
    for cost in ("down", "up", "passes"):  # per place: half of all train, whatever m is
        costs[cost][:, 3] = costs["chosen"][:, 3] / 5
    return Bank(
        version="test",
        methods=METHODS,
        federations=[Federation("made", f"number {f}", "") for f in range(federations)],
        feature_names=list(found),
        features=np.array(features),
        levels=np.array(LEVELS, np.float64),
        accuracy=np.array(accuracy),
        costs=costs,
    )
