"""macOS and Windows, as far as a Linux machine can tell: the modules and calls that they lack are
hidden, and measuring, training, comparing and reporting go on.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import fedskew

PACKAGE = Path(fedskew.__file__).parent
LINUX_ONLY = {"fcntl", "termios", "pwd", "grp", "resource"}
FLEETS = ("runtime/flower", "deploy")  # Flower's servers run on Linux
WITHOUT = """
import os, sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        return None if name == "fcntl" else self.finder.find_spec(name, path, target)

sys.modules.pop("fcntl", None)
sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
for name in ("memfd_create", "posix_fallocate", "sched_getaffinity", "fork", "forkpty"):
    if hasattr(os, name):
        delattr(os, name)
"""


def elsewhere(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITHOUT + code], capture_output=True, text=True,
        cwd=cwd,
    )  # fmt: skip


def commands(*typed: list[str], cwd: Path) -> list[str]:
    """What each command prints; all in one process, because starting torch takes longest."""
    code = (
        "from fedskew.cli.main import main\n"
        f"for words in {list(typed)!r}:\n"
        "    sys.argv = ['fedskew', *words]\n"
        "    try:\n"
        "        main()\n"
        "    except SystemExit as end:\n"
        "        if end.code:\n"
        "            raise\n"
        "    print('=====', flush=True)\n"
    )
    done = elsewhere(code, cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("=====\n")[:-1]


def test_nothing_but_fleets_imports_a_linux_module_when_it_is_imported():
    for file in sorted(PACKAGE.rglob("*.py")):
        if str(file.relative_to(PACKAGE)).startswith(FLEETS):
            continue
        for node in ast.parse(file.read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not LINUX_ONLY & set(names), file


def test_measuring(tmp_path):
    (tmp_path / "counts.csv").write_text("client,cat,dog\na,30,1\nb,2,40\n")
    measured, listed, data = commands(
        ["measure", "counts.csv", "--json"], ["list"], ["data", "list"], cwd=tmp_path
    )
    assert json.loads(measured)["figures"]
    assert "uniform" in listed
    assert "digits" in data


def test_training_comparing_reporting_in_one_process(tmp_path):
    pytest.importorskip("torch")
    small = ["--set", "run.rounds=1", "--quiet"]
    run, _, table, _, shown = commands(
        ["run", "fedavg", *small, "--json", "--out", "r"],
        ["run", "fedavg", *small, "--workers", "4", "--seeds", "0-1", "--out", "s"],
        ["compare", "fedavg", "fedprox", *small, "--seeds", "0-1"],
        ["report", "runs", "-o", "r.html"],
        ["show", "r"],
        cwd=tmp_path,
    )
    assert json.loads(run)["rounds"] == 1
    assert "fedprox" in table
    assert (tmp_path / "r.html").stat().st_size > 10_000
    assert "final accuracy" in shown


def test_the_same_bits_as_with_all_of_linux(tmp_path):
    pytest.importorskip("torch")
    code = (
        "import fedskew, hashlib\n"
        "played = fedskew.run('fedavg', settings={'run.rounds': 2}, workers=2)\n"
        "print(hashlib.sha256(played.models.tobytes()).hexdigest())"
    )
    there = elsewhere(code, tmp_path)
    here = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert there.returncode == 0, there.stderr
    assert there.stdout == here.stdout


def test_a_failing_run_does_not_stop_the_others_there_either(tmp_path):
    pytest.importorskip("torch")
    code = (
        "from fedskew.experiment.schedule import Job, run_all\n"
        "from fedskew.recipe import load, override, resolve\n"
        "good = resolve(override(load('fedavg'), {'run.rounds': 1}))\n"
        "bad = {**good, 'data': {**good['data'], 'use': 'nowhere'}}\n"
        "told = []\n"
        "jobs = [Job(bad, 0, 'bad'), Job(good, 0, 'good')]\n"
        "ends = run_all(jobs, 2, lambda number, record: told.append(number))\n"
        "print([end.summary is not None for end in ends], set(told), ends[0].error)"
    )
    done = elsewhere(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[False, True] {1} data: no dataset is called 'nowhere'")
