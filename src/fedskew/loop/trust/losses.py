"""A claimed loss against everybody's, and against the client's own update.

A loss far above the median of all is extraordinary. A client with rare labels may have one, so it
is judged by what it does: while a client learns, its output bias moves by lr * steps * (labels -
mean softmax), and the more wrong the model is on its data, the further. Honest clients' ratio of
loss to that pull is nearly the same for all of one federation, so

    extraordinary, not trained yet     counts as the limit: still first in line, once
    extraordinary, its update shows it stays
    extraordinary, its update does not counts as what its update shows, at most as the median, is
                                       refuted, and goes on counting as that until it is confirmed

"Far" is five robust standard deviations of the logarithms, at least a factor of 1.3, at most
``trust.loss_factor``: for losses as for ratios. On 8x8 digits (14 federations and ways to train,
8,000 honest reports) at most 0.7 % of reports were refuted, where updates say something. They say
little under Adam, whose steps do not grow with gradients, of a loss after training, and without an
output bias: there only a loss loss_factor^2 times the median is refuted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedskew.loop.trust.book import Book
from fedskew.types import Bools, Floats, Ints, LocalJob

FEWEST = 5  # clients before anybody is compared with the others
FAR = 5.0  # robust standard deviations
LEAST_FACTOR = 1.3
SMALLEST = 1e-12


@dataclass(frozen=True)
class Usual:
    """What is usual among clients: nan if too few are known."""

    median: float
    limit: float  # times the median

    @property
    def most(self) -> float:
        """The largest value that is not extraordinary."""
        return self.median * self.limit


@dataclass(frozen=True)
class Heard:
    """Losses as they count, whose were refuted, and what that did to the book."""

    losses: Floats  # (n,)
    refuted: Bools  # (n,)
    book: Book


def usual(values: Floats, factor: float) -> Usual:
    """The median of known values, and how far above it is too far.

    >>> usual(np.array([1.0, 1.1, 0.9, 1.0, 50.0, np.nan]), 3.0).most.__round__(2)
    2.03
    >>> usual(np.array([1.0, 1.1, 0.9, 1.0]), 3.0)
    Usual(median=nan, limit=3.0)
    """
    known = values[~np.isnan(values)]
    if len(known) < FEWEST:
        return Usual(float("nan"), factor)
    logs = np.log(np.maximum(known, SMALLEST))
    spread = 1.4826 * np.median(np.abs(logs - np.median(logs)))
    far = np.clip(FAR * spread, np.log(LEAST_FACTOR), np.log(factor))
    return Usual(float(np.median(known)), float(np.exp(far)))


def merged(known: Floats, clients: Ints, heard: Floats) -> Floats:
    """(K,) what is known of everybody, with what was just heard."""
    everybody = known.copy()
    everybody[clients] = np.where(np.isnan(heard), everybody[clients], heard)
    return everybody


def believe(losses: Floats, clients: Ints, normal: Usual, book: Book) -> Floats:
    """(n,) losses that clients report without having trained, as they count: who was refuted
    last time counts as its update showed, times its trust.
    """
    shown = book.level[clients] * book.trust[clients]
    instead = np.where(np.isnan(shown), normal.most, shown * normal.median)
    with np.errstate(invalid="ignore"):
        return np.where(losses > normal.most, np.minimum(losses, instead), losses)


def judge(
    losses: Floats,
    pulls: Floats | None,
    clients: Ints,
    normal: Usual,
    book: Book,
    factor: float,
    job: LocalJob,
) -> Heard:
    """Losses that clients report with an update. ``pulls`` (n,) is how far each one's output bias
    moved per step; None: it shows nothing.
    """
    if pulls is None or job.optimizer != "sgd" or job.report_loss == "end":
        return _verdict(losses, clients, normal, book, losses > factor**2 * normal.median, None)
    ratio = merged(book.ratio, clients, losses / np.maximum(pulls, SMALLEST))
    book, common = replace(book, ratio=ratio), usual(ratio, factor)
    refuted = (losses > normal.most) & (ratio[clients] > common.most)
    return _verdict(losses, clients, normal, book, refuted, common.median * pulls)


def _verdict(
    losses: Floats,
    clients: Ints,
    normal: Usual,
    book: Book,
    refuted: Bools,
    shown: Floats | None,
) -> Heard:
    """What is refuted counts as its update shows it, at most as the median."""
    middle = np.full(len(losses), normal.median)
    instead = middle if shown is None else np.minimum(shown, middle)
    level = book.level.copy()
    level[clients] = np.where(refuted, instead / normal.median, np.nan)
    counted = np.where(refuted, np.minimum(losses, instead), losses)
    return Heard(counted, refuted, replace(book, level=level))
