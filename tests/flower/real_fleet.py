"""Real SuperLinks and SuperNodes on loopback for tests; every one is stopped by the test that started it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fedskew.deploy.app import write_app
from fedskew.recipe import load, override, resolve
from fedskew.records import read_rounds

PATIENCE_SECONDS = 400.0  # a message takes 3 s on two idle cores, 20 s on busy ones


def make_app(folder: Path, recipe: str, settings: dict[str, object], *, seed: int = 5, extra: str = "") -> Path:
    """An app as `fedskew flower new` writes it; ``extra`` goes to the end of its task.py."""
    write_app(folder, resolve(override(load(recipe), settings)), seed=seed)
    if extra:
        text = (folder / "task.py").read_text()
        (folder / "task.py").write_text(text.replace("\ntask = ", f"{extra}\n\ntask = "))
    return folder


def run_app(home: Path, folder: Path, *more: str) -> subprocess.Popen[str]:
    """`fedskew flower run` in the background; its output goes to FOLDER.log."""
    command = [sys.executable, "-m", "fedskew", "flower", "run", str(folder), "--home", str(home), *more]
    with open(f"{folder}.log", "a") as output:
        return subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, text=True, env={**os.environ, "COLUMNS": "160"}
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


def wait_for(what: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.1)


def rounds_done(run: Path) -> int:
    """The last round on disk, -1 before there is any."""
    records = read_rounds(run)
    return records[-1].round if records else -1
