"""Exact histograms and the checks every count passes."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedskew import signal
from fedskew.errors import SignalError
from fedskew.signal.counts import check_counts
from fedskew.signal.histogram import histogram


@given(
    hnp.arrays(
        np.int64, st.tuples(st.integers(1, 8), st.integers(1, 6)), elements=st.integers(0, 10**6)
    )
)
def test_rows_are_the_counts_over_their_sum(table: np.ndarray) -> None:
    signal = histogram(table)
    assert signal.source == "disclosed"
    assert signal.epsilon is None
    np.testing.assert_array_equal(signal.num_examples, table.sum(axis=1))
    np.testing.assert_array_equal(signal.known, table.sum(axis=1) > 0)
    np.testing.assert_allclose(signal.rows * signal.num_examples[:, None], table, rtol=1e-12)
    np.testing.assert_allclose(signal.rows.sum(axis=1), signal.known, atol=1e-12)


# those that take counts
SOURCES = {name: source for name, source in signal.SOURCES.items() if name != "estimated"}


@pytest.mark.parametrize("source", sorted(SOURCES))
@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([[1, 2], [3, -1]], r"client 1, class 1: the count is negative \(-1\)"),
        ([[1, 2.5], [-3, 1]], r"client 1, class 0: the count is negative"),
        ([[1, 2], [0.25, 0.5]], r"client 1, class 0: the count is a fraction \(0.25\)"),
        ([[1, 2], [3, np.nan]], r"client 1, class 1: the count is not a finite number"),
        ([[1, -np.inf]], r"client 0, class 1: the count is not a finite number"),
        ([[1, 1e300]], r"client 0, class 1: the count is too large"),
        ([["cat", "dog"]], "not a table of numbers"),
        ([[1, 2], [3]], "not a table of numbers"),
        ([1, 2, 3], "shape"),
        ([], "shape"),
        (np.zeros((3, 0)), "shape"),
    ],
)
def test_bad_counts_are_refused_by_client_and_class(
    source: str, table: object, message: str
) -> None:
    with pytest.raises(SignalError, match=message) as refusal:
        SOURCES[source](table)
    assert str(refusal.value).startswith(f"signal.{source}: ")


@pytest.mark.parametrize("source", sorted(SOURCES))
def test_one_client_one_class_and_empty_clients_are_fine(source: str) -> None:
    assert SOURCES[source]([[7]]).rows.tolist() == [[1.0]]
    signal = SOURCES[source]([[0, 0], [30, 30]])
    assert signal.known.tolist() == [False, True]
    assert signal.rows[0].tolist() == [0, 0]
    assert signal.num_examples[0] == 0


@pytest.mark.parametrize("source", sorted(SOURCES))
def test_the_signature_is_the_recipe_schema(source: str) -> None:
    first, *options = inspect.signature(SOURCES[source]).parameters.values()
    assert first.name == "counts"
    assert all(option.kind is inspect.Parameter.KEYWORD_ONLY for option in options)
    assert all(option.default is not inspect.Parameter.empty for option in options)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float32, np.bool_, object])
def test_any_kind_of_whole_number_is_taken(dtype: type) -> None:
    table = check_counts(np.array([[1, 0], [1, 1]], dtype))
    assert table.dtype == np.int64
    assert table.tolist() == [[1, 0], [1, 1]]
