"""A claimed label mix against the client's own update.

Everybody takes one step on all its examples from the first model with an even output layer: the
probe of ``signal.use = "estimated"``, whose output bias moves by lr * (labels - 1/C), whatever the
model (docs/methods.md 8.2). So

    gap_k = 1/2 sum_c |claim_kc - shown_kc|,

the total variation between what a client says and what it did, is rounding for an honest one.
Private counts carry noise of a known size: noise e on the counts moves a mix by |e|_1 / n at most,
and the 99.9 % quantile of that is added to the limit. What noise could hide, a liar can hide too.

A client that also answers the probe with a false update is not found here. It has to go on sending
false updates, and ``trust.cap`` bounds how often.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from fedskew.signal import estimated
from fedskew.types import Bools, Floats, HeadUpdates, Ints

QUANTILE = 0.999


@dataclass(frozen=True)
class Verdict:
    """What became of claimed label mixes."""

    rows: Floats  # (K, C) claims, or what updates show where these were refuted
    refuted: Ints  # clients
    silent: Ints  # clients that did not train, so that nothing is known of them


def judge(claims: Floats, asked: Bools, updates: HeadUpdates, lr: float, limits: Floats) -> Verdict:
    """Compare claims (K, C) of the clients ``asked`` with what they did; ``limits`` (K,) is how far
    apart the two may be.
    """
    shown = estimated(updates, method="bias_linear", lr=lr).rows
    gaps = np.abs(claims - shown).sum(axis=1) / 2
    refuted = asked & updates.answered & (gaps > limits)
    rows = np.where(refuted[:, None], shown, claims)
    silent = np.flatnonzero(asked & ~updates.answered)
    return Verdict(rows, np.flatnonzero(refuted), silent)


def noise_allowance(num_examples: Ints, num_classes: int, scale: float) -> Floats:
    """(K,) how far noise of this scale on every count may move a mix.

    >>> noise_allowance(np.array([100, 10]), 10, 0.0)
    array([0., 0.])
    >>> noise_allowance(np.array([1000, 10]), 10, 1.0).round(3)
    array([0.023, 2.266])
    """
    most = scipy.stats.gamma.ppf(QUANTILE, num_classes, scale=scale) if scale > 0 else 0.0
    return np.asarray(most / np.maximum(num_examples, 1), np.float64)
