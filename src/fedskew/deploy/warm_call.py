"""What a SuperExec starts for a message where :mod:`fedskew.deploy.warm` serves: asks it to do the
work, and ends with its exit code. Imports nothing but a few modules of Python: it is started often.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VARIABLE = "FEDSKEW_WARM"  # the folder that is served
SOCKET = "socket"
PROGRAM = "flwr-clientapp"  # what this one stands for
LENGTH_BYTES = 4
MOST_BYTES = 1 << 20  # arguments and environment


@contextlib.contextmanager
def address_in(folder: Path) -> Iterator[str]:
    """The socket of a folder by a name that is short enough: the kernel takes 107 characters."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{number}/{SOCKET}"
    finally:
        os.close(number)


def send(server: socket.socket, call: dict[str, Any]) -> None:
    """Hand over what is to be done, and where its output goes."""
    text = json.dumps(call).encode()
    socket.send_fds(server, [len(text).to_bytes(LENGTH_BYTES, "big")], [0, 1, 2])
    server.sendall(text)


def receive(caller: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """What a caller has handed over: (its call, its input, output and error output)."""
    head, files, _, _ = socket.recv_fds(caller, LENGTH_BYTES, 3)
    length = int.from_bytes(head, "big")
    if len(head) != LENGTH_BYTES or length > MOST_BYTES or len(files) != 3:
        for number in files:
            os.close(number)
        raise ValueError("not a call")
    with caller.makefile("rb") as stream:
        return json.loads(stream.read(length)), files


def main() -> None:
    """Have the work done; without a server become the program that was meant."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            with address_in(Path(os.environ[VARIABLE])) as address:
                server.connect(address)
            call = {"arguments": sys.argv[1:], "env": dict(os.environ), "folder": os.getcwd()}
            send(server, call)
            with server.makefile("r") as answers:
                begun = answers.readline()
                ended = answers.readline()
    except (OSError, KeyError):
        begun = ended = ""
    if not begun:
        become_flowers_own()
    sys.exit(json.loads(ended)["code"] if ended else 1)


def become_flowers_own() -> None:
    """Turn into the next program of this name on the PATH."""
    here = os.environ.get(VARIABLE) or "\0"
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(folder, PROGRAM)
        if os.access(path, os.X_OK) and not folder.startswith(here):
            os.execv(path, [path, *sys.argv[1:]])
    sys.exit(f"{PROGRAM} is not on the PATH")


if __name__ == "__main__":
    main()
