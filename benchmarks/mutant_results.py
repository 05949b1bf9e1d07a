"""What is known of mutants, kept in evidence/mutants: results.json, and a page with survivors by
file and line.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mutant_tests import ROOT
from mutations import Mutant, digest

FOLDER = ROOT / "evidence" / "mutants"
RESULTS, PAGE = FOLDER / "results.json", FOLDER / "README.md"
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
Result = dict[str, Any]


def read_results() -> dict[str, Result]:
    """By mutant, what was found for files that have not changed since."""
    known: dict[str, Result] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    now = {name: source_of(name) for name in {result["file"] for result in known.values()}}
    return {id: result for id, result in known.items() if now[result["file"]] == result["source"]}


def source_of(file: str) -> str:
    """A short name of the text of a file, "" if there is none."""
    path = ROOT / file
    return digest(path.read_text()) if path.exists() else ""


def result_of(mutant: Mutant, killed_by: str, cpu_seconds: float, source: str) -> Result:
    """What is kept of one mutant of a file with this text."""
    return {
        "file": mutant.file,
        "line": mutant.line,
        "what": mutant.what,
        "killed_by": killed_by,
        "cpu_seconds": round(cpu_seconds, 1),
        "source": source,
    }


def write_results(results: Mapping[str, Result], sampled: Sequence[Mutant], possible: int) -> None:
    """Both files; a call that is killed leaves the old ones."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    ordered = dict(sorted(results.items(), key=lambda r: (r[1]["file"], r[1]["line"], r[0])))
    _replace(RESULTS, json.dumps(ordered, indent=1) + "\n")
    _replace(PAGE, page(ordered, sampled, possible))


def _replace(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    os.replace(fresh, path)


# ---------------------------------------------------------------- mutants that change nothing


def reasons(sampled: Sequence[Mutant]) -> dict[str, str]:
    """By mutant, why no test can notice it: the entries of equivalent_mutants.toml."""
    entries = tomllib.loads(EQUIVALENT.read_text()).get("mutant", [])
    argued = {(e["file"], e["code"], e["change"]): e["why"] for e in entries}
    found = {m.id: (m.file, m.code, m.what) for m in sampled}
    return {id: argued[key] for id, key in found.items() if key in argued}


# ---------------------------------------------------------------- the page


def page(results: Mapping[str, Result], sampled: Sequence[Mutant], possible: int) -> str:
    """The page in Markdown, of those sampled."""
    played = {m.id: results[m.id] for m in sampled if m.id in results}
    same = {id: why for id, why in reasons(sampled).items() if id in played}
    counted = {id: result for id, result in played.items() if id not in same}
    alive = {id: result for id, result in counted.items() if not result["killed_by"]}
    share = 1 - len(alive) / max(1, len(counted))
    seconds = sum(result["cpu_seconds"] for result in played.values()) / max(1, len(played))
    lines = [
        "# Mutants",
        "",
        "Small changes to the code, and whether a test notices. `make mutants` plays them;",
        "`benchmarks/mutant_tests.py` says which tests, `benchmarks/mutations.py` which changes.",
        "",
        f"- {len(sampled)} sampled of {possible:,} possible, {len(played)} played.",
        f"- {len(same)} of them change nothing that can be seen; each is argued below.",
        f"- {len(counted) - len(alive)} of the other {len(counted)} were killed: {share:.1%}.",
        f"- {seconds:.1f} s of processor time each.",
        "",
        "| room | played | killed | the same program |",
        "|---|---|---|---|",
    ]
    lines += _rooms(played, alive, same)
    lines += ["", "## Survivors", "", *(_line(r) for r in _sorted(alive.values()) or [])]
    lines += [] if alive else ["None."]
    lines += ["", "## The same program", ""]
    lines += [f"{_line(result)}: {same[id]}" for id, result in played.items() if id in same]
    return "\n".join(lines) + "\n"


def _rooms(played: Mapping[str, Result], alive: Mapping[str, Result], same: Mapping[str, str]):
    rooms = Counter(_room(result) for result in played.values())
    lost = Counter(_room(result) for result in alive.values())
    argued = Counter(_room(played[id]) for id in same)
    return [
        f"| {room} | {n} | {n - lost[room] - argued[room]} | {argued[room]} |"
        for room, n in sorted(rooms.items())
    ]


def _room(result: Result) -> str:
    return str(result["file"]).removeprefix("src/fedskew/").split("/")[0]


def _sorted(results: Any) -> list[Result]:
    return sorted(results, key=lambda result: (result["file"], result["line"]))


def _line(result: Result) -> str:
    return f"- `{result['file']}:{result['line']}` `{result['what']}`"
