"""The four layouts of CIFAR-10 give the same arrays; a Python batch cannot run code."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedskew.data import load
from fedskew.data.sources import cifar10
from fedskew.errors import DataError

RNG = np.random.default_rng(0)
# five batches and the test batch, eight images each
X = RNG.integers(0, 256, (6, 8, 32, 32, 3), dtype=np.uint8)
Y = RNG.integers(0, 10, (6, 8))


def md5(array: np.ndarray) -> str:
    return hashlib.md5(np.ascontiguousarray(array, np.uint8).data).hexdigest()


@pytest.fixture(autouse=True)
def _small_cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSKEW_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(cifar10, "MD5", (md5(X[:5]), md5(X[5])))
    monkeypatch.setattr(cifar10, "LABEL_MD5", (md5(Y[:5]), md5(Y[5])))


def channels_first(images: np.ndarray) -> np.ndarray:
    return images.transpose(0, 3, 1, 2).reshape(len(images), -1)


def write_png(folder: Path) -> None:
    for name, x in zip(cifar10.BATCHES, X, strict=True):
        Image.fromarray(x.reshape(8, 1024, 3)).save(folder / f"{name}.png")
    (folder / "train_lables.json").write_text(json.dumps(Y[:5].ravel().tolist()))
    (folder / "test_lables.json").write_text(json.dumps(Y[5].tolist()))


def write_bin(folder: Path) -> None:
    for name, x, y in zip(cifar10.BATCHES, X, Y, strict=True):
        np.concatenate([y[:, None].astype(np.uint8), channels_first(x)], axis=1).tofile(
            folder / f"{name}.bin"
        )


def write_python(folder: Path) -> None:
    for name, x, y in zip(cifar10.BATCHES, X, Y, strict=True):
        with (folder / name).open("wb") as file:
            pickle.dump({b"data": channels_first(x), b"labels": y.tolist()}, file, protocol=2)


def write_npz(folder: Path) -> None:
    train, test = X[:5].reshape(-1, 32, 32, 3), X[5]
    np.savez(
        folder / "cifar10.npz",
        x_train=train,
        y_train=Y[:5].reshape(-1, 1),
        x_test=test,
        y_test=Y[5][:, None],
    )


@pytest.mark.parametrize("write", [write_png, write_bin, write_python, write_npz])
def test_every_layout_gives_the_same_arrays(tmp_path: Path, write: object) -> None:
    assert callable(write)
    write(tmp_path)
    data = load("cifar10", folder=tmp_path)
    assert (data.x == X[:5].reshape(-1, 32, 32, 3)).all()
    assert (data.x_test == X[5]).all()
    assert data.y.tolist() == Y[:5].ravel().tolist()
    assert data.mean is not None
    assert data.mean.shape == (3,)


def test_swapped_labels_are_noticed(tmp_path: Path) -> None:
    write_png(tmp_path)
    (tmp_path / "train_lables.json").write_text(json.dumps(Y[:5].ravel()[::-1].tolist()))
    with pytest.raises(DataError, match="train labels have MD5"):
        load("cifar10", folder=tmp_path)


@pytest.mark.parametrize("write", [write_png, write_bin, write_python])
def test_a_cut_off_batch_is_a_data_error(tmp_path: Path, write: object) -> None:
    assert callable(write)
    write(tmp_path)
    path = next(p for p in sorted(tmp_path.iterdir()) if p.name.startswith("data_batch_3"))
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(DataError, match="data cifar10"):
        load("cifar10", folder=tmp_path)


def test_a_python_batch_cannot_run_code(tmp_path: Path) -> None:
    write_python(tmp_path)

    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "harm"),)

    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({b"data": Evil()}, protocol=2))
    with pytest.raises(DataError, match="is not allowed"):
        load("cifar10", folder=tmp_path)
    assert not (tmp_path / "harm").exists()
