"""Children that are copies of a nursery behave as new processes do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import Pipe
from pathlib import Path

import pytest

pytest.importorskip("torch")

from fedskew.runtime.local import nursery
from fedskew.runtime.local.nursery import start_child

pytestmark = pytest.mark.skipif(not nursery.CAN_FORK, reason="no nursery on this system")

# A module as fedskew's own would be: the nursery imports it, and a copy runs main()
MODULE = """
import json, os, random, sys
from multiprocessing.connection import Connection

def main():
    pipe = Connection(int(sys.argv[1]))
    while True:
        try:
            what = pipe.recv()
        except EOFError:
            return
        if what == "who":
            pipe.send({"pid": os.getpid(), "folder": os.getcwd(), "path": list(sys.path),
                       "env": os.environ.get("FEDSKEW_X"), "dice": random.random(),
                       "threads": len(os.listdir("/proc/self/task")), "session": os.getsid(0),
                       "modules": [m for m in sys.modules if m.startswith("mine_")]})
        elif what == "print":
            print("heard", flush=True)
            pipe.send("printed")
        elif isinstance(what, tuple):
            pipe.send(os.read(os.dup(what[1]), 5).decode())
        elif what == "import":
            import mine_secret
            pipe.send(mine_secret.VALUE)
        elif what == "fail":
            raise ValueError("on purpose")
        else:
            sys.exit(what)
"""


@pytest.fixture
def module(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("modules")
    (folder / "nursery_guest.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    # the nursery of this test knows the folder; that of other tests need not
    monkeypatch.setattr(nursery, "_shared", [])
    yield "nursery_guest"
    for one in nursery._shared:
        one.close()


def born(module, *inherited):
    pipe, theirs = Pipe()
    child = start_child(module, theirs.fileno(), inherited)
    theirs.close()
    return child, pipe


def asked(pipe, what):
    pipe.send(what)
    return pipe.recv()


def test_a_copy_has_what_a_new_process_would_have(module, tmp_path, monkeypatch):
    first, one = born(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDSKEW_X", "later")
    second, two = born(module)
    a, b = asked(one, "who"), asked(two, "who")
    assert (a["env"], b["env"]) == (None, "later")
    assert b["folder"] == str(tmp_path) != a["folder"]
    assert b["path"] == [place for place in sys.path if place]
    assert a["dice"] != b["dice"]
    assert (a["pid"], b["pid"]) == (first.pid, second.pid)
    assert a["session"] != b["session"] != os.getsid(0)
    assert a["threads"] == b["threads"] == 1, "nothing with threads was copied"


def test_what_one_child_imports_no_other_has(module, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for value in (1, 2):
        (tmp_path / "mine_secret.py").write_text(f"VALUE = {value}  # {'x' * value}\n")
        _, pipe = born(module)
        assert asked(pipe, "who")["modules"] == []
        assert asked(pipe, "import") == value


def test_open_files_keep_their_numbers(module, tmp_path):
    files = []
    for i in range(12):
        (tmp_path / str(i)).write_text(f"file{i % 10}")
        files.append(os.open(tmp_path / str(i), os.O_RDONLY))
    numbers = files[::-1]
    _, pipe = born(module, *numbers)
    for i, file in enumerate(files):
        assert asked(pipe, ("read", file)) == f"file{i % 10}"
        os.close(file)


def test_output_goes_where_that_of_the_parent_goes_now(module, capfd):
    _, pipe = born(module)
    asked(pipe, "print")
    assert "heard" in capfd.readouterr().out


@pytest.mark.parametrize("code", [0, 3])
def test_exit_codes(module, code):
    child, pipe = born(module)
    pipe.send(code)
    assert child.wait(timeout=20) == code


def test_ends_are_told_apart(module, capfd):
    killed, one = born(module)
    failed, two = born(module)
    quiet, three = born(module)
    with pytest.raises(subprocess.TimeoutExpired):
        quiet.wait(timeout=0.05)
    killed.kill()
    two.send("fail")
    three.close()
    assert killed.wait(timeout=20) == -signal.SIGKILL
    assert failed.wait(timeout=20) == 1
    assert quiet.wait(timeout=20) == quiet.wait() == 0
    assert "ValueError: on purpose" in capfd.readouterr().err
    one.close()


def test_nobody_stays_behind_as_a_zombie(module):
    child, pipe = born(module)
    pipe.close()
    child.wait(timeout=20)
    assert not Path(f"/proc/{child.pid}").exists()


def test_it_outlives_the_thread_that_needed_it_first(module):
    found = []
    thread = threading.Thread(target=lambda: found.append(born(module)))
    thread.start()
    thread.join()
    time.sleep(0.2)
    assert asked(found[0][1], "who")["pid"] == found[0][0].pid
    assert asked(born(module)[1], "who")["threads"] == 1


def test_a_nursery_that_was_killed_is_replaced_and_its_children_are_gone(module):
    child, pipe = born(module)
    asked(pipe, "who")
    nursery._shared[0]._process.kill()
    assert child.wait(timeout=20) == -signal.SIGKILL
    another, pipe = born(module)
    if another.pid < 0:  # the first to notice
        another, pipe = born(module)
    assert asked(pipe, "who")["pid"] == another.pid


def test_it_ends_with_its_parent(tmp_path):
    code = (
        "import json, os, sys, time\n"
        "from multiprocessing import Pipe\n"
        "from fedskew.runtime.local import nursery\n"
        "pipe, theirs = Pipe()\n"
        "child = nursery.start_child('fedskew.runtime.local.worker', theirs.fileno())\n"
        "print(json.dumps([nursery._shared[0]._process.pid, child.pid]), flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        numbers = json.loads(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{number}").exists() for number in numbers):
        assert time.monotonic() < deadline, "it outlived its parent"
        time.sleep(0.05)
