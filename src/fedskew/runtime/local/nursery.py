"""Child processes that start at once: copies of a process that has torch in memory.

Importing torch takes seconds of computing. Where the system can (Linux), each process that needs
children starts one nursery, which imports torch and then waits; every child is a copy of it, ready
within milliseconds and with its own environment, folder, search path and output. No user's code
ever runs in the nursery itself, so a child imports it anew, as a new process would. The nursery
ends when its parent does, and the kernel then ends its children. Elsewhere a child is an ordinary
new process.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
CAN_FORK = sys.platform == "linux" and hasattr(os, "fork") and hasattr(os, "pidfd_open")
LENGTH_BYTES = 4
MOST_FILES = 250  # the kernel hands over at most 253 at once
KILLED = -int(signal.SIGKILL)


class Child(Protocol):
    """A child process, whichever way it was started."""

    @property
    def pid(self) -> int:
        """Its number."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """How it ended; negative: by which signal."""
        ...

    def terminate(self) -> None:
        """Ask it to end."""
        ...

    def kill(self) -> None:
        """End it."""
        ...


def start_child(module: str, descriptor: int, inherited: Sequence[int] = ()) -> Child:
    """Run ``main()`` of a module of fedskew in a child that has these open files under these
    numbers; the first is its only argument.
    """
    files = (descriptor, *inherited)
    if CAN_FORK and len(files) + 2 <= MOST_FILES:
        return _nursery().child(module, files)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, str(descriptor)],
        pass_fds=files,
        env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(_search_path())},
        stdin=subprocess.DEVNULL,
        # Ctrl-C reaches the parent only, which then closes its children in order
        start_new_session=True,
    )


def _search_path() -> list[str]:
    return [place for place in sys.path if place]


def _folder() -> str:
    """Where we are; nowhere, if that folder was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


# ---------------------------------------------------------------- as the parent sees it


class _Nursery:
    """The process children are copies of."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.alive = True
        self._talking = threading.Lock()
        self._pipe, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(_search_path())},
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def child(self, module: str, files: Sequence[int]) -> _Copy:
        """A new copy of it."""
        call = {
            "module": module,
            "files": list(files),
            "env": dict(os.environ),
            "folder": _folder(),
            "path": _search_path(),
        }
        number = self.ask(call, [1, 2, *files])
        return _Copy(self, number)

    def ask(self, call: Mapping[str, Any], files: Sequence[int] = ()) -> int:
        """Its answer; the signal by which it was killed if there is none."""
        text = json.dumps(call).encode()
        with self._talking:
            try:
                head = len(text).to_bytes(LENGTH_BYTES, "big")
                socket.send_fds(self._pipe, [head], files)
                self._pipe.sendall(text)
                return int(_exactly(self._pipe, 8).decode(), 16)
            except (OSError, EOFError, ValueError):
                self.close()
                return KILLED

    def close(self) -> None:
        """End it, and with it every copy. Not ours to end in a process that was forked."""
        self.alive = False
        self._pipe.close()
        if self.owner == os.getpid():
            self._process.kill()
            self._process.wait()


_shared: list[_Nursery] = []
_finding = threading.Lock()


def _nursery() -> _Nursery:
    """That of this process: never one that was inherited by a fork."""
    with _finding:
        if not _shared or not _shared[0].alive or _shared[0].owner != os.getpid():
            _shared[:] = [_Nursery()]
            atexit.register(_shared[0].close)
        return _shared[0]


class _Copy:
    """A child that is a copy of the nursery."""

    def __init__(self, nursery: _Nursery, number: int) -> None:
        self._nursery, self.pid = nursery, number
        self._code: int | None = KILLED if number < 0 else None
        self._watch: int | None = None
        if number > 0:
            with contextlib.suppress(OSError):  # already gone, with the nursery
                self._watch = os.pidfd_open(number)

    def wait(self, timeout: float | None = None) -> int:
        """How it ended."""
        if self._code is None:
            self._code = self._ended(timeout)
            if self._watch is not None:
                os.close(self._watch)
                self._watch = None
        return self._code

    def _ended(self, timeout: float | None) -> int:
        if self._watch is None:
            return KILLED
        ready = select.select([self._watch], [], [], timeout)[0]
        if not ready:
            raise subprocess.TimeoutExpired("a worker", timeout or 0.0)
        code = self._nursery.ask({"reap": self.pid}) if self._nursery.alive else KILLED
        return code - 1000 if code >= 0 else code

    def terminate(self) -> None:
        """Ask it to end."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self._code is None and self._watch is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._watch, number)

    def __del__(self) -> None:
        if self._watch is not None:
            with contextlib.suppress(OSError):
                os.close(self._watch)


# ---------------------------------------------------------------- the process itself


def main() -> None:
    """Entry point: the descriptor of the pipe is the only argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getppid()
    import torch

    torch.set_num_threads(1)
    importlib.import_module("fedskew.runtime.local.trainer")
    gc.freeze()  # what is here stays; copies need not look at it
    with socket.socket(fileno=int(sys.argv[1])) as pipe:
        pipe.settimeout(1.0)
        while os.getppid() == parent:
            with contextlib.suppress(TimeoutError):
                if not _serve_one(pipe):
                    return


def _serve_one(pipe: socket.socket) -> bool:
    """One call of the parent; False: it is gone."""
    head, files, _, _ = socket.recv_fds(pipe, LENGTH_BYTES, MOST_FILES)
    if not head:
        return False
    pipe.settimeout(None)
    head += _exactly(pipe, LENGTH_BYTES - len(head))
    call = json.loads(_exactly(pipe, int.from_bytes(head, "big")))
    if "reap" in call:
        status = os.waitstatus_to_exitcode(os.waitpid(call["reap"], 0)[1])
        pipe.sendall(f"{status + 1000:08x}".encode())
    else:
        module = importlib.import_module(call["module"])
        number = os.fork()
        if number == 0:
            _become(module, call, files, pipe)
        for file in files:
            os.close(file)
        pipe.sendall(f"{number:08x}".encode())
    pipe.settimeout(1.0)
    return True


def _exactly(pipe: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = pipe.recv(size - len(parts))
        if not part:
            raise EOFError
        parts += part
    return parts


def _become(module: Any, call: Mapping[str, Any], files: list[int], pipe: socket.socket) -> None:
    """In the copy: take the place of a process of its own, work, end."""
    code = 1
    try:
        pipe.close()
        _end_with_nursery()
        os.setsid()
        _place(files, [1, 2, *call["files"]])
        os.environ.clear()
        os.environ.update({**call["env"], **ONE_THREAD})
        with contextlib.suppress(OSError):  # a folder that is gone
            os.chdir(call["folder"])
        sys.path[:] = call["path"]
        sys.argv = [module.__name__, str(call["files"][0])]
        _new_dice()
        module.main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def _end_with_nursery() -> None:
    """The kernel kills us when the nursery ends, even in the middle of a long client."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _place(files: Sequence[int], numbers: Sequence[int]) -> None:
    """Give open files the numbers they had in the parent."""
    import fcntl

    above = max([*files, *numbers]) + 1
    high = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, above) for file in files]
    for file in files:
        os.close(file)
    for file, number in zip(high, numbers, strict=True):
        os.dup2(file, number)
        os.close(file)


def _new_dice() -> None:
    """Copies must not draw the same numbers where somebody's code draws without a seed."""
    import numpy as np
    import torch

    random.seed()
    np.random.seed()  # noqa: NPY002
    torch.seed()


if __name__ == "__main__":
    main()
