"""Datasets from arrays and torch, and what is refused at the border."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedskew.data import Dataset, describe, from_arrays, from_torch, load
from fedskew.data.arrays import fit_scale
from fedskew.errors import DataError

RNG = np.random.default_rng(0)


def test_labels_of_any_kind_are_numbered() -> None:
    data = from_arrays(np.eye(4), ["b", "a", "b", "cc"], np.eye(4)[:1], ["a"])
    assert data.y.tolist() == [1, 0, 1, 2]
    assert data.y_test.tolist() == [0]
    assert data.class_names == ("a", "b", "cc")
    assert from_arrays(np.eye(3), [10, 30, 10]).class_names == ("10", "30")
    assert from_arrays(np.eye(2), ["a", "b"], np.eye(2)[:1], ["long name"]).class_names == (
        "a",
        "b",
        "long name",
    )


def test_given_num_classes_keeps_labels_and_allows_a_class_without_examples() -> None:
    assert from_arrays(np.eye(2), [0, 2], num_classes=4).num_classes == 4
    with pytest.raises(DataError, match="run from 0 to 4"):
        from_arrays(np.eye(2), [0, 4], num_classes=4)
    with pytest.raises(DataError, match="not integers"):
        from_arrays(np.eye(2), ["a", "b"], num_classes=2)


def test_arrays_are_kept_once_and_read_only() -> None:
    x = RNG.integers(0, 255, (5, 4, 4), dtype=np.uint8)
    data = from_arrays(x, np.arange(5))
    assert np.shares_memory(data.x, x)
    assert not data.x.flags.writeable
    assert data.kind == "image"


@pytest.mark.parametrize("shape", [(700, 6), (1500, 3, 4), (40, 5, 5, 3)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_scale_equals_numpy(shape: tuple[int, ...], dtype: type) -> None:
    x = RNG.integers(0, 255, shape).astype(dtype)
    mean, std = fit_scale(x)
    axes = None if len(shape) == 3 else tuple(range(len(shape) - 1))
    unit = 255 if dtype is np.uint8 else 1
    assert mean == pytest.approx(x.mean(axis=axes) / unit, rel=1e-5)
    assert std == pytest.approx(x.std(axis=axes, dtype=np.float64) / unit, rel=1e-5)
    assert mean.dtype == np.float32
    rows = np.array([3, 5, 8])
    assert fit_scale(x, rows)[0] == pytest.approx(x[rows].mean(axis=axes) / unit, rel=1e-5)


def test_a_constant_column_gets_std_1() -> None:
    assert fit_scale(np.full((4, 1), 7.0, np.float32))[1].tolist() == [1.0]


def test_tokens() -> None:
    data = from_arrays(np.array([[2, 1, 0], [5, 0, 0]]), [0, 1])
    assert (data.kind, data.vocab_size, data.mean) == ("tokens", 6, None)
    with pytest.raises(DataError, match="token ids run from -1"):
        from_arrays(np.array([[2, -1]]), [0])
    with pytest.raises(DataError, match="token ids run from 2 to 9"):
        from_arrays(np.array([[2, 9]]), [0], vocab_size=9)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"x": np.array([[1.0, np.nan]] * 3)}, "NaN"),
        ({"x": np.eye(3), "x_test": np.array([[np.inf] * 3]), "y_test": [0]}, "test rows hold NaN"),
        ({"y": [0, 1]}, "3 training rows but labels of shape"),
        ({"y": [[0], [1], [0]]}, "labels of shape"),
        ({"x": np.arange(3)}, "shape"),
        ({"x": np.array([["a"], ["b"], ["c"]])}, "x is <U1"),
        ({"x_test": np.zeros((2, 5)), "y_test": [0, 1]}, "test rows"),
        ({"mean": 0.5}, "only one of mean and std"),
        ({"mean": [0.5] * 4, "std": [1.0] * 4}, "do not fit x"),
        ({"mean": 0.0, "std": 0.0}, "not positive"),
        ({"columns": {"site": np.zeros(2)}}, "column site has shape"),
        ({"class_names": ("a",), "num_classes": 2}, "1 class names for 2"),
        ({"y": [0.0, np.nan, 1.0]}, "labels hold NaN"),
        ({"y_test": ["a"], "x_test": np.eye(3)[:1]}, "Use one type"),
    ],
)
def test_refusals(change: dict[str, Any], what: str) -> None:
    given: dict[str, Any] = {"x": np.eye(3), "y": [0, 1, 0], **change}
    with pytest.raises(DataError, match=what):
        from_arrays(
            given.pop("x"),
            given.pop("y"),
            given.pop("x_test", None),
            given.pop("y_test", None),
            **given,
        )


class Tensor:
    """Looks like a torch tensor from the outside: numpy can read it, nothing else is promised."""

    def __init__(self, value: np.ndarray) -> None:
        self.value = value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.value


class Images:
    """A map-style dataset with channels first."""

    def __init__(self, count: int, channels: int) -> None:
        self.rows = RNG.random((count, channels, 8, 8)).astype(np.float32)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        if i >= len(self.rows):
            raise IndexError(i)
        return Tensor(self.rows[i]), Tensor(np.array(i % 2))


def test_from_torch_moves_channels_last() -> None:
    colour, grey = Images(6, 3), Images(4, 1)
    data = from_torch(colour)
    assert data.x.shape == (6, 8, 8, 3)
    assert (data.x[2, :, :, 1] == colour.rows[2, 1]).all()
    assert data.y.tolist() == [0, 1, 0, 1, 0, 1]
    assert data.mean is not None
    assert data.mean.shape == (3,)
    assert from_torch(grey, test=grey).x_test.shape == (4, 8, 8, 1)


def test_from_torch_with_real_torch() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rows = torch.utils.data.TensorDataset(
        torch.arange(12.0).reshape(4, 3), torch.tensor([1, 0, 1, 0])
    )
    data = from_torch(rows)
    assert data.x.tolist() == np.arange(12.0).reshape(4, 3).tolist()
    assert data.y.tolist() == [1, 0, 1, 0]


def test_from_torch_refuses_ragged_and_empty() -> None:
    with pytest.raises(DataError, match="differ in shape"):
        from_torch([(np.zeros(2), 0), (np.zeros(3), 1)])
    with pytest.raises(DataError, match="empty"):
        from_torch([])


def test_the_data_package_does_not_import_torch() -> None:
    import subprocess
    import sys

    slow = ("torch", "flwr", "pandas", "sklearn", "PIL")
    code = f"import sys, fedskew.data; sys.exit(any(m in sys.modules for m in {slow}))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_recipes_and_digits_are_read_without_the_slow_imports() -> None:
    """They are 1 s of CPU time; a fleet's client needs none and starts anew for every message."""
    import subprocess
    import sys

    code = """import sys, fedskew.recipe as r, fedskew.experiment.world as w
w.dataset_of(r.resolve(r.load("fedlecc")))
slow = ("scipy.spatial", "scipy.sparse", "scipy.optimize", "scipy.special", "sklearn")
print([m for m in slow if m in sys.modules])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_digits_and_describe() -> None:
    digits = load("digits")
    facts = describe(digits)
    assert (facts["examples"], facts["test_examples"], facts["shape"], facts["classes"]) == (
        1797,
        0,
        (8, 8),
        10,
    )
    assert sum(facts["class_counts"].values()) == 1797
    assert facts["bytes"] == 1797 * 64 + 1797 * 8
    standardised = (digits.x / 255 - digits.mean) / digits.std
    assert abs(standardised.mean()) < 1e-4
    assert standardised.std() == pytest.approx(1.0, abs=1e-4)


def test_dataset_can_be_made_by_hand() -> None:
    data = Dataset(
        "mine",
        np.eye(2, dtype=np.float32),
        np.array([0, 1]),
        np.zeros((0, 2), np.float32),
        np.zeros(0),
        2,
        ("a", "b"),
    )
    assert data.kind == "table"
    assert data.y_test.dtype == np.int64
