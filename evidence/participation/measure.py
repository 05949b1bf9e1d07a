"""Who gets to train under a selection rule: rounds played on scripted clients, nothing is trained.

20 clients own two of ten classes each. What the server knows of them comes from the shipped path: a
probe whose output bias moves by lr * steps * (share - 1/C) plus noise, read by ``signal =
"estimated"``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedskew.accounting.devices import Devices, draw_population
from fedskew.accounting.participation import participation
from fedskew.data.partitions.ownership import balanced
from fedskew.evidence.cells import Cell
from fedskew.loop.federation import run, settle
from fedskew.recipe import method_of
from fedskew.runtime.replies import Reply
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.streams import stream
from fedskew.types import Layout, Params

CLASSES, PER_CLASS, STEPS = 10, 36, 3
HEAD = Layout.of([("weight", (CLASSES, 4), "weight"), ("bias", (CLASSES,), "weight")])
THIRDS = ("worst_third", "middle_third", "best_third")  # of the channels
FIGURES = ("jain", "gini", "fewest", "most", "share_never", "longest_wait")


class NoisyClients(ScriptedRuntime):
    """Clients whose output bias moves as their labels say, with noise of their own in every
    round; ``noise`` is the standard deviation of an estimated share.
    """

    def __init__(self, federation: int, clients: int, lr: float, noise: float) -> None:
        owned = balanced(clients, CLASSES, 2, stream(federation, "partition"))
        counts = np.where(owned, PER_CLASS, 0)
        means = draw_population(counts.sum(axis=1), Devices(snr_db=(0.0, 30.0)), federation)
        super().__init__(counts, script=self.reply, population=means, layout=HEAD)
        self.shares = counts / counts.sum(axis=1, keepdims=True)
        self.snr, self._federation, self._lr, self._noise = means.snr, federation, lr, noise

    def reply(self, client: int, round: int, model: Params) -> Reply:
        """One training run of one client."""
        random = stream(self._federation, "noise", client, round)
        noise = random.normal(scale=self._noise, size=CLASSES)
        moved = model.copy()
        step = self._lr * STEPS * (self.shares[client] - 1 / CLASSES + noise)
        moved[-CLASSES:] += step.astype(np.float32)
        return Reply(moved, 1.0, 0.01, STEPS, 2 * PER_CLASS)


def play(cell: Cell) -> dict[str, Any]:
    """Figures of one rule after all rounds; the seed is the federation."""
    recipe = cell.recipe
    clients, lr = int(recipe["data"]["clients"]), float(recipe["signal"]["lr"])
    world = NoisyClients(cell.seed, clients, lr, float(cell.options["noise"]))
    played = list(run(settle(method_of(recipe), world, cell.seed)))
    state = played[-1][0]
    sets = [[c for chain in record.chains for c in chain.clients] for _, record in played[1:]]
    figures = participation(state.times_selected, state.last_selected, state.round, snr=world.snr)
    snr_db = 10 * np.log10(world.snr)
    times = state.times_selected.astype(np.float64)
    return {
        "times": state.times_selected.tolist(),
        "snr_db": snr_db.round(2).tolist(),
        **{name: getattr(figures, name) for name in FIGURES},
        **dict(zip(THIRDS, figures.mean_by_snr_tercile or (), strict=True)),
        # nobody is preferred where all are chosen alike
        "snr_correlation": float(np.corrcoef(times, snr_db)[0, 1]) if np.ptp(times) else 0.0,
        "imbalance": float(np.mean([imbalance(world.shares[ids]) for ids in sets])),
        "distinct": int((state.times_selected > 0).sum()),
    }


def imbalance(shares: Any) -> float:
    """C * sum (q - 1/C)^2 of the labels of some clients together."""
    return float(CLASSES * np.square(shares.mean(axis=0) - 1 / CLASSES).sum())
