"""The examples of all clients, kept once in memory and shared by every process.

Arrays that are memory-mapped files are opened by path in each worker; others are copied once into
an anonymous file whose descriptor the workers inherit. The kernel frees it when the last process is
gone, so even ``kill -9`` leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedskew.types import Ints


@dataclass(frozen=True)
class Store:
    """Examples and who owns them; index lists in CSR form: client i owns
    ``order[offsets[i]:offsets[i + 1]]``.
    """

    x: NDArray[Any]  # (N, ...) uint8 images | float32 tables | integer tokens
    y: Ints  # (N,)
    train_order: Ints
    train_offsets: Ints  # (K + 1,)
    x_test: NDArray[Any]
    y_test: Ints
    central_order: Ints  # rows of x_test that form the central test set
    test_order: Ints  # rows of x_test owned by clients; empty = no client test sets
    test_offsets: Ints  # (K + 1,)
    num_classes: int
    # rows of x the server itself holds
    auxiliary_order: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    mean: NDArray[np.float32] | None = None
    std: NDArray[np.float32] | None = None

    @property
    def num_clients(self) -> int:
        """K."""
        return len(self.train_offsets) - 1

    def rows(self, client: int, which: str) -> Ints:
        """Rows of ``x`` (which = "train") or ``x_test`` (which = "test") that one client owns."""
        order, offsets = (
            (self.train_order, self.train_offsets)
            if which == "train"
            else (self.test_order, self.test_offsets)
        )
        return order[offsets[client] : offsets[client + 1]]

    def label_counts(self) -> Ints:
        """(K, C) training labels of every client."""
        owner = np.repeat(np.arange(self.num_clients), np.diff(self.train_offsets))
        flat = owner * self.num_classes + np.asarray(self.y)[self.train_order]
        return np.bincount(flat, minlength=self.num_clients * self.num_classes).reshape(
            -1, self.num_classes
        )


@dataclass(frozen=True)
class Handle:
    """Where another process finds an array: a file with an offset, or an inherited descriptor."""

    path: str
    descriptor: int
    offset: int
    dtype: str
    shape: tuple[int, ...]

    def open(self) -> NDArray[Any]:
        """Map the array copy-on-write: nothing a reader does can reach the original."""
        size = int(np.prod(self.shape, dtype=np.int64))
        if size == 0:
            return np.empty(self.shape, self.dtype)
        source: Any = self.path or os.fdopen(os.dup(self.descriptor), "r+b")
        return np.memmap(source, dtype=self.dtype, mode="c", offset=self.offset, shape=self.shape)


def anonymous_file(size: int) -> IO[bytes]:
    """An unnamed file in memory (Linux), else in ``/dev/shm`` or in the temporary folder."""
    for folder in ("memory", "/dev/shm", None):
        # AttributeError: no memfd_create outside Linux
        with contextlib.suppress(OSError, AttributeError):
            handle: IO[bytes] = (
                os.fdopen(os.memfd_create("fedskew"), "r+b")
                if folder == "memory"
                else tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
            )
            # Reserve the pages now: a full memory would otherwise kill a worker with SIGBUS in the
            # middle of a round.
            os.posix_fallocate(handle.fileno(), 0, max(size, mmap.PAGESIZE))
            return handle
    raise OSError(
        f"no room for {size / 1e6:.0f} MB of shared data in /dev/shm or {tempfile.gettempdir()}"
    )


def _share_array(array: NDArray[Any]) -> tuple[Handle, IO[bytes] | None]:
    if (
        isinstance(array, np.memmap)
        and array.filename
        and array.flags.c_contiguous
        and array.base is not None
    ):
        root = array
        while isinstance(root.base, np.memmap):
            root = root.base
        start = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
        return Handle(
            str(array.filename), -1, int(root.offset) + start, array.dtype.str, array.shape
        ), None
    array = np.ascontiguousarray(array)
    file = anonymous_file(array.nbytes)
    if array.size:
        np.memmap(file, dtype=array.dtype, mode="r+", shape=array.shape)[...] = array
    return Handle("", file.fileno(), 0, array.dtype.str, array.shape), file


@dataclass(frozen=True)
class SharedStore:
    """A :class:`Store` that other processes can open. Keep it alive as long as they may start."""

    handles: Mapping[str, Any]
    files: Sequence[IO[bytes]]

    @classmethod
    def of(cls, store: Store) -> SharedStore:
        """Put every array where other processes can map it; an array that appears twice is
        shared once.
        """
        handles: dict[str, Any] = {}
        files: list[IO[bytes]] = []
        seen: dict[int, Handle] = {}
        for f in fields(store):
            value = getattr(store, f.name)
            if not isinstance(value, np.ndarray) or value.ndim == 0:
                handles[f.name] = value
                continue
            if id(value) not in seen:
                seen[id(value)], file = _share_array(value)
                files += [file] if file is not None else []
            handles[f.name] = seen[id(value)]
        return cls(handles, files)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """File descriptors a child process must inherit."""
        return tuple(file.fileno() for file in self.files)

    def close(self) -> None:
        """Drop this process's hold on the shared memory."""
        for file in self.files:
            file.close()


def open_store(handles: Mapping[str, Any]) -> Store:
    """The :class:`Store` behind the handles of a :class:`SharedStore`, in another process."""
    opened = {id(h): h.open() for h in handles.values() if isinstance(h, Handle)}
    return Store(**{name: opened.get(id(value), value) for name, value in handles.items()})
