"""Distance: how far clients are from each other, and how skewed all are together.

A distance is a function ``distance(signal, *, options) -> Geometry``.

One file per family: :mod:`divergence` (made for distributions), :mod:`vector` (plain vectors),
:mod:`psi` (deviation from the whole federation), :mod:`skew` (one number for everybody);
:mod:`geometry` decides between all pairs and points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from fedskew.distance.divergence import hellinger, js_dist, js_div, kl, tv, w1_index, w1_values
from fedskew.distance.geometry import EXACT_PAIRWISE_LIMIT, SCALING_METRICS
from fedskew.distance.psi import psi
from fedskew.distance.skew import SkewFigures, skew_figures
from fedskew.distance.vector import chebyshev, cosine, euclidean, manhattan, mmd_linear, mse
from fedskew.errors import RecipeError, did_you_mean
from fedskew.types import Geometry

DISTANCES: dict[str, Callable[..., Geometry]] = {
    "chebyshev": chebyshev,
    "cosine": cosine,
    "euclidean": euclidean,
    "hellinger": hellinger,
    "js_dist": js_dist,
    "js_div": js_div,
    "kl": kl,
    "manhattan": manhattan,
    "mmd_linear": mmd_linear,
    "mse": mse,
    "psi": psi,
    "tv": tv,
    "w1_index": w1_index,
    "w1_values": w1_values,
}

_EMD = (
    "means three different things. Say which: w1_index (classes on a line 0..C-1), "
    "w1_values (proportions as samples, as in FedArtML) "
    "or tv (every two classes equally far apart, the honest one for unordered classes)"
)
_JS = (
    "means two things. Say which: js_div (the divergence, paper 002) "
    "or js_dist (its square root, scipy's)"
)

REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "emd": _EMD,
        "earth_mover": _EMD,
        "wasserstein": _EMD,
        "w1": _EMD,
        "js": _JS,
        "jensen_shannon": _JS,
    }
)
"""Names that would force a guess, and what to say instead."""


def resolve(name: str) -> Callable[..., Geometry]:
    """The distance of this name; an ambiguous name is refused with its readings.

    >>> resolve("tv").__name__
    'tv'
    >>> resolve("js")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fedskew.errors.RecipeError: distance: 'js' means two things. Say which: js_div ... or js_dist...
    """
    if name in DISTANCES:
        return DISTANCES[name]
    if name.lower() in REFUSED:
        raise RecipeError("distance", f"'{name}' {REFUSED[name.lower()]}")
    raise RecipeError("distance", f"no distance is called '{name}'", did_you_mean(name, DISTANCES))


__all__ = [
    "DISTANCES",
    "EXACT_PAIRWISE_LIMIT",
    "REFUSED",
    "SCALING_METRICS",
    "SkewFigures",
    "resolve",
    "skew_figures",
]
