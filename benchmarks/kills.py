"""Runs that are killed with SIGKILL at any moment, resumed, and compared with undisturbed ones.

Processes are forked from one that has imported everything, so that a kill costs a fraction of a
second. Two of three kills come by the clock, anywhere in the run; the third comes at a file
operation in the run folder (open, rename, remove), just before it is done. Now and then the run is
an ordinary command line with two workers.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from damage import comparable
from fedskew.errors import FedskewError
from fedskew.experiment.local import run_resolved
from fedskew.recipe import load, override, resolve

SEED = 7
SMALL = {
    "data.use": "digits",
    "data.clients": 10,
    "run.rounds": 6,
    "run.clients_per_round": 4,
    "run.checkpoint_seconds": 0,
    "local.epochs": 1,
}
MOST_KILLS = 4  # of one run
PATIENCE = 300.0  # seconds for a run to finish
DIED, REFUSED = 3, 4  # exit codes: an error that is not ours, one that is


@cache
def small(recipe: str) -> Mapping[str, Any]:
    """A shipped recipe on a federation of a moment."""
    return resolve(override(load(recipe), SMALL))


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    killed: bool
    code: int
    seconds: float
    error: str = ""


# ---------------------------------------------------------------- one process


def play(recipe: str, out: Path) -> None:
    """The run, from where it is."""
    run_resolved(small(recipe), seed=SEED, workers=1, out=out, resume=True)


def forked(
    recipe: str, out: Path, *, before: Callable[[], None] = lambda: None, kill_after: float = 1e9
) -> Ended:
    """Play a run in a process of its own, killed after so many seconds; ``before`` is called in
    it first.
    """
    (read, write), began = os.pipe(), time.monotonic()
    pid = os.fork()
    if pid == 0:
        _child(recipe, out, write, before)
    os.close(write)
    while time.monotonic() - began < kill_after:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        time.sleep(0.0005)
    else:
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    code = -1 if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    with open(read, encoding="utf8") as said:
        return Ended(killed, code, time.monotonic() - began, said.read())


def _child(recipe: str, out: Path, write: int, before: Callable[[], None]) -> None:
    code = DIED
    warnings.simplefilter("ignore")
    try:
        before()
        play(recipe, out)
        code = 0
    except FedskewError as error:
        code = REFUSED
        os.write(write, str(error).encode()[:4000])
    except BaseException as error:
        os.write(write, repr(error).encode()[:4000])
    finally:
        os._exit(code)


def kill_at_operation(folder: Path, number: int) -> Callable[[], None]:
    """What makes a process kill itself just before its so-manieth file operation in a folder."""

    def begin() -> None:
        left, within = [number], str(folder)

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event in ("open", "os.rename", "os.remove") and str(arguments[0]).startswith(within):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)

    return begin


def full_after(size: int) -> Callable[[], None]:
    """What makes a process meet a full disk: no file may become larger than this."""

    def begin() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    return begin


def _command(recipe: str, out: Path) -> list[str]:
    settings = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]
    start = [sys.executable, "-m", "fedskew", "run", recipe, "--seed", str(SEED), "--resume"]
    return [*start, "--quiet", "--json", "--workers", "2", "--out", str(out), *settings]


def _killed_command(recipe: str, out: Path, chance: random.Random) -> bool:
    """Whether a command line with two workers could be killed: as soon as so many rounds are
    there.
    """
    process = subprocess.Popen(
        _command(recipe, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    lines, path = chance.randint(0, 5), out / "rounds.jsonl"
    while process.poll() is None:
        if path.is_file() and path.read_bytes().count(b"\n") > lines:
            break
        time.sleep(0.001)
    process.kill()
    return process.wait() == -signal.SIGKILL


# ---------------------------------------------------------------- one run


class Undisturbed:
    """What every recipe leaves if nobody disturbs it, and how long that takes."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._known: dict[str, tuple[dict[str, Any], float]] = {}

    def of(self, recipe: str) -> tuple[dict[str, Any], float]:
        """(contents of its folder, seconds)."""
        if recipe not in self._known:
            out = self._place / f"whole-{recipe}"
            forked(recipe, out)  # once more: the first also reads files from a cold disk
            shutil.rmtree(out, ignore_errors=True)
            ended = forked(recipe, out)
            if ended.code:
                raise RuntimeError(f"{recipe} cannot be played undisturbed: {ended.error}")
            self._known[recipe] = comparable(out), ended.seconds
        return self._known[recipe]


def killed_run(
    recipe: str, number: int, undisturbed: Undisturbed, place: Path, *, command: bool = False
) -> dict[str, Any]:
    """Kill a run (or, with ``command``, a command line with two workers) some times, let it finish,
    compare: {"kills": ..., "outcome": ...}.
    """
    whole, seconds = undisturbed.of(recipe)
    chance, out, kills = random.Random(f"{recipe}-{number}"), place / "run", 0
    shutil.rmtree(out, ignore_errors=True)
    for _ in range(chance.randint(1, MOST_KILLS)):
        if command:
            kills += _killed_command(recipe, out, chance)
        elif chance.random() < 1 / 3:
            ended = forked(recipe, out, before=kill_at_operation(out, chance.randrange(40)))
            kills += ended.killed
        else:
            kills += forked(recipe, out, kill_after=chance.uniform(0, seconds)).killed
    return {"recipe": recipe, "kills": kills, "outcome": _finished(recipe, out, whole)}


def full_disk_run(
    recipe: str, number: int, undisturbed: Undisturbed, place: Path
) -> dict[str, Any]:
    """A disk that is full at some moment, then has room again: {"full": ..., "outcome": ...}."""
    whole, _ = undisturbed.of(recipe)
    chance, out = random.Random(f"full-{recipe}-{number}"), place / "full"
    disk, sizes = Disk(out), [len(c) for c in whole.values() if isinstance(c, bytes)]
    ended = disk.play(recipe, chance.randrange(1, 3 * max(sizes)), chance)
    outcome = "error of ours" if ended.code == REFUSED else "fitted" if not ended.code else "died"
    if outcome == "error of ours" and "Free some space" not in ended.error:
        outcome = f"another error: {ended.error}"
    try:
        disk.make_room()
        again = _finished(recipe, disk.out, whole)
    finally:
        disk.close()
    return {"recipe": recipe, "full": outcome, "outcome": again}


class Disk:
    """A file system that is too small, where one may be mounted; else files that may not grow."""

    def __init__(self, place: Path) -> None:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        self._place, self.out = place, place / "run"
        self._mounted = False

    def play(self, recipe: str, size: int, chance: random.Random) -> Ended:
        """A run on it."""
        self._mounted = chance.random() < 0.5 and self._mount("size", size)
        limit = (lambda: None) if self._mounted else full_after(size)
        return forked(recipe, self.out, before=limit)

    def make_room(self) -> None:
        """From now on everything fits."""
        if self._mounted:
            self._mount("remount,size", 1 << 28)

    def close(self) -> None:
        """Let go of it."""
        if self._mounted:
            subprocess.run(["umount", str(self._place)], check=True)
        shutil.rmtree(self._place)

    def _mount(self, option: str, size: int) -> bool:
        command = ["mount", "-t", "tmpfs", "-o", f"{option}={max(size, 4096)}", "tmpfs"]
        try:
            done = subprocess.run([*command, str(self._place)], capture_output=True)
        except OSError:
            return False
        return done.returncode == 0


def _finished(recipe: str, out: Path, whole: dict[str, Any]) -> str:
    """Let a run go on to its end: "same", or what differs."""
    ended = forked(recipe, out, kill_after=PATIENCE)
    if ended.killed:
        return f"did not end in {PATIENCE:.0f} s"
    if ended.code:
        return f"failed: {ended.error}"
    found = comparable(out)
    differing = sorted(k for k in {**whole, **found} if whole.get(k) != found.get(k))
    return f"differs: {', '.join(differing)}" if differing else "same"
