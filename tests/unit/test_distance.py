"""Distances against scipy, brute force and each other."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist, cosine, jensenshannon
from scipy.stats import entropy, wasserstein_distance

from fedskew.distance import (
    DISTANCES,
    REFUSED,
    SCALING_METRICS,
    divergence,
    geometry,
    resolve,
    vector,
)
from fedskew.distance.divergence import (
    fill_zeros,
    js_div_pairwise,
    kl_directed_pairwise,
    kl_pairwise,
)
from fedskew.distance.psi import psi_features, psi_terms
from fedskew.errors import RecipeError, SignalError
from fedskew.types import Signal


def skewed_rows(num_clients: int, num_classes: int, seed: int = 0) -> np.ndarray:
    """Dirichlet rows with many exact zeros."""
    rng = np.random.default_rng(seed)
    rows = np.where(
        rng.random((num_clients, num_classes)) < 0.4,
        0,
        rng.dirichlet(np.full(num_classes, 0.5), num_clients),
    )
    rows[:, 0] += 1e-3
    return rows / rows.sum(axis=1, keepdims=True)


def disclosed(rows: np.ndarray) -> Signal:
    return Signal(rows, np.full(len(rows), 10.0), "disclosed")


# ---------------------------------------------------------------- parity

ROWS = skewed_rows(17, 6)
POSITIONS = np.arange(6)
BRUTE = {
    "hellinger": lambda p, q: np.sqrt(max(0, 1 - np.sqrt(p * q).sum())),
    "js_div": lambda p, q: jensenshannon(p, q) ** 2,
    "js_dist": jensenshannon,
    "w1_index": lambda p, q: wasserstein_distance(POSITIONS, POSITIONS, p, q),
    "w1_values": wasserstein_distance,
    "tv": lambda p, q: np.abs(p - q).sum() / 2,
    "cosine": cosine,
    "mse": lambda p, q: np.mean((p - q) ** 2),
    "euclidean": lambda p, q: np.linalg.norm(p - q),
    "manhattan": lambda p, q: np.abs(p - q).sum(),
    "chebyshev": lambda p, q: np.abs(p - q).max(),
    "mmd_linear": lambda p, q: ((p - q) ** 2).sum(),
}


@pytest.mark.parametrize("name", BRUTE)
def test_equals_the_definition_pair_by_pair(name: str) -> None:
    expected = np.array([[BRUTE[name](p, q) for q in ROWS] for p in ROWS])
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(DISTANCES[name](disclosed(ROWS)).pairwise, expected, atol=1e-12)


@pytest.mark.parametrize("zeros", ["clip", "add"])
def test_directed_kl_equals_scipy_entropy(zeros: str) -> None:
    filled = fill_zeros(ROWS, zeros=zeros, eps=1e-4)
    expected = np.array([[entropy(p, q) for q in filled] for p in filled])
    np.testing.assert_allclose(
        kl_directed_pairwise(ROWS, zeros=zeros, eps=1e-4), expected, atol=1e-12
    )
    np.testing.assert_allclose(
        kl_pairwise(ROWS, zeros=zeros, eps=1e-4), (expected + expected.T) / 2, atol=1e-12
    )


def test_zero_policies_by_hand() -> None:
    rows = np.array([[1.0, 0.0]])
    np.testing.assert_allclose(fill_zeros(rows, zeros="clip", eps=0.25), [[0.8, 0.2]])
    np.testing.assert_allclose(fill_zeros(rows, zeros="add", eps=0.25), [[1.25 / 1.5, 0.25 / 1.5]])
    assert fill_zeros(rows, zeros="none") is rows
    with pytest.raises(RecipeError, match="eps = 0"):
        fill_zeros(rows, eps=0.0)


def test_kl_without_a_policy_is_infinite_only_where_a_class_is_missing() -> None:
    rows = np.array([[0.5, 0.5, 0], [0.2, 0.8, 0], [0.2, 0.3, 0.5], [0, 0, 1]])
    directed = kl_directed_pairwise(rows, zeros="none")
    # both zero counts as no difference; a class more on the right is no trouble
    assert np.isfinite(directed[:2, :3]).all()
    assert np.isinf(directed[2, :2]).all()
    assert np.isinf(directed[:3, 3]).all()
    assert np.isinf(kl_pairwise(rows, zeros="none")[0, 3])
    both_ways = entropy([0.5, 0.5], [0.2, 0.8]) + entropy([0.2, 0.8], [0.5, 0.5])
    assert kl_pairwise(rows, zeros="none")[0, 1] == pytest.approx(both_ways / 2)


def test_kl_is_not_js() -> None:
    """Paper 002 shows the same rows for both; a correct implementation does not."""
    assert np.abs(kl_pairwise(ROWS) - js_div_pairwise(ROWS)).max() > 1


@pytest.mark.parametrize("numbers", [1, 300, 1700, 10**9])
def test_blocks_of_any_size_give_the_same(numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = js_div_pairwise(ROWS), kl_directed_pairwise(ROWS)
    monkeypatch.setattr(divergence, "_BLOCK_NUMBERS", numbers)
    np.testing.assert_array_equal(js_div_pairwise(ROWS), whole[0])
    np.testing.assert_array_equal(kl_directed_pairwise(ROWS), whole[1])


# ---------------------------------------------------------------- what tells metrics apart


def test_only_w1_index_sees_an_order_of_classes_and_only_w1_values_forgets_which_is_which() -> None:
    rows, order = skewed_rows(9, 5, seed=4), np.array([3, 0, 4, 1, 2])
    for name, distance in DISTANCES.items():
        before, after = (
            distance(disclosed(rows)).pairwise,
            distance(disclosed(rows[:, order])).pairwise,
        )
        assert np.allclose(before, after, atol=1e-9) == (name != "w1_index"), name
    shuffled = rows.copy()
    shuffled[0] = rows[0, order]
    assert DISTANCES["w1_values"](disclosed(np.vstack([rows[0], shuffled[0]]))).pairwise[0, 1] == 0
    one_class_each = disclosed(np.eye(4))
    assert not DISTANCES["w1_values"](one_class_each).pairwise.any()
    np.testing.assert_array_equal(DISTANCES["tv"](one_class_each).pairwise, 1 - np.eye(4))


def test_identities_between_metrics() -> None:
    pairs = {name: distance(disclosed(ROWS)).pairwise for name, distance in DISTANCES.items()}
    np.testing.assert_allclose(pairs["mmd_linear"], 6 * pairs["mse"], rtol=1e-15)
    np.testing.assert_allclose(pairs["manhattan"], 2 * pairs["tv"], rtol=1e-15)
    np.testing.assert_allclose(pairs["js_dist"] ** 2, pairs["js_div"], atol=1e-15)


def test_identical_rows_are_at_exactly_zero() -> None:
    rows = np.repeat(skewed_rows(5, 7, seed=2), 3, axis=0)
    same = np.kron(np.eye(5), np.ones((3, 3))).astype(bool)
    for name, distance in DISTANCES.items():
        pairwise = distance(disclosed(rows)).pairwise
        assert not pairwise[same].any(), name


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("name", ["emd", "EMD", "wasserstein"])
def test_emd_is_refused_and_its_three_readings_named(name: str) -> None:
    with pytest.raises(RecipeError) as refusal:
        resolve(name)
    assert all(reading in str(refusal.value) for reading in ("w1_index", "w1_values", "tv"))


def test_refused_names_are_no_distances_and_unknown_ones_get_a_hint() -> None:
    assert not set(REFUSED) & set(DISTANCES)
    with pytest.raises(RecipeError, match="Did you mean 'hellinger'"):
        resolve("helinger")


# ---------------------------------------------------------------- many clients


@pytest.mark.parametrize("name", sorted(DISTANCES))
def test_above_the_limit_points_or_a_refusal_that_names_what_scales(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    signal = disclosed(ROWS)
    exact = DISTANCES[name](signal).pairwise
    monkeypatch.setattr(geometry, "EXACT_PAIRWISE_LIMIT", len(ROWS) - 1)
    if name not in SCALING_METRICS:
        with pytest.raises(SignalError, match="hellinger"):
            DISTANCES[name](signal)
        return
    large = DISTANCES[name](signal)
    assert large.pairwise is None
    assert large.points is not None
    power = 2 if large.name == f"sqrt({name})" else 1
    np.testing.assert_allclose(cdist(large.points, large.points) ** power, exact, atol=1e-12)


def test_the_limit_itself_is_exact_and_one_more_client_is_not() -> None:
    limit = geometry.EXACT_PAIRWISE_LIMIT
    assert limit == 5_000
    rows = np.eye(2)[np.arange(limit + 1) % 2]
    assert DISTANCES["hellinger"](disclosed(rows)).pairwise is None
    at_limit = DISTANCES["hellinger"](disclosed(rows[:-1])).pairwise
    assert at_limit is not None
    assert at_limit.shape == (limit, limit)


def test_a_hundred_thousand_clients_keep_their_neighbours() -> None:
    rows = skewed_rows(100_000, 10)
    points = DISTANCES["hellinger"](disclosed(rows)).points
    assert points is not None
    some = np.array([3, 77, 99_999])
    np.testing.assert_allclose(
        cdist(points[some], points[some]),
        DISTANCES["hellinger"](disclosed(rows[some])).pairwise,
        atol=1e-12,
    )


# ---------------------------------------------------------------- border


def test_unknown_clients_are_nan_and_do_not_move_the_others() -> None:
    rows = np.vstack([ROWS[:4], np.zeros(6), ROWS[4:]])
    signal = Signal(rows, np.where(rows.sum(axis=1) > 0, 10.0, 0.0), "disclosed")
    known = np.delete(np.arange(len(rows)), 4)
    for name, distance in DISTANCES.items():
        found = distance(signal)
        assert not found.known[4]
        assert found.pairwise is not None
        assert np.isnan(found.pairwise[4]).all(), name
        np.testing.assert_array_equal(
            found.pairwise[np.ix_(known, known)], distance(disclosed(ROWS)).pairwise
        )
        if found.points is not None:
            assert np.isnan(found.points[4]).all()
            assert np.isfinite(found.points[known]).all()


@pytest.mark.parametrize("row", [[0.5, 0.4], [1.5, -0.5], [np.nan, 1.0]])
def test_a_row_that_is_no_distribution_is_named(row: list[float]) -> None:
    signal = Signal(
        np.array([[0, 0], [0.5, 0.5], row]),
        np.ones(3),
        "estimated",
        known=np.array([False, True, True]),
    )
    with pytest.raises(SignalError, match="client 2"):
        DISTANCES["tv"](signal)


def test_nobody_with_examples_is_an_error() -> None:
    with pytest.raises(SignalError, match="no client"):
        DISTANCES["psi"](disclosed(np.zeros((3, 2))))


@pytest.mark.parametrize("name", sorted(DISTANCES))
@pytest.mark.parametrize("shape", [(1, 4), (3, 1), (1, 1)])
def test_one_client_and_one_class_are_fine(name: str, shape: tuple[int, int]) -> None:
    found = DISTANCES[name](disclosed(np.full(shape, 1 / shape[1])))
    np.testing.assert_array_equal(found.pairwise, np.zeros((shape[0], shape[0])))


# ---------------------------------------------------------------- PSI


def test_psi_features_by_hand() -> None:
    rows, sizes = np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([10.0, 10.0])
    terms = psi_terms(rows, sizes)
    assert terms[0, 0] == pytest.approx(0.25 * np.log((1 + 1e-6) / (0.75 + 1e-6)))
    assert terms[1, 0] == pytest.approx(-0.25 * np.log((0.5 + 1e-6) / (0.75 + 1e-6)))
    # Of two clients the larger value becomes 1, the smaller -1. Class 0: 0.072 and 0.101. Class 1:
    # 3.107 and 0.173.
    np.testing.assert_allclose(psi_features(rows, sizes), [[1, -1, 1], [-1, 1, -1]])


def test_psi_columns_have_mean_zero_and_population_deviation_one() -> None:
    features = psi_features(ROWS, np.arange(1.0, 18.0))
    assert features.shape == (17, 7)
    np.testing.assert_allclose(features.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(features.std(axis=0), 1, atol=1e-12)


def test_psi_columns_that_differ_only_by_rounding_are_constant() -> None:
    """One class per client: every PSI_i is 12.43 to the last bit; no distance is near 1."""
    rows, sizes = np.repeat(np.eye(10), 10, axis=0), np.full(100, 7.0)
    assert np.ptp(psi_terms(rows, sizes).sum(axis=1)) > 0
    assert not psi_features(rows, sizes)[:, 0].any()
    assert not psi_features(np.full((6, 3), 1 / 3), np.arange(1.0, 7.0)).any()


def test_signed_psi_tells_absence_from_strong_presence() -> None:
    """g = 0.1, p = 0 gives 1.151 and p = 0.69 gives 1.140: alike unsigned, opposite signed."""
    first = np.r_[0.0, 0.69, np.full(18, (20 * 0.1 - 0.69) / 18)]
    rows = np.column_stack([first, 1 - first])
    plain, signed = (psi_features(rows, np.ones(20), signed=flag)[:, 1] for flag in (False, True))
    assert abs(plain[0] - plain[1]) < 0.1
    assert abs(signed[0] - signed[1]) > 3
    np.testing.assert_array_equal(
        psi_features(rows, np.ones(20), signed=True)[:, 0], psi_features(rows, np.ones(20))[:, 0]
    )


def test_psi_weighs_clients_by_size_and_ignores_a_class_nobody_has() -> None:
    rows = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    heavy = psi_terms(rows, np.array([99.0, 1.0])).sum(axis=1)
    assert heavy[0] < heavy[1]  # g is nearly client 0
    assert not psi_terms(rows, np.array([99.0, 1.0]))[:, 2].any()
    assert not DISTANCES["psi"](disclosed(rows)).points[:, 3].any()
    with pytest.raises(RecipeError, match="eps"):
        psi_terms(rows, np.ones(2), eps=0.0)


def test_vector_functions_take_any_points() -> None:
    points = np.array([[3.0, 0.0], [0.0, 4.0]])
    assert vector.euclidean_pairwise(points)[0, 1] == 5
    assert vector.manhattan_pairwise(points)[0, 1] == 7
    assert vector.chebyshev_pairwise(points)[0, 1] == 4
