"""A client is judged by what its own labels predict, not by what the others send (ours).

Median, Krum and the like ask whether an update resembles the others'. Under label skew the honest
client with a rare label does not, and is thrown out. This rule asks something else:

1. *Length.* An update more than ``longest`` times as long as usual (the median of the last
   ``window``) is shortened to the usual length.
2. *Direction.* Training on cross entropy lowers the output of every class that a client does not
   hold, so the outputs that rise are those of its own labels, whatever the model was like before.
   Where the recipe has a ``[signal]``, the agreement is the correlation of the rises with the
   client's label mix. Without one it is read from the update alone: the skewness of the rises (a
   client with few labels raises few outputs by much and lowers many by little; a reversed update
   does the opposite), plus the median cosine with the others' updates, which says nothing where
   labels differ and much where they do not. Agreement is averaged over a client's rounds (each new
   one counts ``new``); while the average is below 0, its updates are turned away.

The others are averaged as in FedAvg; if everybody is turned away, the model stays. Measured on
digits: evidence/hostile.

What passes: a hostile client that trains on false labels and discloses these; one that lies about
its labels and reverses its update accordingly; a small push in what neither length nor output
biases show; whoever behaves for long and then strikes, once or twice. A chain of several clients is
judged by its length alone, for their labels add up to a mix that predicts little:
``aggregation.verify`` looks at every client of a chain.

Own composition; the rise of held classes is BACSA's observation (Yadav, Bor-Yaliniz, 2024, eqs
1-9). It needs a loss under which it holds: cross entropy or FedRS; logit adjustment takes exactly
this effect away (with it, half of the honest clients would be turned away).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedskew.aggregation.mean import normalised
from fedskew.aggregation.moves import lengths, moves, products, recent, stepped
from fedskew.types import AggregationRule, Ends, Floats, Memory, Params

SMALLEST = 1e-30


@dataclass(frozen=True)
class SkewAware(AggregationRule):
    """The mean of updates of usual length that go where their clients' labels say."""

    longest: float = 3.0
    window: int = 50
    new: float = 0.3
    weights: Literal["examples", "uniform"] = "examples"

    reads_head = True

    def merge(self, memory: Memory, model: Params, ends: Ends) -> tuple[Params, Memory]:
        """One step along the mean of those that were not turned away."""
        change = moves(model, ends)
        long = lengths(change)
        seen = recent(memory.get("lengths"), long, self.window)
        usual = float(np.median(seen))
        shrink = np.where(long > self.longest * usual, usual / np.maximum(long, SMALLEST), 1.0)
        agreed = self._agreed(memory.get("agreed", {}), agreement(change, ends), ends)
        welcome = np.array([agreed.get(str(c), 0.0) >= 0 for c in ends.clients], np.bool_)
        shares = normalised(ends, self.weights) * welcome
        shares = shares / max(shares.sum(), SMALLEST) * shrink
        moved = stepped(model, ends, shares.astype(np.float32) @ change)
        away = ends.clients[~welcome]
        return moved, {"lengths": seen, "agreed": agreed, "away": away}

    def _agreed(self, known: Mapping[str, float], fits: Floats, ends: Ends) -> dict[str, float]:
        """Every client's agreement so far, with this round's."""
        agreed = dict(known)
        for client, turn, now in zip(ends.clients, ends.turns, fits, strict=True):
            if len(turn) == 1:
                before = agreed.get(str(client), now)
                agreed[str(client)] = float((1 - self.new) * before + self.new * now)
        return agreed

    def remarks(self, memory: Memory) -> Mapping[int, str]:
        """Who was turned away."""
        return {int(c): "turned away: its update does not fit its labels" for c in memory["away"]}


def agreement(change: Params, ends: Ends) -> Floats:
    """(n,) above 0: the outputs that rose fit the labels; below: they rather contradict them."""
    assert ends.rises is not None
    rises = _unit(ends.rises)
    unknown = np.power(rises, 3).sum(axis=1) + resemblance(change)
    if ends.mixes is None:
        return np.asarray(unknown, np.float64)
    fits = (rises * _unit(ends.mixes)).sum(axis=1)
    return np.asarray(np.where(ends.mixes.sum(axis=1) > 0, fits, unknown), np.float64)


def resemblance(change: Params) -> Floats:
    """(n,) the median cosine of each update with the others; 0 for one alone.

    >>> resemblance(np.array([[1, 0], [2, 0], [3, 0], [-9, 0]], np.float32))
    array([ 1.,  1.,  1., -1.])
    """
    inner, n = products(change), len(change)
    long = np.maximum(np.sqrt(np.diag(inner)), SMALLEST)
    cosines = (inner / long / long[:, None])[~np.eye(n, dtype=np.bool_)].reshape(n, n - 1)
    return np.median(cosines, axis=1) if n > 1 else np.zeros(n)


def _unit(rows: Floats) -> Floats:
    """Rows around their mean, of length 1; zeros stay zeros."""
    rows = rows - rows.mean(axis=1, keepdims=True)
    long = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(long, SMALLEST), np.float64)
