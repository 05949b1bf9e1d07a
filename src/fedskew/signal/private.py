"""Clients add calibrated noise to label counts before sending: differential privacy, once.

docs/methods.md 0.5. Each client sends its count of every class plus independent noise of scale
sensitivity / epsilon, drawn by OpenDP; the server clips at 0 and normalises, which costs no
privacy. One release: nothing is repeated over rounds.

- **All classes get noise**, also those a client does not have. (HACCS's public code adds noise to
  the present ones only; the zeros that stay zero then reveal which classes a client holds.)
- **Neighbours.** ``add_remove``: two datasets differ by one example more or less, one count changes
  by 1, sensitivity 1. ``replace_one``: one example changes its class, two counts change by 1,
  sensitivity 2. If the server also learns the exact number of examples (for weighted averaging it
  does), ``replace_one`` is the relation that still means something.
- **Mechanisms.** ``geometric`` (default) is the Laplace mechanism on whole numbers (Ghosh,
  Roughgarden, Sundararajan 2012): counts are integers, its samples are exact, and there is no
  rounding of floats for an attacker to read. ``laplace`` is the textbook's, on floats; OpenDP
  samples that on a very fine grid, so it is safe as well.
- **Not seeded, on purpose.** OpenDP draws from the operating system's secure source and takes no
  seed: whoever knew a seed could subtract the noise. So two runs differ; keep the released counts
  if a run must be repeated.

Differs from the textbook: a client with no examples stays out (``known`` False). That it is empty
is thus not hidden, but the server knows it anyway, from its size and because it never trains.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from fedskew.errors import RecipeError
from fedskew.signal.counts import check_counts, proportions
from fedskew.types import Bools, Floats, Signal

Mechanism: TypeAlias = Literal["geometric", "laplace"]
Neighbours: TypeAlias = Literal["add_remove", "replace_one"]
SENSITIVITY = {"add_remove": 1, "replace_one": 2}  # L1, of one client's count vector


def private(
    counts: ArrayLike,
    *,
    mechanism: Mechanism = "geometric",
    epsilon: float = 1.0,
    neighbours: Neighbours = "add_remove",
) -> Signal:
    """Label proportions from noisy counts; what a server sees after everyone's :func:`release`.

    The noise of all clients is drawn in one call over all K x C counts. That is the same as K
    separate releases: every count gets its own independent draw at the same scale, and one example
    lies at one client, so it changes the long vector by no more than it changes that client's part.
    """
    table = check_counts(counts, "signal.private")
    noisy = _noise(table, mechanism, epsilon, neighbours)
    return read_releases(noisy, epsilon=epsilon, known=table.sum(axis=1) > 0)


def release(
    counts: ArrayLike,
    *,
    mechanism: Mechanism = "geometric",
    epsilon: float = 1.0,
    neighbours: Neighbours = "add_remove",
) -> Floats:
    """What one client sends: its (C,) counts plus noise on every class, unclipped.

    Runs at the client.
    """
    table = check_counts(np.asarray(counts)[None, :], "signal.private")
    noisy: Floats = _noise(table, mechanism, epsilon, neighbours)[0]
    return noisy


def read_releases(noisy: Floats, *, epsilon: float, known: Bools | None = None) -> Signal:
    """What the server makes of (K, C) released counts.

    Clipped at 0, normalised, uniform where nothing is left.

    >>> read_releases(np.array([[3., -1., 1.], [-2., 0., -1.]]), epsilon=1.0).rows.round(2).tolist()
    [[0.75, 0.0, 0.25], [0.33, 0.33, 0.33]]
    """
    known = np.ones(len(noisy), np.bool_) if known is None else known
    kept = np.where(known[:, None], np.maximum(noisy, 0), 0)
    sizes = kept.sum(axis=1)
    rows = proportions(kept)
    rows[known & (sizes == 0)] = 1 / noisy.shape[1]
    return Signal(rows, sizes, "private", epsilon, known)


def _noise(
    table: np.ndarray, mechanism: Mechanism, epsilon: float, neighbours: Neighbours
) -> Floats:
    measure = _measurement(mechanism, epsilon, SENSITIVITY[neighbours])
    values = table.astype(np.float64 if mechanism == "laplace" else np.int64).ravel().tolist()
    return np.asarray(measure(values), np.float64).reshape(table.shape)


def _measurement(
    mechanism: Mechanism, epsilon: float, sensitivity: int
) -> Callable[[list[Any]], list[Any]]:
    """An OpenDP measurement on counts, at most ``epsilon``-private at this L1 sensitivity."""
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise RecipeError(
            "signal.private", f"epsilon = {epsilon}", "Give a number above 0, for example 1.0"
        )
    dp = _opendp()
    if mechanism == "laplace":
        space = (dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l1_distance(T=float))
        distance = float(sensitivity)
    else:
        space = (dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64"))
        distance = sensitivity
    scale = sensitivity / epsilon
    # on integers this is the geometric mechanism
    measurement = dp.m.make_laplace(*space, scale=scale)
    # sensitivity / epsilon was rounded down: take the next float up
    while measurement.map(distance) > epsilon:
        scale = math.nextafter(scale, math.inf)
        measurement = dp.m.make_laplace(*space, scale=scale)
    return measurement  # type: ignore[no-any-return]


def _opendp() -> Any:
    try:
        import opendp.prelude as dp
    except ImportError as error:
        raise RecipeError(
            "signal.private", "OpenDP is not installed", "Run: pip install 'fedskew[private]'"
        ) from error
    dp.enable_features("contrib")
    return dp
