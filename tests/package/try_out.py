"""Install a built wheel in fresh environments and use it: `make package`.

For every Python of this machine from 3.11 on: an environment with the wheel alone, which measures;
then, where PyTorch is tested (constraints.txt), one extra after the other, and a run, a comparison
and a report. Extras that have environments of their own elsewhere are only resolved.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
TRAINS_ON = "3.11"  # constraints.txt: PyTorch's CPU build of that version
COUNTS = "client,a,b\nnorth,30,2\nsouth,3,40\nharbour,12,11\n"
SMALL = ("--set", "run.rounds=2", "--set", "data.clients=6", "--set", "run.clients_per_round=3")
# extra -> modules that it must bring
EXTRAS = {
    "tables": ("pandas", "pyarrow"),
    "report": ("matplotlib",),
    "private": ("opendp",),
    "torch": ("torch", "cloudpickle", "PIL"),
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow",),
    "energy": ("codecarbon",),
}
RESOLVED = {  # extra -> its constraints
    "flower": "constraints-flower.txt",
    "docs": "constraints-docs.txt",
    "dev": "constraints.txt",
}
BARE = [
    ("--help",),
    ("list", "recipes"),
    ("measure", "--data", "digits", "--clients", "8"),
    ("measure", "counts.csv"),
]
WITH = {
    "tables": [("measure", "counts.csv")],
    "report": [("measure", "counts.csv", "--figures", "figures")],
    "private": [("measure", "counts.csv", "--epsilon", "1")],
    "torch": [
        ("run", "fedavg", *SMALL, "--out", "runs/one", "--quiet"),
        ("compare", "fedavg", "fedavgm", "--seeds", "0-1", *SMALL, "--out", "runs/two", "--quiet"),
        ("report", "runs/two", "-o", "report.html"),
        ("measure", "runs/one"),
    ],
}


def pythons() -> Iterator[tuple[str, str]]:
    """Every version that works on this machine, and its program."""
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in PYTHONS:
        tried = [shutil.which(f"python{version}"), *sorted(home.glob(f"{version}*/bin/python"))]
        for program in (str(path) for path in tried if path):
            asked = [program, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"]
            said = subprocess.run(asked, capture_output=True, text=True)
            if said.stdout.strip() == version:
                yield version, program
                break


def try_python(version: str, program: str, wheel: Path, extras: Sequence[str]) -> None:
    """The wheel in a new environment of this Python, in an empty folder."""
    with tempfile.TemporaryDirectory(prefix=f"fedskew-{version}-") as name:
        folder = Path(name)
        (folder / "counts.csv").write_text(COUNTS)
        call([program, "-m", "venv", str(folder / "env")], folder)
        install(folder, wheel, "")
        use(folder, BARE)
        for extra in extras if version == TRAINS_ON else [e for e in extras if e == "tables"]:
            install(folder, wheel, extra)
            use(folder, WITH.get(extra, []))
        for extra in RESOLVED if version == TRAINS_ON else ():
            install(folder, wheel, extra, "--dry-run", constraints=RESOLVED[extra])
        shutil.rmtree(folder / "env")


def install(
    folder: Path, wheel: Path, extra: str, *options: str, constraints: str = "constraints.txt"
) -> None:
    """Install the wheel with an extra; what the extra promises must be there afterwards."""
    wanted = f"fedskew[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
    pip = [str(folder / "env" / "bin" / "python"), "-m", "pip", "--quiet"]
    call([*pip, "install", "--constraint", str(ROOT / constraints), *options, wanted], folder)
    if not options:
        call([*pip, "check"], folder)
        imports = "; ".join(f"import {module}" for module in EXTRAS.get(extra, ("fedskew",)))
        call([str(folder / "env" / "bin" / "python"), "-c", imports], folder)
    print(
        f"  installed{' (resolved only)' if options else ''}: {extra or 'the wheel alone'}",
        flush=True,
    )


def use(folder: Path, commands: Sequence[Sequence[str]]) -> None:
    """Run the program as installed."""
    for words in commands:
        call([str(folder / "env" / "bin" / "fedskew"), *words], folder)
        print(f"  fedskew {' '.join(words)}", flush=True)


def call(words: Sequence[str], folder: Path) -> None:
    """Run a program there, away from the repository; its output only if it fails."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, cwd=folder, env=clean, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dist", type=Path, help="Folder with the wheel.")
    parser.add_argument("--pythons", help="Only these, for example 3.11,3.12.")
    parser.add_argument("--extras", help="Only these, for example tables,torch.")
    given = parser.parse_args()
    (wheel,) = given.dist.resolve().glob("*.whl")
    wanted = given.pythons.split(",") if given.pythons else PYTHONS
    found = [pair for pair in pythons() if pair[0] in wanted]
    if not found:
        sys.exit(f"none of Python {', '.join(wanted)} is on this machine")
    for version, program in found:
        print(f"Python {version} ({program})", flush=True)
        try_python(version, program, wheel, given.extras.split(",") if given.extras else [*EXTRAS])
    print(f"{wheel.name} works on Python {', '.join(version for version, _ in found)}")


if __name__ == "__main__":
    main()
