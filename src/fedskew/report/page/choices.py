"""Who was chosen: clients by rounds, sorted by cluster, and plans as chains; small at any K."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedskew.experiment.run import Run
from fedskew.report.page.federation import Order
from fedskew.types import Floats, Ints

MOST_BANDS, MOST_COLUMNS = 400, 400
MOST_CELLS = 2_000_000  # of all rasters together: 2.7 MB of text
MOST_PLACES = 250_000  # clients in all plans that are kept
LONGEST_PLAN = 1_000  # clients of one plan that are kept


@dataclass(frozen=True)
class Budget:
    """How much of each run a page has room for."""

    bands: int
    columns: int
    places: int  # clients in the plans of one run

    @classmethod
    def over(cls, runs: Sequence[Run]) -> Budget:
        """Share the room out evenly."""
        bands = min(MOST_BANDS, max(run.num_clients for run in runs))
        columns = min(MOST_COLUMNS, max(1, *(len(run.rounds) for run in runs)))
        excess = math.sqrt(max(1.0, len(runs) * bands * columns / MOST_CELLS))
        return cls(
            max(1, int(bands / excess)),
            max(1, int(columns / excess)),
            MOST_PLACES // len(runs),
        )


def raster_of(run: Run, order: Order, room: Budget) -> dict[str, Any]:
    """Share of a band's clients chosen in a span of rounds, 0 to 255, row by row in base64; up
    to 400 clients a band is one.
    """
    size = run.num_clients
    rounds = [record for record in run.rounds if record.round > 0]
    bands = min(size, room.bands)
    columns = min(len(rounds), room.columns)
    edges = np.linspace(0, size, bands + 1).astype(np.int64)
    spans = np.linspace(0, len(rounds), columns + 1).astype(np.int64)
    band_of = np.empty(size, np.int64)
    band_of[order.clients] = np.searchsorted(edges, np.arange(size), side="right") - 1
    counts = np.zeros((bands, max(1, columns)), np.float64)
    for number, record in enumerate(rounds):
        chosen = [client for chain in record.chains for client in chain.clients]
        np.add.at(counts, (band_of[chosen], np.searchsorted(spans, number, side="right") - 1), 1)
    cells = (
        np.diff(edges)[:, None] * np.maximum(1, np.diff(spans))[None]
        if columns
        else np.ones((bands, 1))
    )
    times = run.times_selected
    return {
        "bands": bands,
        "columns": columns,
        "edges": None if bands == size else edges,
        "spans": None if columns == len(rounds) else spans,
        "clients": order.clients if bands == size else None,
        "data": _text(counts / cells),
        "times": np.round(np.add.reduceat(times[order.clients], edges[:-1]) / np.diff(edges), 2),
        "clusters": order.labels[edges[:-1]],
        "how": order.how,
        "most": int(times.max(initial=0)),
        "fewest": int(times.min()) if size else 0,
        "never": int((times == 0).sum()),
    }


def _text(shares: Floats) -> str:
    return base64.b64encode(
        np.round(255 * np.clip(shares, 0, 1)).astype(np.uint8).tobytes()
    ).decode()


def chains_of(run: Run, room: Budget) -> dict[str, Any]:
    """Round -> chains as [slot, clients]; evenly spaced rounds if all would take too much room."""
    played = [record for record in run.rounds if record.chains]
    total = sum(min(LONGEST_PLAN, sum(len(c.clients) for c in r.chains)) for r in played)
    if total > room.places and played:
        number = max(2, room.places * len(played) // total)
        played = [
            played[i]
            for i in sorted(set(np.linspace(0, len(played) - 1, number).astype(int).tolist()))
        ]
    return {
        str(record.round): _short([[chain.slot, list(chain.clients)] for chain in record.chains])
        for record in played
    }


def _short(chains: list[list[Any]]) -> list[list[Any]]:
    """The first chains, as many as may be drawn.

    A chain is never cut, unless it alone is too long.
    """
    kept: list[list[Any]] = []
    for slot, clients in chains:
        room = LONGEST_PLAN - sum(len(other) for _, other in kept)
        if room <= 0 or (kept and len(clients) > room):
            # slot -1: how many chains are not shown
            return [*kept, [-1, [len(chains) - len(kept)]]]
        kept.append([slot, clients[:room]])
    return kept


def positions(order: Ints) -> Ints:
    """Where each client stands in an order.

    >>> positions(np.array([2, 0, 1])).tolist()
    [1, 2, 0]
    """
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return place
