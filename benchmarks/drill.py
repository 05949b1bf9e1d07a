"""The drill: what happens to runs and their folders when everything goes wrong.

    make drill                                     at most 30 minutes, adds to earlier calls
    python benchmarks/drill.py --minutes 5         less of it
    python benchmarks/drill.py --only kills        one part: kills, damage, disk, fuzz

Kills over all shipped recipes, damage to run folders, full disks, and the fuzzing of messages.
Results add up over calls in evidence/drill/results.json, call by call with the commit they were
made with; the page beside it is written from them.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from damage import OUTCOMES, Damage, damages, outcome_of
from fedskew.evidence.results import maker_facts
from fedskew.experiment.local import run_resolved
from fedskew.experiment.references import with_references
from fedskew.recipe import shipped_recipes
from fedskew.records import write_atomically
from kills import (
    SEED,
    Undisturbed,
    full_disk_run,
    killed_run,
    play,
    small,
)

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "evidence" / "drill"
RESULTS, PAGE = FOLDER / "results.json", FOLDER / "README.md"
FUZZ = ROOT / "tests" / "flower" / "fuzz.py"  # make fuzz
FLOWER = ROOT / ".venv-flower" / "bin" / "python"
MESSAGES = 5_000  # of one call of it
SHARES = {"damage": 0.2, "disk": 0.15, "fuzz": 0.15, "kills": 0.5}  # of the minutes
DAMAGED = ("fedavg", "clust_psi_pfl", "scaffold", "fedlecc")  # whose folders are damaged
COMMANDS = 20  # every so many runs one is a command line with two workers
SAVE_SECONDS = 20.0
Results = dict[str, Any]


# ---------------------------------------------------------------- results


def read_results() -> Results:
    """What was drilled before."""
    if RESULTS.is_file():
        found: Results = json.loads(RESULTS.read_text())
        return found
    return {"format": 1, "calls": [], "kills": {}, "damage": {}, "disk": {}, "fuzz": {}, "bad": []}


def write_results(results: Results) -> None:
    """The results and their page."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_atomically(RESULTS, (json.dumps(results, indent=1) + "\n").encode())
    write_atomically(PAGE, page(results).encode())


def count(table: dict[str, Any], key: str, entry: str, number: int = 1) -> None:
    """Add to a counter of a part."""
    row = table.setdefault(key, {})
    row[entry] = row.get(entry, 0) + number


def page(results: Results) -> str:
    """The page in Markdown, from the results and nothing else."""
    kills, damage, disk = results["kills"], results["damage"], results["disk"]
    killed = sum(row.get("kills", 0) for row in kills.values())
    runs = sum(row.get("runs", 0) for row in kills.values())
    bad = sum(row.get("bad", 0) for part in (kills, damage, disk) for row in part.values())
    harmed = sum(row.get(one, 0) for row in damage.values() for one in OUTCOMES)
    full = sum(row.get("error of ours", 0) for row in disk.values())
    fuzzed = results["fuzz"].get("messages", {})
    lines = [
        "# The drill",
        "",
        "What happens to runs and their folders when everything goes wrong. `make drill` adds to "
        "these numbers; one call takes at most 30 minutes.",
        "",
        "| what was done | how often | other bytes, silent or a traceback |",
        "|---|---|---|",
        f"| SIGKILL, then resumed ({runs} runs of {len(kills)} recipes) | {killed} "
        f"| {_bad(kills)} |",
        f"| damage to a file of a run folder | {harmed} | {_bad(damage)} |",
        f"| a disk that is full, then has room | {full} | {_bad(disk)} |",
        f"| hostile messages (`make fuzz`) | {fuzzed.get('sent', 0)} | {fuzzed.get('bad', 0)} |",
        "",
        "**Zero bad.**" if not bad + fuzzed.get("bad", 0) else "**Something is wrong**, see below.",
        "",
        "## Kills",
        "",
        "A run is killed one to four times: two of three times by the clock, the third just before "
        "a random file operation. Some runs are command lines with two workers. Then it finishes, "
        "and every file must have the bytes of a run that nobody disturbed.",
        "",
        "| recipe | runs | kills | of them with two workers | other bytes or no end |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {row.get('runs', 0)} | {row.get('kills', 0)} "
            f"| {row.get('with workers', 0)} | {row.get('bad', 0)} |"
            for name, row in sorted(kills.items())
        ),
        "",
        "## Damage",
        "",
        "One damage to one file of a finished or stopped run, then everything reads the folder and "
        "the run is resumed. Noticed: an error of ours, or a word and the right bytes. Harmless: "
        "nothing that anybody reads differs.",
        "",
        "| damage | noticed | harmless | silent | traceback |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | " + " | ".join(str(row.get(one, 0)) for one in OUTCOMES) + " |"
            for name, row in sorted(damage.items())
        ),
        "",
        "## Full disks",
        "",
        "A tiny file system, or files that may not grow, at a random size; then there is room, and "
        "the run is resumed.",
        "",
        "| recipe | error of ours | fitted all the same | bad |",
        "|---|---|---|---|",
        *(
            f"| {name} | {row.get('error of ours', 0)} | {row.get('fitted', 0)} "
            f"| {row.get('bad', 0)} |"
            for name, row in sorted(disk.items())
        ),
        "",
        "## What went wrong",
        "",
        *([f"- {text}" for text in results["bad"]] or ["Nothing."]),
        "",
        "## Calls",
        "",
        *(
            f"- {call['date']}, {call['commit']}, {call['machine']}: {call['kills']} kills, "
            f"{call['damage']} damages, {call['disk']} full disks, {call['messages']} messages, "
            f"{call['minutes']} minutes"
            for call in results["calls"]
        ),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _bad(part: dict[str, Any]) -> int:
    return sum(row.get("bad", 0) for row in part.values())


# ---------------------------------------------------------------- parts


class Drill:
    """One call."""

    def __init__(self, place: Path) -> None:
        self.place, self.results = place, read_results()
        self.undisturbed = Undisturbed(place)
        self.done: Counter[str] = Counter()
        self._maker, self._began, self._saved = maker_facts(), time.monotonic(), 0.0

    def keep(self, part: str, key: str, counted: dict[str, int], problem: str = "") -> None:
        """Count something, and write it down now and then."""
        for entry, number in counted.items():
            count(self.results[part], key, entry, number)
        if problem:
            count(self.results[part], key, "bad")
            self.results["bad"].append(f"{part}, {key}: {problem}"[:500])
            print(f"BAD {part} {key}: {problem}", flush=True)
        if time.monotonic() - self._saved > SAVE_SECONDS:
            self.save()
            shown = ", ".join(f"{number} {name}" for name, number in sorted(self.done.items()))
            print(f"  {(time.monotonic() - self._began) / 60:.1f} min: {shown}", flush=True)

    def save(self) -> None:
        """Results and page, with this call as the last."""
        facts = {key: self._maker[key] for key in ("date", "commit", "machine")}
        done = {part: self.done[part] for part in ("kills", "damage", "disk", "messages")}
        minutes = round((time.monotonic() - self._began) / 60, 1)
        calls = [*self.results["calls"], {**facts, **done, "minutes": minutes}]
        write_results({**self.results, "calls": calls})
        self._saved = time.monotonic()

    # ------------------------------------------------------------ kills and full disks

    def kills(self, until: float) -> None:
        """The recipe with the fewest kills next, again and again."""
        while time.monotonic() < until:
            recipe = self._least("kills", "kills")
            number = self.results["kills"].get(recipe, {}).get("runs", 0)
            overall = sum(row["runs"] for row in self.results["kills"].values())
            command = overall % COMMANDS == COMMANDS - 1
            found = killed_run(recipe, number, self.undisturbed, self.place, command=command)
            kills = found["kills"]
            self.done["kills"] += kills
            problem = "" if found["outcome"] == "same" else f"run {number}: {found['outcome']}"
            counted = {"runs": 1, "kills": kills, "with workers": kills if command else 0}
            self.keep("kills", recipe, counted, problem)

    def disk(self, until: float) -> None:
        """The recipe with the fewest full disks next, again and again."""
        while time.monotonic() < until:
            recipe = self._least("disk", "tries")
            number = self.results["disk"].get(recipe, {}).get("tries", 0)
            found = full_disk_run(recipe, number, self.undisturbed, self.place)
            self.done["disk"] += found["full"] == "error of ours"
            good = found["full"] in ("error of ours", "fitted") and found["outcome"] == "same"
            problem = "" if good else f"try {number}: {found['full']}, {found['outcome']}"
            self.keep("disk", recipe, {"tries": 1, found["full"][:20]: 1}, problem)

    def _least(self, part: str, entry: str) -> str:
        known = self.results[part]
        return min(shipped_recipes(), key=lambda name: known.get(name, {}).get(entry, 0))

    # ------------------------------------------------------------ damage

    def damage(self, until: float) -> None:
        """Damage to folders of some recipes, finished and stopped, in turn."""
        chance = random.Random(sum(sum(row.values()) for row in self.results["damage"].values()))
        for whole, other, one in self._damages(until, chance):
            recipe = whole.name.split("-")[0]
            outcome = outcome_of(one, whole, other, self.place, lambda out, r=recipe: play(r, out))
            self.done["damage"] += 1
            bad = outcome in ("silent", "traceback")
            state = whole.name.split("-")[1]
            problem = f"{recipe}, {one}: {outcome}" if bad else ""
            self.keep("damage", f"{one.kind}, {state}", {outcome: 1}, problem)

    def _damages(self, until: float, chance: random.Random) -> Iterator[tuple[Path, Path, Damage]]:
        folders = [pair for recipe in DAMAGED for pair in self._folders(recipe)]
        while time.monotonic() < until:
            for whole, other in folders:
                for one in damages(whole, 10, chance):
                    if time.monotonic() > until:
                        return
                    yield whole, other, one

    def _folders(self, recipe: str) -> Iterator[tuple[Path, Path]]:
        """(A run, another run) finished, and both stopped."""
        for state in ("finished", "stopped"):
            pair = [self.place / f"{recipe}-{state}-{seed}" for seed in (SEED, SEED + 1)]
            for seed, out in enumerate(pair, start=SEED):
                if state == "stopped":
                    _stopped(recipe, seed, out)
                else:
                    played = run_resolved(small(recipe), seed=seed, workers=1, out=out)
                    if played.num_models == 1:
                        with_references(played)
            yield pair[0], pair[1]

    # ------------------------------------------------------------ fuzz

    def fuzz(self, until: float) -> None:
        """Hostile messages against whole runs, where the script and Flower are there."""
        if not FUZZ.is_file() or not FLOWER.is_file():
            print(f"  left out: it needs {FUZZ} and {FLOWER} (make test-flower)", flush=True)
            return
        while time.monotonic() < until:
            seed = self.results["fuzz"].get("messages", {}).get("sent", 0)
            command = [str(FLOWER), str(FUZZ), "--messages", str(MESSAGES), "--seed", str(seed)]
            ended = subprocess.run(command, capture_output=True, text=True)
            said = re.findall(r"^([\d,]+) messages", ended.stdout, re.M)
            sent = int(said[-1].replace(",", "")) if said else 0
            self.done["messages"] += sent
            good = ended.returncode == 0 and sent
            problem = "" if good else f"--seed {seed}: {(ended.stdout + ended.stderr)[-400:]}"
            self.keep("fuzz", "messages", {"calls": 1, "sent": sent}, problem)
            if problem:
                return


class _Stopped(Exception):
    pass


def _stopped(recipe: str, seed: int, out: Path) -> None:
    def on_round(record: Any) -> None:
        if record.round == 4:
            raise _Stopped

    try:
        run_resolved(small(recipe), seed=seed, workers=1, out=out, on_round=on_round)
    except _Stopped:
        return


def warm_up(drill: Drill) -> None:
    """Import everything and play every recipe once, so that forked processes begin at once."""
    print(f"warming up: {len(shipped_recipes())} recipes, once each", flush=True)
    for recipe in shipped_recipes():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            play(recipe, drill.place / f"warm-{recipe}")
        shutil.rmtree(drill.place / f"warm-{recipe}")


def main() -> None:
    """Every part for its share of the time; 1 if anything was bad."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=28.0, help="for all of it")
    parser.add_argument("--only", choices=SHARES, help="one part")
    options = parser.parse_args()
    shares = SHARES if options.only is None else {options.only: 1.0}
    memory = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(prefix="drill-", dir=memory if memory.is_dir() else None))
    end = time.monotonic() + 60 * options.minutes
    try:
        drill = Drill(place)
        warm_up(drill)
        parts: dict[str, Callable[[float], None]] = {name: getattr(drill, name) for name in shares}
        left = 1.0
        for name, part in parts.items():
            print(name, flush=True)
            now = time.monotonic()
            part(now + (end - now) * shares[name] / left)  # what one leaves, the next ones have
            left -= shares[name]
        drill.save()
    finally:
        shutil.rmtree(place, ignore_errors=True)
    text = page(read_results())
    print(text.partition("## Kills")[0])
    sys.exit("Zero bad" not in text)


if __name__ == "__main__":
    main()
