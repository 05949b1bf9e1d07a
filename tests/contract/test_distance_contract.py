"""What every distance promises, over the whole registry."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.spatial.distance import cdist

from fedskew.distance import DISTANCES, SCALING_METRICS
from fedskew.types import Signal

METRICS = (
    "hellinger",
    "tv",
    "euclidean",
    "js_dist",
    "manhattan",
    "chebyshev",
    "w1_index",
    "w1_values",
    "psi",
)
SQUARED = ("cosine", "mse", "mmd_linear")  # the points give the square root

counts = hnp.arrays(
    np.int64, st.tuples(st.integers(1, 8), st.integers(1, 6)), elements=st.integers(0, 9)
)


def as_signal(table: np.ndarray) -> Signal:
    """The last client always has something, so that somebody is known."""
    table = table.copy()
    table[-1, 0] += 1
    sizes = table.sum(axis=1)
    return Signal(table / np.maximum(sizes, 1)[:, None], sizes, "disclosed")


every_distance = pytest.mark.parametrize("name", sorted(DISTANCES))


@every_distance
@given(table=counts)
@settings(max_examples=30, deadline=None)
def test_pairs_are_symmetric_finite_and_zero_on_the_diagonal(name: str, table: np.ndarray) -> None:
    signal = as_signal(table)
    geometry = DISTANCES[name](signal)
    assert geometry.name == name
    assert geometry.pairwise is not None
    np.testing.assert_array_equal(geometry.known, signal.known)
    pairs = geometry.pairwise[np.ix_(signal.known, signal.known)]
    assert pairs.dtype == np.float64
    assert np.isfinite(pairs).all()
    assert (pairs >= 0).all()
    np.testing.assert_array_equal(pairs, pairs.T)
    np.testing.assert_array_equal(np.diagonal(pairs), 0)


@every_distance
@given(table=counts)
@settings(max_examples=30, deadline=None)
def test_points_reproduce_the_pairs_or_their_root(name: str, table: np.ndarray) -> None:
    signal = as_signal(table)
    geometry = DISTANCES[name](signal)
    assert (geometry.points is not None) == (name in SCALING_METRICS)
    if geometry.points is not None:
        points, known = geometry.points[signal.known], signal.known
        power = 2 if name in SQUARED else 1
        np.testing.assert_allclose(
            cdist(points, points) ** power, geometry.pairwise[np.ix_(known, known)], atol=1e-9
        )


@pytest.mark.parametrize("name", METRICS)
@given(table=counts)
@settings(max_examples=30, deadline=None)
def test_metrics_obey_the_triangle_inequality(name: str, table: np.ndarray) -> None:
    signal = as_signal(table)
    pairs = DISTANCES[name](signal).pairwise[np.ix_(signal.known, signal.known)]
    detour = pairs[:, :, None] + pairs[None, :, :]  # i -> j -> k
    assert (pairs[:, None, :] <= detour + 1e-9).all()


def test_js_divergence_is_no_metric() -> None:
    """Shows that the test above can fail, and why js_dist has a name of its own."""
    pairs = DISTANCES["js_div"](
        Signal(np.array([[1, 0], [0.5, 0.5], [0, 1]]), np.ones(3), "disclosed")
    ).pairwise
    assert pairs[0, 2] > pairs[0, 1] + pairs[1, 2]


@every_distance
@given(table=counts, seed=st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_reordering_clients_reorders_the_pairs(name: str, table: np.ndarray, seed: int) -> None:
    signal = as_signal(table)
    order = np.random.default_rng(seed).permutation(len(table))
    moved = Signal(signal.rows[order], signal.num_examples[order], "disclosed")
    pairs = DISTANCES[name](signal).pairwise
    np.testing.assert_allclose(
        DISTANCES[name](moved).pairwise, pairs[np.ix_(order, order)], atol=1e-9
    )


@every_distance
def test_the_signature_is_the_recipe_schema(name: str) -> None:
    first, *options = inspect.signature(DISTANCES[name]).parameters.values()
    assert first.name == "signal"
    assert all(option.kind is inspect.Parameter.KEYWORD_ONLY for option in options)
    assert all(option.default is not inspect.Parameter.empty for option in options)
    assert DISTANCES[name].__name__ == name
    assert DISTANCES[name].__doc__
