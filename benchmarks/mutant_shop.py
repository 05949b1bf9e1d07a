"""A private copy of the code and its tests, in which mutants are played one after another."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from mutant_tests import ROOT
from mutations import Mutant, digest

STREET = Path(tempfile.gettempdir()) / f"fedskew-mutants-{os.getuid()}"
PASSED = STREET / "passed.json"  # tests that passed without a mutant, by the text of everything
PARTS = ("src", "tests", "docs", "pyproject.toml", "conftest.py", "README.md")
TEST_SECONDS = 240  # one test: what waits for ever is killed
# all tests of one mutant: what runs for ever; processor time, so that a busy machine kills nobody
CPU_SECONDS, CHECK_CPU_SECONDS = 90, 900
WALL_SECONDS = 1800
MOST_KILOBYTES = 16 << 20  # of addresses
# no example that takes long by chance, none that differs from run to run
PYTEST = ["-x", "-q", "-p", "no:cacheprovider", "--tb=no", "-rfE", "--hypothesis-profile=ci"]
running: set[int] = set()  # process groups of tests
shared, closed = threading.Lock(), threading.Event()
NO_VERDICT = (4, 5)  # pytest was called wrongly, or found no test


@dataclass(frozen=True)
class Verdict:
    """How the tests ended."""

    killed_by: str  # the first test that fails; "" = none does
    cpu_seconds: float


def open_shop(number: int) -> Path:
    """The copy; what an earlier call left there is thrown away."""
    place = STREET / str(number)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place / name, ignore=ignored)
        else:
            shutil.copy2(ROOT / name, place / name)
    return place


def check_untouched(place: Path, tests: list[str]) -> None:
    """Without a change all tests pass; else every mutant would count as killed."""
    tree = digest("".join(file.read_text() for file in sorted(place.rglob("*.py"))))
    passed = json.loads(PASSED.read_text()).get(tree, []) if PASSED.exists() else []
    rest = [test for test in tests if test not in passed]
    failing = run_tests(place, rest, untouched=True).killed_by if rest else ""
    if failing:
        raise SystemExit(f"{failing} fails without any mutant. Mend that first")
    with shared:
        before = json.loads(PASSED.read_text()).get(tree, []) if PASSED.exists() else []
        PASSED.write_text(json.dumps({tree: sorted({*before, *tests})}))


def play(mutant: Mutant, place: Path, tests: list[str]) -> Verdict:
    """One mutant against its tests; the file is as before afterwards."""
    file = place / mutant.file
    text, times = file.read_text(), file.stat()
    changed = mutant.applied(text)
    compile(changed, mutant.file, "exec")  # a mutant that is no program would be killed by anything
    file.write_text(changed)
    try:
        return run_tests(place, tests)
    finally:
        file.write_text(text)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def run_tests(place: Path, tests: list[str], *, untouched: bool = False) -> Verdict:
    """The verdict of these tests. Without a mutant they take their time, and leave compiled files
    for later calls.
    """
    limit = CHECK_CPU_SECONDS if untouched else CPU_SECONDS
    bounds = f"ulimit -t {limit}; ulimit -v {MOST_KILOBYTES}; "
    command = ["sh", "-c", bounds + 'exec "$0" "$@"', sys.executable]
    command += ["-m", "pytest", *PYTEST, f"--timeout={TEST_SECONDS}", *tests]
    environment = {**os.environ, "PYTHONPATH": str(place / "src"), "OMP_NUM_THREADS": "1"}
    environment |= {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environment |= {} if untouched else {"PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryFile("w+") as said:
        child = subprocess.Popen(
            command,
            cwd=place,
            env=environment,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        running.add(child.pid)
        status, cpu = _wait(child.pid)
        running.discard(child.pid)
        if closed.is_set():  # ended by us, which says nothing about the mutant
            raise SystemExit
        child.returncode = 0  # it has been waited for
        said.seek(0)
        if status == -signal.SIGKILL and cpu < 0.9 * limit:
            raise InterruptedError(f"{' '.join(tests)}: ended from outside after {cpu:.0f} s")
        return Verdict(_killer(status, said.read()), cpu)


def _wait(pid: int) -> tuple[int | None, float]:
    """(exit status, processor seconds) of a process and all it started; None = out of time."""
    end, late = time.monotonic() + WALL_SECONDS, False
    while True:
        found, status, used = os.wait4(pid, os.WNOHANG)
        if found:
            break
        if time.monotonic() > end and not late:
            late = True
            os.killpg(pid, signal.SIGKILL)
        time.sleep(0.05)
    _end_stragglers(pid)
    return None if late else os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime


def close() -> None:
    """End what still runs and remove the copies."""
    closed.set()
    for group in [*running]:
        _end_stragglers(group)
    for place in STREET.glob("[0-9]*"):
        shutil.rmtree(place, ignore_errors=True)


def _end_stragglers(group: int) -> None:
    """Workers that a test left behind: they are of the group that was started for it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _killer(status: int | None, said: str) -> str:
    if status == 0:
        return ""
    if status is None or status < 0:
        return "out of time" if status is None else f"ended by signal {-status}"
    if status in NO_VERDICT:
        raise RuntimeError(f"pytest ended with {status}:\n{said}")
    named = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", said, re.MULTILINE)
    return named.group(1) if named else f"pytest ended with {status}"
