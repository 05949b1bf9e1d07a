"""The process that answers messages in copies of itself: who calls it gets an exit code, output and
environment as from a program of its own.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from fedskew.deploy import warm, warm_call

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

# the same server, with other work than a message
SERVER = """
import os, random, sys
from pathlib import Path
import numpy as np
import numpy.random  # as what is loaded in advance does
from fedskew.deploy import warm

LEFT = []

def work():
    if sys.argv[1] == "crash":
        os.kill(os.getpid(), 9)
    if sys.argv[1] == "dice":
        print(random.random(), np.random.random())
        sys.exit(0)
    LEFT.append(sys.argv[1])
    print("said", LEFT, os.environ["COLOUR"], os.getcwd(), flush=True)
    print("complained", file=sys.stderr)
    sys.exit(int(sys.argv[2]))

warm.preload, warm.run_clientapp = (lambda: None), work
warm.serve(Path(sys.argv[1]))
"""


@pytest.fixture
def served(tmp_path):
    """A folder with a name too long for a socket, and a server on it."""
    folder = tmp_path / ("deep" * 30)
    folder.mkdir(parents=True)
    server = subprocess.Popen([sys.executable, "-c", textwrap.dedent(SERVER), str(folder)])
    while not (folder / warm_call.SOCKET).exists():
        assert server.poll() is None
        time.sleep(0.02)
    yield folder
    server.kill()
    server.wait()


def call(
    folder: Path, *arguments: str, path: str = "/usr/bin:/bin"
) -> subprocess.CompletedProcess[str]:
    env = warm.warm_environment(folder, {**os.environ, "COLOUR": "green", "PATH": path})
    program = folder / "bin" / "flwr-clientapp"
    return subprocess.run(
        [program, *arguments], env=env, cwd=folder, capture_output=True, text=True, check=False
    )


def test_a_caller_gets_output_and_exit_code_of_its_own(served):
    for number in (0, 3, 0):
        done = call(served, "word", str(number))
        assert (done.returncode, done.stderr) == (number, "complained\n")
        # nothing of an earlier call is left: each is a fresh copy
        assert done.stdout == f"said ['word'] green {served}\n"


def test_copies_do_not_draw_the_same_numbers(served):
    """An app that shuffles or augments without a seed must not do so alike at every client."""
    drawn = [call(served, "dice").stdout.split() for _ in range(3)]
    assert len({numbers[0] for numbers in drawn}) == 3
    assert len({numbers[1] for numbers in drawn}) == 3  # numpy's


def test_a_copy_that_dies_costs_its_caller_only(served):
    assert call(served, "crash", "0").returncode == 1
    assert call(served, "word", "0").returncode == 0


def test_rubbish_does_not_end_the_server(served):
    for junk in (b"", b"\x00\x00\x00\x05[1,2", b"\xff" * 8):
        with socket.socket(socket.AF_UNIX) as one, warm_call.address_in(served) as address:
            one.connect(address)
            one.sendall(junk)
    assert call(served, "word", "0").returncode == 0


def test_without_a_server_the_program_itself_is_started(tmp_path):
    real, empty = tmp_path / "real", tmp_path / "served"
    real.mkdir()
    empty.mkdir()
    (real / "flwr-clientapp").write_text('#!/bin/sh\necho itself "$@"\nexit 5\n')
    (real / "flwr-clientapp").chmod(0o700)
    done = call(empty, "a", "b", path=str(real))
    assert (done.returncode, done.stdout) == (5, "itself a b\n")


def test_only_its_owner_can_call(served):
    call(served, "word", "0")
    assert (served / "bin").stat().st_mode & 0o077 == 0
    assert served.stat().st_mode & 0o077 == 0
