"""A process that has Flower, fedskew and torch in memory, and answers every message in a copy of
itself.

Flower starts a program for each message at each client: seconds of computing before the first line
of the app runs, and several times that where all clients share a machine. A SuperExec looks for
that program on its PATH. Nodes that are started here find :mod:`fedskew.deploy.warm_call` first: it
hands its arguments, environment and output over to this process, which forks. So every message
still has a process of its own, in which nothing of another message is left; only the imports are
shared, and no code of an app runs in this process itself. Where nobody listens, the caller becomes
Flower's own program, and all is as without it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedskew.deploy import warm_call
from fedskew.deploy.keys import private_folder
from fedskew.deploy.warm_call import SOCKET, VARIABLE, address_in
from fedskew.runtime.flower.undocumented import CLIENT_PROGRAM, run_clientapp

PRELOADED = ("fedskew.experiment.fleet", "fedskew.runtime.local.trainer", "fedskew.signal")
CAN_WARM = sys.platform == "linux"  # elsewhere sockets in deep folders have no short name
WAITING = 128  # callers that may wait for their turn


def warm_environment(folder: Path, env: dict[str, str]) -> dict[str, str]:
    """The environment of a node whose messages are answered by the process that serves ``folder``;
    its program is written there.
    """
    programs = private_folder(private_folder(folder) / "bin")
    program = programs / CLIENT_PROGRAM
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{warm_call.__file__}" "$@"\n')
    program.chmod(0o700)
    path = os.pathsep.join([str(programs), env.get("PATH", "")])
    return {**env, "PATH": path, VARIABLE: str(folder)}


def serve(folder: Path) -> None:
    """Answer callers until this process is stopped. They may come while it is still importing."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        with contextlib.suppress(FileNotFoundError):
            (folder / SOCKET).unlink()
        with address_in(folder) as address:
            listener.bind(address)
        listener.listen(WAITING)
        preload()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # copies that have ended leave no remains
        while True:
            caller, _ = listener.accept()
            with caller:
                answer(caller, listener, run_clientapp)


def preload() -> None:
    """Import what every message needs, and torch, which most need."""
    import importlib

    from flwr.supernode import cli  # noqa: F401

    for name in PRELOADED:
        importlib.import_module(name)


def answer(caller: socket.socket, listener: socket.socket, work: Callable[[], None]) -> None:
    """Start a copy of this process that does the caller's work and tells it the exit code."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        call, files = warm_call.receive(caller)
        try:
            if os.fork() == 0:
                listener.close()
                _become(caller, call, files, work)
        finally:
            for number in files:
                os.close(number)


def _become(
    caller: socket.socket, call: dict[str, Any], files: list[int], work: Callable[[], None]
) -> None:
    """In the copy: take the caller's place, work, end."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        caller.sendall(b"begun\n")
        for place, number in enumerate(files):
            os.dup2(number, place)
        os.environ.clear()
        os.environ.update(call["env"])
        os.chdir(call["folder"])
        sys.argv = [CLIENT_PROGRAM, *call["arguments"]]
        _new_dice()
        code = _exit_code(work)
        sys.stdout.flush()
        sys.stderr.flush()
        caller.sendall(json.dumps({"code": code}).encode() + b"\n")
    finally:
        os._exit(code)


def _new_dice() -> None:
    """As in a process of its own: Python and numpy begin with chance, torch with its default."""
    random.seed()
    np.random.seed()  # noqa: NPY002


def _exit_code(work: Callable[[], None]) -> int:
    try:
        work()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
