"""Files from elsewhere, damaged or made to harm: one error of ours, never a traceback."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import struct
import tarfile
import zipfile
import zlib

import numpy as np
import pytest

pytest.importorskip("pyarrow")
import pyarrow as pa
import pyarrow.parquet as pq

from fedskew import data, recipe
from fedskew.data.packages import unpack
from fedskew.data.sources import cifar10, idx, nih, tables
from fedskew.errors import DataError, FedskewError, RecipeError
from fedskew.measure.tables import read_counts
from fedskew.runtime.faults import read_trace

COUNTS = b"client,label,count\na,x,1\nb,y,2\nc,x,5\n"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDSKEW_DATA", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDSKEW_DATA_FOLDER", raising=False)


def only_ours(action) -> str:
    """Whatever it says is short, printable and an error of ours."""
    said = ""
    try:
        action()
    except FedskewError as error:
        said = str(error)
    assert not said or said.isprintable()
    assert len(said) < 7000
    return said


def flips(raw: bytes, each: int = 1):
    rng = np.random.default_rng(7)
    for place in range(0, len(raw), each):
        changed = bytearray(raw)
        changed[place] ^= 1 << int(rng.integers(8))
        yield bytes(changed)


# ---------------------------------------------------------------- TOML


HOSTILE_TOML = [
    "x = " + "[" * 5000 + "]" * 5000,
    "x = " + "{a=" * 3000 + "1" + "}" * 3000,
    "[data" + ".a" * 5000 + "]",
    "[run]\nrounds = " + "9" * 5000,
    "[run]\nrounds = 0x" + "f" * 5000,
    "[local]\nlr = 0x" + "f" * 5000,
    "[run]\nrounds = " + "9" * 30,
    'name = "a\\u001b[31m"',
    'name = "a\\nb"',
    "name = ''",
    "name = '" + "x" * 999 + "'",
    "name = 3",
]


@pytest.mark.parametrize("text", HOSTILE_TOML, ids=lambda text: text[:24])
def test_a_hostile_recipe_file_is_refused(text, tmp_path):
    (tmp_path / "r.toml").write_text(text)
    with pytest.raises(RecipeError) as refused:
        recipe.resolve(recipe.load(tmp_path / "r.toml"))
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("value", ["[" * 5000, "{a=" * 3000, "9" * 5000, "1\nname = 'x'"])
def test_a_hostile_setting_is_refused(value):
    with pytest.raises(RecipeError):
        recipe.resolve(recipe.override(recipe.load("fedavg"), {"local.lr": value}))


def test_a_huge_file_is_not_read(tmp_path):
    with open(tmp_path / "r.toml", "wb") as file:
        file.truncate(1 << 40)  # a hole: takes no room on disk
    with pytest.raises(RecipeError, match="more than 10,000,000 bytes"):
        recipe.load(tmp_path / "r.toml")


def test_nan_is_refused_in_plain_words():
    raw = recipe.override(recipe.load("fedavg"), {"partition.alpha": "nan"})
    with pytest.raises(
        RecipeError, match=r"partition.alpha: nan is not a number. Give a number\.$"
    ):
        recipe.resolve(raw)


# ---------------------------------------------------------------- tables of label counts


def test_damaged_gzip_of_counts(tmp_path):
    path, packed = tmp_path / "c.csv", gzip.compress(COUNTS * 1000)
    for raw in (*flips(packed), *(packed[:cut] for cut in range(0, len(packed), 3))):
        path.write_bytes(raw)
        only_ours(lambda: read_counts(path))


ODD_COLUMNS = {
    "list": pa.array([[1], [2]]),
    "struct": pa.array([{"a": 1}, {"a": 2}]),
    "map": pa.array([[("a", 1)], [("b", 2)]], pa.map_(pa.string(), pa.int64())),
    "bytes": pa.array([b"\xff", b"\xfe"]),
    "dates": pa.array([1, 2], pa.date32()),
    "nothing": pa.nulls(2),
}


@pytest.mark.parametrize("kind", ODD_COLUMNS)
def test_parquet_with_columns_that_are_neither_names_nor_numbers(kind, tmp_path):
    path, names, numbers = tmp_path / "c.parquet", pa.array(["a", "b"]), pa.array([1, 2])
    for role in ("client", "label", "count"):
        columns = {"client": names, "label": names, "count": numbers, role: ODD_COLUMNS[kind]}
        pq.write_table(pa.table(columns), path)
        said = only_ours(lambda: read_counts(path))
        assert said or (kind, role) in {("dates", "client"), ("dates", "label")}


# ---------------------------------------------------------------- datasets in a folder


def reading(name: str, folder) -> str:
    return only_ours(lambda: data.fetch(name, folder=folder))


@pytest.mark.parametrize("shape", [(1,) * 70, (65536,) * 4, (-1, 5), (2**31 - 1,) * 3, ()])
def test_idx_headers_that_claim_too_much(shape):
    raw = bytes([0, 0, 8, len(shape)]) + np.array(shape, ">i4").tobytes() + b"a"
    with pytest.raises(DataError, match="do not fill the shape"):
        idx.parse_idx(raw, "x")


def test_damaged_and_swollen_idx_files(tmp_path):
    packed = gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]))
    for raw in flips(packed, 3):
        for file in idx.FILES:
            (tmp_path / f"{file}.gz").write_bytes(raw)
        assert reading("mnist", tmp_path)
    bomb = gzip.compress(bytes(idx.LARGEST + 1))
    assert len(bomb) < 200_000
    (tmp_path / f"{idx.FILES[0]}.gz").write_bytes(bomb)
    assert "holds more than 100,000,000 bytes" in reading("mnist", tmp_path)


def npz_of(**arrays) -> bytes:
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    return packed.getvalue()


def test_damaged_npz_files(tmp_path):
    keys = ("x_train", "y_train", "x_test", "y_test")
    good = npz_of(**{key: np.zeros((2, 2), np.uint8) for key in keys})
    plain = io.BytesIO()
    np.save(plain, np.zeros(3))
    words = npz_of(**{key: np.array(["a", "b"]) for key in keys})
    claims = io.BytesIO()
    with zipfile.ZipFile(claims, "w") as archive:
        header = io.BytesIO()
        facts = {"descr": "|u1", "fortran_order": False, "shape": (2**60,)}
        np.lib.format.write_array_header_1_0(header, facts)
        for key in keys:
            archive.writestr(f"{key}.npy", header.getvalue())
    raws = (plain.getvalue(), words, claims.getvalue(), pickle.dumps(1), b"", *flips(good, 5))
    for raw in raws:
        (tmp_path / "mnist.npz").write_bytes(raw)
        assert reading("mnist", tmp_path)


def chunk(kind: bytes, content: bytes) -> bytes:
    size, check = struct.pack(">I", len(content)), struct.pack(">I", zlib.crc32(kind + content))
    return size + kind + content + check


def test_damaged_png_files_and_labels(tmp_path):
    image = pytest.importorskip("PIL.Image")
    packed = io.BytesIO()
    image.new("RGB", (1024, 2)).save(packed, "PNG")
    head = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(b"a")), chunk(b"IEND", b"")
    bomb = b"\x89PNG\r\n\x1a\n" + b"".join(parts)
    labels = (b"[1,2]", b"[" * 100_000, b"[" + b"9" * 5000 + b"]", b"[[1],[1,2]]", b"\xff")
    cases = [(raw, b"[1,2]") for raw in (bomb, *flips(packed.getvalue(), 5))]
    for raw, label in [*cases, *((packed.getvalue(), label) for label in labels)]:
        for batch in cifar10.BATCHES:
            (tmp_path / f"{batch}.png").write_bytes(raw)
        for name in ("train_lables.json", "test_lables.json"):
            (tmp_path / name).write_bytes(label)
        assert reading("cifar10", tmp_path)


def test_pickled_batches_cannot_run_code_or_end_python(tmp_path):
    good = pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 2]}, protocol=2)
    touched = tmp_path / "touched"

    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {touched}",)

    raws = (pickle.dumps(Evil()), b"\x80\x02]r\xff\xff\xff\x7f.", *flips(good, 97))
    for raw in raws:
        for batch in cifar10.BATCHES:
            (tmp_path / batch).write_bytes(raw)
        assert reading("cifar10", tmp_path)
    assert not touched.exists()


ACS = {
    "STATE": ["CA", "NY"], "PUMA": [1, 2], "label": [0, 1],
    **{name: [1.0, 2.0] for name in tables.ACS_FEATURES},
}  # fmt: skip
SERENGETI = {
    "site": ["A1", "B2"], "label": [0, 1], "label_name": ["x", "y"],
    **{name: [1, 2] for name in tables.SERENGETI_FEATURES}, "site_col": ["A", "B"],
}  # fmt: skip
SENT140 = {"split": ["train", "test"], "polarity": [0, 4], "text": ["a b", "c"]}
AMAZON = {"text": ["a b", "c"], "label": [0, 1]}
ODD = {
    **ODD_COLUMNS,
    "nan": pa.array([np.nan, 1.0]),
    "negative": pa.array([-5, 1]),
    "huge": pa.array([2**62, 1]),
    "empty text": pa.array(["", ""]),
}


@pytest.mark.parametrize(
    ("name", "columns"),
    [("acsincome", ACS), ("serengeti", SERENGETI), ("sent140", SENT140), ("amazon", AMAZON)],
)
def test_parquet_datasets_with_odd_columns(name, columns, tmp_path):
    pytest.importorskip("pandas")
    path, good = tmp_path / f"{name}.parquet", {k: pa.array(v) for k, v in columns.items()}
    tried = [
        {**good, key: value} for key in ("label", *good) if key in good for value in ODD.values()
    ]
    for changed in (*tried, {key: column[:0] for key, column in good.items()}):
        pq.write_table(pa.table(changed), path)
        reading(name, tmp_path)
    pq.write_table(pa.table({**good, next(reversed(good)): ODD["list"]}), path)
    if name in ("acsincome", "serengeti"):
        assert "cannot be read" in reading(name, tmp_path)


def test_nih_images_of_odd_shapes(tmp_path):
    good = {
        "images": np.zeros((3, 4, 4), np.uint8), "labels": np.eye(3, dtype=int),
        "class_names": np.array(["a", "b", "c"]), "patient_id": np.arange(3),
    }  # fmt: skip
    odd = (np.zeros(0), np.zeros((2, 2)), np.float64(3), np.zeros((3, 0), int))
    for key in good:
        for value in odd:
            (tmp_path / "nih_cxr14.npz").write_bytes(npz_of(**{**good, key: value}))
            said = reading("nih_images", tmp_path)
            assert said or value.shape == (3, 0), (key, value.shape)


def test_damaged_nih_labels(tmp_path):
    for raw in (b"", b"abc", gzip.compress(b"a")[:-3]):
        (tmp_path / f"{nih.TABLE}.gz").write_bytes(raw)
        assert reading("nih_labels", tmp_path)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[[1e400]]", "[[" + "9" * 5000 + "]]", "{}", "[1]"]
)
def test_hostile_traces(text, tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(RecipeError):
        read_trace(str(path), 3)


def test_the_good_ones_still_open(tmp_path):
    """Nothing above is refused for being there at all."""
    pytest.importorskip("pandas")
    for name, columns in (("acsincome", ACS), ("serengeti", SERENGETI), ("amazon", AMAZON)):
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
        if name != "amazon":  # two of six classes: its own check
            assert reading(name, tmp_path) == "", name
    (tmp_path / "trace.json").write_text(json.dumps([[0, 2]]))
    assert read_trace(str(tmp_path / "trace.json"), 3)[0].tolist() == [True, False, True]


def test_archives_write_nowhere_but_below_their_folder(tmp_path):
    """Packages come from registries; what is in them is treated as if it did not."""
    tgz, wheel = tmp_path / "a.tgz", tmp_path / "b.whl"
    with tarfile.open(tgz, "w:gz") as tar:
        for name in ("package/../../evil", "package/data"):
            member = tarfile.TarInfo(name)
            member.size = 1
            tar.addfile(member, io.BytesIO(b"x"))
        link = tarfile.TarInfo("package/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        tar.addfile(link)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("package/../../evil", "x")
        archive.writestr("package/data", "x")
    for place, path in enumerate((tgz, wheel)):
        only_ours(lambda path=path, place=place: unpack(path, "package", tmp_path / f"out{place}"))
    assert not (tmp_path / "evil").exists()
    assert not (tmp_path.parent / "evil").exists()
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))
