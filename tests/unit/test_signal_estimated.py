"""Estimators on updates built from the first-order formula, where the right answer is known."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from scipy.optimize import minimize

from fedskew.errors import SignalError
from fedskew.signal.estimators import (
    Estimator,
    bacsa_initial_weight,
    choose_estimator,
    estimate,
    refresh,
)

METHODS = get_args(Estimator)
CLASSES, WIDTH, LR, STEPS = 6, 8, 0.01, 20
UNIFORM = np.full((CLASSES, CLASSES), 1 / CLASSES)


def first_order_update(
    rows: np.ndarray, softmax: np.ndarray = UNIFORM
) -> tuple[np.ndarray, np.ndarray]:
    """Changes of weights (n, C, L) and bias (n, C) after small SGD steps: lr * steps * (p - mean
    softmax), times the features.

    ``softmax`` row c is what the model says on class c. Features are positive, as after a ReLU.
    """
    pull = LR * STEPS * rows @ (np.eye(CLASSES) - softmax)
    features = 0.5 + np.random.default_rng(1).random(WIDTH)
    return pull[:, :, None] * features, pull


def run(method: str, weights: np.ndarray, bias: np.ndarray, **more: object) -> np.ndarray:
    options = {"lr": LR, "steps": STEPS, "confusion": UNIFORM, **more}
    if method.endswith("_raw"):
        # the start that raw methods need
        weights = weights + bacsa_initial_weight(64, WIDTH, CLASSES)
    return estimate(weights, bias, method=method, **options)


@pytest.fixture
def rows() -> np.ndarray:
    return np.random.default_rng(0).dirichlet(np.full(CLASSES, 0.5), 12)


@pytest.mark.parametrize("method", METHODS)
def test_one_class_clients_are_recognised(method: str) -> None:
    found = run(method, *first_order_update(np.eye(CLASSES)))
    np.testing.assert_array_equal(found.argmax(axis=1), np.arange(CLASSES))
    if not method.endswith("_raw"):
        np.testing.assert_allclose(found, np.eye(CLASSES), atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_rows_are_distributions(method: str, rows: np.ndarray) -> None:
    found = run(method, *first_order_update(rows))
    assert found.shape == rows.shape
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_permuting_class_ids_permutes_the_estimate(method: str, rows: np.ndarray) -> None:
    softmax = np.random.default_rng(3).dirichlet(np.full(CLASSES, 5.0), CLASSES)
    order = np.array([4, 2, 0, 5, 1, 3])
    weights, bias = first_order_update(rows, softmax)
    found = run(method, weights, bias, confusion=softmax)
    moved = run(method, weights[:, order], bias[:, order], confusion=softmax[np.ix_(order, order)])
    np.testing.assert_allclose(moved, found[:, order], atol=1e-9)


def test_bias_linear_is_exact_to_first_order(rows: np.ndarray) -> None:
    _, bias = first_order_update(rows)
    np.testing.assert_allclose(estimate(None, bias, lr=LR, steps=STEPS), rows, atol=1e-12)
    twice = np.arange(1, len(rows) + 1) * STEPS  # each client its own number of steps
    longer = bias * (twice / STEPS)[:, None]
    np.testing.assert_allclose(estimate(None, longer, lr=LR, steps=twice), rows, atol=1e-12)


def test_bias_linear_takes_another_starting_softmax(rows: np.ndarray) -> None:
    start = np.array([0.3, 0.1, 0.1, 0.2, 0.2, 0.1])
    _, bias = first_order_update(rows, np.tile(start, (CLASSES, 1)))
    np.testing.assert_allclose(
        estimate(None, bias, lr=LR, steps=STEPS, initial_softmax=start), rows, atol=1e-12
    )
    assert np.abs(estimate(None, bias, lr=LR, steps=STEPS) - rows).max() > 0.05


def test_rlu_is_exact_where_the_softmax_depends_on_the_class(rows: np.ndarray) -> None:
    softmax = 0.5 * np.eye(CLASSES) + 0.5 * np.random.default_rng(5).dirichlet(
        np.ones(CLASSES), CLASSES
    )
    _, bias = first_order_update(rows, softmax)
    options = {"lr": LR, "steps": STEPS}
    np.testing.assert_allclose(
        estimate(None, bias, method="rlu", confusion=softmax, **options), rows, atol=1e-8
    )
    per_client = np.tile(softmax, (len(rows), 1, 1))
    np.testing.assert_allclose(
        estimate(None, bias, method="rlu", confusion=per_client, **options), rows, atol=1e-8
    )
    # bias_linear is not
    assert np.abs(estimate(None, bias, **options) - rows).sum(axis=1).mean() > 0.1


def test_rlu_minimises_over_the_simplex() -> None:
    """Against a general optimiser, on noisy updates whose unconstrained answer lies outside."""
    rng = np.random.default_rng(7)
    softmax = rng.dirichlet(np.ones(CLASSES), CLASSES)
    pull = rng.normal(size=(5, CLASSES)) / 3
    found = estimate(None, pull * LR * STEPS, method="rlu", lr=LR, steps=STEPS, confusion=softmax)

    def misfit(p: np.ndarray, client: int) -> float:
        return float(np.sum((pull[client] - p @ (np.eye(CLASSES) - softmax)) ** 2))

    on_simplex = {"type": "eq", "fun": lambda p: p.sum() - 1}
    for client in range(5):
        start = np.full(CLASSES, 1 / CLASSES)
        best = minimize(
            misfit,
            start,
            (client,),
            "SLSQP",
            bounds=[(0, 1)] * CLASSES,
            constraints=on_simplex,
            tol=1e-12,
        )
        assert misfit(found[client], client) <= best.fun + 1e-9
        np.testing.assert_allclose(found[client], best.x, atol=1e-4)
    assert (found == 0).any()


def test_eq7_squares_and_its_root_does_not() -> None:
    weights = np.array([[[3.0, 3.0], [1.0, 1.0], [-5.0, -5.0]]])
    np.testing.assert_allclose(estimate(weights, method="eq7_delta"), [[0.9, 0.1, 0]])
    np.testing.assert_allclose(estimate(weights, method="sqrt_delta"), [[0.75, 0.25, 0]])
    mixed = np.array([[[2.0, -9.0], [1.0, 1.0]]])  # A = (4 + 0) / 2, (1 + 1) / 2
    np.testing.assert_allclose(estimate(mixed, method="eq7_raw"), [[2 / 3, 1 / 3]])


@pytest.mark.parametrize("method", METHODS)
def test_an_update_that_says_nothing_gives_the_uniform_row(method: str) -> None:
    nothing = np.zeros((1, CLASSES, WIDTH)), np.zeros((1, CLASSES))
    np.testing.assert_allclose(run(method, *nothing), 1 / CLASSES, atol=1e-9)
    sinking = -np.ones((1, CLASSES, WIDTH)), -np.ones((1, CLASSES))
    assert run(method, *sinking).sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weights": None, "method": "sqrt_delta"}, "needs the output weights"),
        ({"bias": None}, "use sqrt_delta"),
        ({"lr": None}, "needs bias, lr and steps"),
        ({"steps": 0}, "above 0"),
        ({"method": "rlu"}, "mean softmax per class"),
        ({"bias": np.array([[0.0, 1], [np.nan, 0]])}, "bias of client 1"),
        ({"weights": np.full((2, 2, 3), np.inf), "method": "eq7_delta"}, "weights of client 0"),
        ({"weights": np.ones((2, 2)), "method": "eq7_delta"}, "shape"),
    ],
)
def test_missing_or_broken_updates_are_named(arguments: dict[str, object], message: str) -> None:
    good = {"weights": np.ones((2, 2, 3)), "bias": np.zeros((2, 2)), "lr": LR, "steps": STEPS}
    with pytest.raises(SignalError, match=message):
        estimate(**{**good, **arguments})


def test_small_parts() -> None:
    assert bacsa_initial_weight(3072, 192, 10) == pytest.approx(4.1e-4, rel=0.01)
    assert choose_estimator(has_bias=False, plain_sgd=True) == "sqrt_delta"
    np.testing.assert_allclose(refresh(np.array([[1.0, 0]]), np.array([[0.0, 1]])), [[0.5, 0.5]])
