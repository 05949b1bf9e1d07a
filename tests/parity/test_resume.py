"""A run killed at any moment, then resumed, leaves the same bytes as one that was never killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
SETTINGS = [
    "run.rounds=40",
    "run.checkpoint_seconds=0.05",
    "faults.dropout=0.1",
    "faults.nan=0.05",
    "run.min_ok=0",
]


def command(out: Path, *, workers: int, resume: bool = False) -> list[str]:
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    more = ["--resume"] if resume else []
    options = ["--seed", "7", "--out", str(out), "--quiet", "--json", "--workers", str(workers)]
    return [sys.executable, "-m", "fedskew", "run", "fedavg", *options, *settings, *more]


def contents(folder: Path) -> dict[str, object]:
    """Everything a run leaves that must repeat, times taken out."""
    rounds = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    for record in rounds:
        del record["times"]
    result = json.loads((folder / "result.json").read_text())
    del result["seconds"], result["out"], result["sum"]
    files = ("final.safetensors", "checkpoint.safetensors", "clients.json", "recipe.toml")
    return {
        "rounds": rounds,
        "result": result,
        **{name: (folder / name).read_bytes() for name in files},
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The folder of a run that nobody disturbed, with one worker."""
    out = tmp_path_factory.mktemp("whole") / "run"
    subprocess.run(command(out, workers=1), check=True, capture_output=True)
    return out


@pytest.fixture(scope="module")
def whole(undisturbed):
    """What that run left."""
    return contents(undisturbed)


def test_two_workers_leave_the_same_bytes(whole, tmp_path):
    subprocess.run(command(tmp_path / "run", workers=2), check=True, capture_output=True)
    assert contents(tmp_path / "run") == whole
    assert whole["result"]["failures"] > 0


def kill_after(process: subprocess.Popen[bytes], out: Path, rounds: int) -> None:
    """Kill -9 as soon as this many rounds are on disk (0 = as soon as the folder exists)."""
    path = out / "rounds.jsonl"
    while process.poll() is None:
        written = path.read_bytes().count(b"\n") if path.is_file() else -1
        if written >= rounds or (rounds == 0 and out.is_dir()):
            break
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def test_killed_again_and_again_then_resumed(whole, tmp_path):
    """With another number of workers each time; `make drill` does it a thousand times."""
    out, chance = tmp_path / "run", random.Random(1)
    moments = [0, chance.randint(2, 12), chance.randint(13, 24), chance.randint(25, 35)]
    for attempt, moment in enumerate(moments):
        process = subprocess.Popen(
            command(out, workers=1 + attempt % 2, resume=attempt > 0), stdout=subprocess.DEVNULL
        )
        kill_after(process, out, moment)
    assert not (out / "result.json").exists(), (
        "the run ended before it could be killed: make it longer"
    )
    subprocess.run(command(out, workers=1, resume=True), check=True, capture_output=True)
    assert contents(out) == whole


def children(pid: int | str) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_workers_end_when_their_parent_is_killed(tmp_path):
    out = tmp_path / "run"
    process = subprocess.Popen(command(out, workers=2), stdout=subprocess.DEVNULL)
    while not (out / "rounds.jsonl").is_file():
        time.sleep(0.01)
    nursery = children(process.pid)
    workers = [worker for pid in nursery for worker in children(pid)]
    assert (len(nursery), len(workers)) == (1, 2)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in (*nursery, *workers)):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.05)


def test_ctrl_c_stops_cleanly_and_resume_goes_on(whole, tmp_path):
    out = tmp_path / "run"
    process = subprocess.Popen(
        command(out, workers=2), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    while not (out / "rounds.jsonl").is_file():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    if process.returncode != 0:  # a quick machine may have finished
        assert process.returncode == 130
        assert (
            errors.decode().strip().splitlines()[-1]
            == "stopped; finished rounds are on disk, --resume goes on"
        )
    subprocess.run(command(out, workers=1, resume=True), check=True, capture_output=True)
    assert contents(out) == whole


def test_resuming_a_finished_run_shows_it(undisturbed, whole):
    def times() -> dict[str, int]:
        return {p.name: p.stat().st_mtime_ns for p in undisturbed.iterdir() if p.name != ".lock"}

    before = times()
    again = subprocess.run(
        command(undisturbed, workers=1, resume=True), check=True, capture_output=True
    )
    assert json.loads(again.stdout)["final_accuracy"] == whole["result"]["final_accuracy"]
    assert before == times()
