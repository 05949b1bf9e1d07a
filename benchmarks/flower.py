"""The same job on Flower's simulation engine, in an environment of its own (.venv-flower), and the ratios to fedskew.

Two federations: K=100 clients of 600 examples and K=10,000 of 60 (with repetition of the 60,000 images), m=10, MLP 784-200-200-10,
batch 64, one epoch. Steady rounds (the first two left out), and 20 rounds including start-up. Exit code 1 if a limit is missed.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from table import Figure, report

HERE = Path(__file__).resolve().parent
ENVIRONMENT = HERE.parent / ".venv-flower"
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}
CASES = {"100": (100, 600), "10000": (10_000, 60)}


def install() -> Path:
    python = ENVIRONMENT / "bin" / "python"
    if not (ENVIRONMENT / ".ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", "torch==2.13.0", "numpy", "flwr[simulation]==1.41.0"], check=True
        )
        (ENVIRONMENT / ".ready").touch()
    return python


def flower_times(python: Path, clients: int, examples: int) -> dict[str, float]:
    script = HERE / "flower_app.py"
    done = subprocess.run(
        [str(python), str(script), str(clients), str(examples)],
        capture_output=True, text=True, env={**os.environ, **QUIET}, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        sys.exit(f"Flower's simulation failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return json.loads(lines[-1].removeprefix("RESULT "))


def our_times(clients: int, examples: int) -> dict[str, float]:
    code = f"import benchmark_ours; benchmark_ours.main({clients}, {examples})"
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, check=True)
    whole = time.perf_counter() - began
    seconds = json.loads(done.stdout.splitlines()[-1])
    return {"whole": whole, "steady": statistics.median(seconds[2:])}


def main() -> int:
    python = install()
    figures = []
    for name, (clients, examples) in CASES.items():
        theirs, ours = flower_times(python, clients, examples), our_times(clients, examples)
        note = f"{1000 * theirs['steady']:.0f} ms against {1000 * ours['steady']:.1f} ms"
        limit = 4.0 if name == "100" else 15.0
        figures.append(
            Figure(f"K={clients}: Flower round / ours", theirs["steady"] / ours["steady"], limit, note, at_least=True)
        )
        note = f"{theirs['whole']:.1f} s against {ours['whole']:.1f} s"
        limit20 = 5.0 if name == "100" else None
        figures.append(
            Figure(f"K={clients}: 20 rounds with start-up", theirs["whole"] / ours["whole"], limit20, note, at_least=True)
        )
    return report("Against Flower's simulation engine (flwr 1.41.0 + Ray)", figures)


if __name__ == "__main__":
    sys.exit(main())
