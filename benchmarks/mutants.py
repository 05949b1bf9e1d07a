"""Would a test notice? Sampled small changes to the code, each played against the tests that
concern its module (METHODS and accounting live or die by them).

    make mutants                                   300 mutants, at most 30 minutes, goes on later
    python benchmarks/mutants.py --limit 10        a few of them
    python benchmarks/mutants.py --wide            survivors once more, against all quick tests

The sample is a seeded shuffle of all mutants, so a larger ``--limit`` only adds to a smaller one.
Results are kept in evidence/mutants/results.json by the text of the file they are about: a file
that has changed is played again. A mutant that times out is killed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from mutations import Mutant, mutants_of

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "evidence" / "mutants"
TIMEOUT = 300.0  # seconds for all tests of one mutant
WIDE = ["tests/unit", "tests/golden", "tests/contract", "tests/parity", "tests/recipes"]
QUICK = ["tests/golden", "tests/contract", "tests/unit/test_federation.py", "tests/unit/personal"]
REFERENCE = "tests/parity/test_reference_loop.py"
# Where mutants are made, and which tests play them, the quick and the likely first.
TESTS: dict[str, list[str]] = {
    "selection": [
        "tests/golden",
        "tests/unit/selection",
        REFERENCE,
        "tests/contract/test_selection_contract.py",
    ],
    "procedure": [
        "tests/unit/test_procedure_chains.py",
        "tests/unit/test_procedure_adaptive.py",
        "tests/unit/test_sequential.py",
        "tests/unit/personal",
        REFERENCE,
        "tests/contract/test_procedure_contract.py",
        "tests/parity/test_procedures.py",
    ],
    "objective": ["tests/parity/test_objectives.py", "tests/unit/test_recipe.py"],
    "aggregation": [
        "tests/unit/test_aggregation.py",
        "tests/parity/test_server_optimisers.py",
        REFERENCE,
    ],
    "accounting": [
        "tests/golden/test_accounting_oracles.py",
        "tests/unit/test_clock.py",
        "tests/unit/test_costs.py",
        "tests/unit/test_participation.py",
        "tests/unit/test_targets.py",
        "tests/unit/personal/test_fairness.py",
        REFERENCE,
        "tests/unit/test_driver.py",
    ],
    "loop": [
        "tests/unit/test_federation.py",
        "tests/unit/test_asking.py",
        "tests/unit/test_combinations.py",
        REFERENCE,
        "tests/unit/test_costs.py",
        "tests/unit/test_probe.py",
        "tests/unit/test_late_clients.py",
        "tests/unit/test_batch_norm.py",
        "tests/unit/personal",
    ],
    "labels": [
        "tests/golden",
        "tests/unit/selection",
        "tests/unit/test_procedure_chains.py",
        "tests/unit/test_procedure_adaptive.py",
    ],
    "signal": [
        "tests/unit/test_signal_counts.py",
        "tests/unit/test_signal_estimated.py",
        "tests/unit/test_signal_private.py",
        "tests/unit/test_signal_quality.py",
        "tests/unit/test_probe.py",
    ],
    "clustering": [
        "tests/unit/test_clustering_labels.py",
        "tests/unit/test_clustering_silhouette.py",
        "tests/unit/test_clustering_count.py",
        "tests/unit/test_clustering_density.py",
        "tests/unit/test_clustering_algorithms.py",
        "tests/contract/test_clustering_contract.py",
        "tests/unit/test_clustering_scale.py",
    ],
    "distance": [
        "tests/golden/test_distance_oracles.py",
        "tests/unit/test_distance.py",
        "tests/unit/test_skew.py",
        "tests/contract/test_distance_contract.py",
    ],
    "runtime/local/step.py": [
        "tests/parity/test_local_engine.py",
        "tests/parity/test_fast_paths.py",
        "tests/parity/test_objectives.py",
        "tests/unit/test_batch_norm.py",
    ],
}


# ---------------------------------------------------------------- the sample


def sample(seed: int) -> list[Mutant]:
    """All mutants in the order in which they are played."""
    found = [mutant for area in TESTS for file in _files(area) for mutant in _of_file(file)]
    random.Random(seed).shuffle(found)
    return found


def _files(area: str) -> list[Path]:
    place = ROOT / "src" / "fedskew" / area
    return [place] if place.is_file() else sorted(place.rglob("*.py"))


def _of_file(file: Path) -> list[Mutant]:
    return mutants_of(str(file.relative_to(ROOT)), file.read_text())


def tests_of(mutant: Mutant, *, wide: bool) -> list[str]:
    """The examples in the file itself, and the tests of its area that exist."""
    if wide:
        return [mutant.file, *WIDE]
    inside = mutant.file.removeprefix("src/fedskew/")
    area = next((area for area in TESTS if inside.startswith(area)), "")
    return [mutant.file, *(t for t in TESTS.get(area, QUICK) if (ROOT / t).exists())]


# ---------------------------------------------------------------- playing


def workshop() -> Path:
    """A copy of the code and its tests in which files may be changed."""
    place = Path(tempfile.mkdtemp(prefix="mutants-"))
    for name in ("src", "tests"):
        shutil.copytree(
            ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    for other in ROOT.iterdir():
        if other.name not in ("src", "tests", "runs") and not other.name.startswith("."):
            (place / other.name).symlink_to(other)
    return place


def killer(place: Path, tests: list[str]) -> str:
    """The first test that fails; "" if none does."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=no"]
    environment = {**os.environ, "PYTHONPATH": str(place / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    try:
        ended = subprocess.run(
            [*command, "--timeout=120", "-rfE", *tests],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        return f"timeout after {TIMEOUT:.0f} s"
    if ended.returncode == 0:
        return ""
    named = re.search(r"^(?:FAILED|ERROR) (\S+)", ended.stdout, re.MULTILINE)
    if named is None and ended.returncode not in (1, 2, 3):
        raise SystemExit(f"pytest ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
    return named.group(1) if named else f"pytest ended with {ended.returncode}"


def play(mutant: Mutant, place: Path, *, wide: bool) -> dict[str, object]:
    """One mutant against its tests; the file is as before afterwards."""
    began, file = time.monotonic(), place / mutant.file
    text = file.read_text()
    file.write_text(mutant.applied(text))
    try:
        killed_by = killer(place, tests_of(mutant, wide=wide))
    finally:
        file.write_text(text)
    return {
        "file": mutant.file,
        "line": mutant.line,
        "what": mutant.what,
        "source": source_of(mutant.file),
        "killed_by": killed_by,
        "wide": wide,
        "seconds": round(time.monotonic() - began, 1),
    }


def source_of(file: str) -> str:
    """A short name of the text of a file."""
    return hashlib.sha256((ROOT / file).read_bytes()).hexdigest()[:12]


def check_untouched(place: Path, todo: list[Mutant], *, wide: bool) -> None:
    """Without a change all tests pass; else every mutant would count as killed."""
    for tests in {tuple(tests_of(mutant, wide=wide)[1:]) for mutant in todo}:
        failing = killer(place, list(tests))
        if failing:
            raise SystemExit(f"{failing} fails without any mutant: mend that first")


# ---------------------------------------------------------------- results


def read_results() -> dict[str, dict[str, object]]:
    """What is known and still about the code as it is."""
    file = FOLDER / "results.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    sources = {name: source_of(name) for name in {r["file"] for r in known.values()} if _is(name)}
    return {i: r for i, r in known.items() if sources.get(r["file"]) == r["source"]}


def _is(name: str) -> bool:
    return (ROOT / name).exists()


def write_results(results: dict[str, dict[str, object]], total: int) -> None:
    """The results, and a page with the survivors by file and line."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    ordered = dict(sorted(results.items(), key=lambda r: (r[1]["file"], r[1]["line"], r[0])))
    (FOLDER / "results.json").write_text(json.dumps(ordered, indent=1) + "\n")
    (FOLDER / "README.md").write_text(page(list(ordered.values()), total))


def page(results: list[dict[str, object]], total: int) -> str:
    """The page in Markdown."""
    survivors = [r for r in results if not r["killed_by"]]
    killed, share = len(results) - len(survivors), 1 - len(survivors) / max(1, len(results))
    lines = [
        "# Mutants",
        "",
        "Small changes to the code, and whether a test notices. `make mutants` plays more of them.",
        f"{len(results)} of {total} possible mutants played, {killed} killed ({share:.1%}).",
        "",
        "| room | played | killed |",
        "|---|---|---|",
    ]
    rooms = Counter(_room(r) for r in results)
    lost = Counter(_room(r) for r in survivors)
    lines += [f"| {room} | {n} | {n - lost[room]} |" for room, n in sorted(rooms.items())]
    lines += ["", "## Survivors", ""]
    lines += [f"- `{r['file']}:{r['line']}` `{r['what']}`" for r in survivors] or ["None."]
    return "\n".join(lines) + "\n"


def _room(result: dict[str, object]) -> str:
    return str(result["file"]).removeprefix("src/fedskew/").split("/")[0]


def main() -> None:
    """Play until the limit, or until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=int, default=300, help="mutants in all, played before too")
    parser.add_argument("--minutes", type=float, default=30.0, help="no new mutant after these")
    parser.add_argument("--workers", type=int, default=2, help="mutants played at once")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--wide", action="store_true", help="play survivors against more tests")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    everything, results = sample(options.seed), read_results()
    chosen = everything[: options.limit]
    todo = [mutant for mutant in chosen if mutant.id not in results]
    if options.wide:
        todo = [m for m in chosen if m.id in results and not results[m.id]["killed_by"]]
    places: SimpleQueue[Path] = SimpleQueue()
    shops = [workshop() for _ in range(options.workers)]
    for shop in shops:
        places.put(shop)

    def work(mutant: Mutant) -> None:
        if time.monotonic() > end:
            return
        place = places.get()
        result = play(mutant, place, wide=options.wide)
        places.put(place)
        results[mutant.id] = result
        print(f"{result['file']}:{result['line']}  {result['what']}", flush=True)
        print(f"    {result['killed_by'] or 'SURVIVED'}  ({result['seconds']} s)", flush=True)
        write_results(dict(results), len(everything))

    try:
        check_untouched(shops[0], todo, wide=options.wide)
        with ThreadPoolExecutor(options.workers) as pool:
            list(pool.map(work, todo))
    finally:
        for shop in shops:
            shutil.rmtree(shop)
    waiting = sum(mutant.id not in results for mutant in chosen)
    print(f"{FOLDER / 'README.md'}; {waiting} of {len(chosen)} wait for another run")


if __name__ == "__main__":
    main()
