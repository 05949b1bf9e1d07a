"""The same job on Flower's simulation engine, and the ratios to fedskew.

In an environment of its own (.venv-flower).

Two federations: K=100 clients of 600 examples and K=10,000 of 60 (with repetition of the 60,000
images), m=10, one epoch of batches of 64, MLP 784-200-200-10. Steady rounds (the first two left
out), and 20 rounds from the start of the interpreter to its end. The two sides take turns and
medians are compared, so that a noisy machine hurts both. Exit code 1 if a limit is missed.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from table import Figure, report

HERE = Path(__file__).resolve().parent
ENVIRONMENT = HERE.parent / ".venv-flower"
PACKAGES = ("torch==2.13.0", "numpy", "flwr[simulation]==1.41.0")
SETTINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",  # or idle threads spin on the core the other client process needs
    # Ray puts its workers at 15: whatever else runs here would slow Flower alone
    "RAY_worker_niceness": "0",
}
# clients, examples, least ratio of a round, of 20 with start-up
CASES = ((100, 600, 4.0, 5.0), (10_000, 60, 15.0, None))
TURNS, PATIENCE_SECONDS = 3, 900


def install() -> Path:
    """Flower's interpreter; the first time this takes some minutes and 1.4 GB."""
    python = ENVIRONMENT / "bin" / "python"
    if not (ENVIRONMENT / ".ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        (ENVIRONMENT / ".ready").touch()
    return python


def play(python: str, script: str, clients: int, examples: int) -> tuple[float, float]:
    """Seconds of 20 rounds with start-up, and of a steady round. Output goes to a file: a pipe
    would wait for Ray's daemons.
    """
    with (
        tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder,
        open(f"{folder}/out", "w+") as out,
    ):
        began = time.perf_counter()
        done = subprocess.run(
            [python, script, str(clients), str(examples)],
            cwd=HERE,
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
            env={**os.environ, **SETTINGS, "RAY_TMPDIR": folder, "FLWR_HOME": folder},
            timeout=PATIENCE_SECONDS,
        )
        whole = time.perf_counter() - began
        out.seek(0)
        printed = out.read()
    results = [line for line in printed.splitlines() if line.startswith("RESULT ")]
    if done.returncode or not results:
        sys.exit(f"{script} {clients} {examples} failed:\n{printed[-6000:]}")
    return whole, json.loads(results[-1].removeprefix("RESULT "))["steady"]


def compare(
    python: Path, clients: int, examples: int, least_round: float, least_whole: float | None
) -> list[Figure]:
    theirs, ours = [], []
    for _ in range(TURNS):
        theirs.append(play(str(python), "flower_app.py", clients, examples))
        ours.append(play(sys.executable, "benchmark_ours.py", clients, examples))
    (whole, steady), (our_whole, our_steady) = (
        [statistics.median(column) for column in zip(*side, strict=True)] for side in (theirs, ours)
    )
    note, note20 = (
        f"{1000 * steady:.0f} ms against {1000 * our_steady:.1f} ms",
        f"{whole:.1f} s against {our_whole:.1f} s",
    )
    return [
        Figure(
            f"K={clients}: Flower round / ours",
            steady / our_steady,
            least_round,
            note,
            at_least=True,
        ),
        Figure(
            f"K={clients}: 20 rounds with start-up",
            whole / our_whole,
            least_whole,
            note20,
            at_least=True,
        ),
    ]


def main() -> int:
    python = install()
    figures = [figure for case in CASES for figure in compare(python, *case)]
    engine = f"Flower's simulation engine ({PACKAGES[-1]} + Ray)"
    return report(f"Against {engine}, medians of {TURNS} runs in turn", figures)


if __name__ == "__main__":
    sys.exit(main())
