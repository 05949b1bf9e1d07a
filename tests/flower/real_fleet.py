"""Real SuperLinks and SuperNodes on loopback; every one is stopped by the test that started it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from typer.testing import CliRunner

from fedskew.cli.flower import app as commands
from fedskew.deploy import local_fleet
from fedskew.deploy.app import write_app
from fedskew.deploy.flower_cli import environment
from fedskew.deploy.local_fleet import supernode_command
from fedskew.deploy.processes import Started, start
from fedskew.deploy.warm import warm_environment
from fedskew.recipe import load, override, resolve

# only against hanging for ever: a message takes 5 s on two idle cores, 40 s when ten others want
# them
PATIENCE_SECONDS = 800.0


def make_app(folder: Path, recipe: str, settings: dict[str, object], *, seed: int = 5) -> Path:
    """An app as `fedskew flower new` writes it."""
    write_app(folder, resolve(override(load(recipe), settings)), seed=seed)
    return folder


def run_app(home: Path, folder: Path, *more: str) -> subprocess.Popen[str]:
    """`fedskew flower run` in the background; its output goes to FOLDER.log. All clients of the
    recipe come, however busy the machine is, so waiting long costs nothing.
    """
    if not any(word.startswith("wait-seconds") for word in more):
        more = (*more, "--config", "wait-seconds=600")
    command = [
        sys.executable,
        "-m",
        "fedskew",
        "flower",
        "run",
        str(folder),
        "--home",
        str(home),
        *more,
    ]
    with open(f"{folder}.log", "a") as output:
        return subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "COLUMNS": "160"},
        )


def finish(process: subprocess.Popen[str], folder: Path, code: int | None = 0) -> str:
    """Wait for the end of a run; what it printed."""
    try:
        ended = process.wait(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    said = Path(f"{folder}.log").read_text()
    assert code is None or ended == code, said
    return said


def wait_for(
    what: Callable[[], bool],
    during: subprocess.Popen[str] | None = None,
    seconds: float = PATIENCE_SECONDS,
) -> None:
    """Until something is so, while a run is going on; one that ends too early fails at once."""
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "waited in vain"
        assert during is None or during.poll() is None, "the run has ended"
        time.sleep(0.1)


def said(home: Path, *words: str) -> str:
    """What a command of ``fedskew flower`` prints, if all goes well."""
    done = CliRunner().invoke(commands, [*words, "--home", str(home)])
    assert done.exception is None, (done.output, done.exception)
    return done.output


def pid_of(home: Path, name: str) -> int:
    return next(p.pid for p in local_fleet.read_fleet(home).processes if p.name == name)


def log_of(home: Path, name: str) -> str:
    return next(p.log for p in local_fleet.read_fleet(home).processes if p.name == name)


def is_online(log: str, times: int = 1) -> bool:
    """Whether a SuperNode has said that the SuperLink knows it, this many times."""
    return Path(log).read_text().count("SuperNode ID: ") >= times


def nodes_of(fleet: local_fleet.Fleet) -> list[Started]:
    """The SuperNodes that `up` started."""
    return [process for process in fleet.processes if process.name.startswith("node-")]


def extra_node(fleet: local_fleet.Fleet, client: int, folder: Path) -> Started:
    """A SuperNode that is no part of what `up` started: whoever starts it stops it."""
    name = f"extra-{client}"
    return start(
        name,
        supernode_command(fleet, client, 8, None),
        folder / f"{name}.log",
        warm_environment(fleet.folder / "warm", environment(folder / name)),
    )
