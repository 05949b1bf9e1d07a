"""The loaders on the real files of ../shared/data, and the real packages if they were fetched
before. Nothing is downloaded.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from fedskew.data import DATASETS, Dataset, build_shards, is_cached, load
from fedskew.data.arrays import fit_scale
from fedskew.data.sources import cifar10, idx
from fedskew.data.sources.tables import ACS_FEATURES
from fedskew.data.sources.texts import read_texts
from fedskew.errors import DataError

FOLDER = Path(__file__).resolve().parents[4] / "shared" / "data"
needs_shared = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"{FOLDER} is not there")


def from_shared(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    monkeypatch.setenv("FEDSKEW_DATA", str(tmp_path))
    data = load(name, folder=FOLDER)
    info = DATASETS[name]
    assert (len(data.y), len(data.y_test), data.num_classes) == (
        info.examples,
        info.test_examples,
        info.classes,
    )
    assert data.default_model == info.default_model
    return data


def fetched(name: str) -> Dataset:
    if not is_cached(name):
        pytest.skip(f"{name} is not in the cache; run fedskew.data.fetch({name!r}) once")
    return load(name)


@needs_shared
def test_acsincome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = from_shared("acsincome", tmp_path, monkeypatch)
    assert data.x.shape == (90_636, 10)
    assert data.y.mean() == pytest.approx(0.3326, abs=5e-5)
    assert len(np.unique(data.columns["STATE"])) == 14
    assert data.columns["PUMA"][0] == "DE-00103"
    states = np.array([name.split("-")[0] for name in data.columns["PUMA"]])
    assert (states == data.columns["STATE"]).all()
    assert data.x[0].tolist() == [18, 1, 18, 5, 4055, 42, 17, 20, 2, 1]
    assert "PINCP" not in ACS_FEATURES
    assert data.mean is not None
    assert data.std is not None
    assert ((data.x - data.mean) / data.std).std(axis=0) == pytest.approx(np.ones(10), abs=1e-3)
    shards = build_shards(data, clients=0, partition="natural", options={"column": "STATE"})
    assert shards.train.names[:3] == ("DE", "HI", "ID")
    assert shards.test is not None
    assert (shards.train.sizes + shards.test.sizes).tolist()[:3] == [4713, 7731, 8265]


@needs_shared
def test_serengeti(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = from_shared("serengeti", tmp_path, monkeypatch)
    assert data.x.shape == (20_170, 6)
    assert data.class_names[0] == "blank"
    assert len(np.unique(data.columns["site"])) == 225
    first = data.x[0]
    assert (data.columns["site"][0], first[1], first[2]) == ("H01", 7.0, 1.0)


@needs_shared
def test_sent140(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = from_shared("sent140", tmp_path, monkeypatch)
    assert (data.x.shape, data.x.dtype, data.vocab_size) == ((100_000, 40), np.int32, 10_000)
    assert np.bincount(data.y).tolist() == [50_000, 50_000]
    assert np.bincount(data.y_test).tolist() == [177, 182]
    assert 50_000 < data.words < 200_000
    made = build_shards(data, clients=20, options={"alpha": 5.0}, client_test="matched")
    assert int(made.x.max()) == 9_999
    assert made.x_test.max() < 10_000
    assert ((made.x == 0) == (data.x == 0)).all()
    assert (data.x[:, 0] > 0).all()


@needs_shared
def test_amazon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = from_shared("amazon", tmp_path, monkeypatch)
    assert data.x.shape == (9046, 100)
    assert np.bincount(data.y).tolist() == [2882, 1434, 2014, 1559, 602, 555]
    assert len(read_texts("amazon", FOLDER).texts) == 9046


@needs_shared
def test_nih_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = from_shared("nih_images", tmp_path, monkeypatch)
    assert (data.x.shape, data.x.dtype) == ((1421, 64, 64), np.uint8)
    assert data.class_names[3] == "Infiltration"
    assert np.bincount(data.y).tolist() == [
        192,
        72,
        156,
        417,
        60,
        106,
        18,
        90,
        64,
        18,
        55,
        94,
        62,
        17,
    ]


@needs_shared
def test_a_truncated_parquet_file_is_a_data_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDSKEW_DATA", str(tmp_path / "cache"))
    original = next(FOLDER.glob("acsincome*.parquet")).read_bytes()
    (tmp_path / "acsincome_cut.parquet").write_bytes(original[:-500])
    with pytest.raises(DataError, match="cannot be read"):
        load("acsincome", folder=tmp_path)
    (tmp_path / "acsincome_second.parquet").write_bytes(original)
    with pytest.raises(DataError, match="several files fit"):
        load("acsincome", folder=tmp_path)
    assert not is_cached("acsincome")


@pytest.mark.parametrize("name", ["mnist", "fmnist"])
def test_fetched_idx_data(name: str) -> None:
    data = fetched(name)
    parts = (data.x, data.y.astype(np.uint8), data.x_test, data.y_test.astype(np.uint8))
    assert tuple(idx.idx_md5(part) for part in parts) == idx.MD5[name]
    assert [float(v) for v in fit_scale(data.x)] == pytest.approx(idx.SCALE[name], abs=5e-5)
    if name == "mnist":
        assert data.y[:6].tolist() == [5, 0, 4, 1, 9, 2]


def test_fetched_cifar10() -> None:
    data = fetched("cifar10")
    assert hashlib.md5(data.x.data).hexdigest() == cifar10.MD5[0]
    assert hashlib.md5(data.x_test.data).hexdigest() == cifar10.MD5[1]
    assert np.bincount(data.y).tolist() == [5000] * 10
    assert np.bincount(data.y_test).tolist() == [1000] * 10
    # the training part is checked by its MD5; the test part is near it
    mean, std = fit_scale(data.x_test)
    assert mean == pytest.approx(np.array(cifar10.MEAN), abs=0.005)
    assert std == pytest.approx(np.array(cifar10.STD), abs=0.002)


def test_fetched_nih_labels() -> None:
    data = fetched("nih_labels")
    assert data.x.shape == (30_963, 0)
    assert np.bincount(data.y).max() == 9547
    shards = build_shards(data, clients=20, options={"alpha": 0.2}, client_test="none")
    assert shards.label_counts.shape == (20, 14)
