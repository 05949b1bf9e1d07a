"""Signal: what the server knows of every client's label mix.

A source is a function ``source(counts, *, options) -> Signal``.

``histogram`` is disclosed exactly, ``private`` with noise added at the client; ``estimated``
guesses it from a probe, so it is ``source(updates, *, options)``: the loop looks at the name of the
first argument. :mod:`quality` says how good a guess is.
"""

from __future__ import annotations

from collections.abc import Callable

from fedskew.signal.estimated import estimated
from fedskew.signal.estimators import Estimator, estimate
from fedskew.signal.histogram import histogram
from fedskew.signal.private import private, read_releases, release
from fedskew.signal.quality import EstimationQuality, estimation_quality
from fedskew.types import Signal

SOURCES: dict[str, Callable[..., Signal]] = {
    "histogram": histogram,
    "private": private,
    "estimated": estimated,
}

__all__ = [
    "SOURCES",
    "EstimationQuality",
    "Estimator",
    "estimate",
    "estimated",
    "estimation_quality",
    "read_releases",
    "release",
]
