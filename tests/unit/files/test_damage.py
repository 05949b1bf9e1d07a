"""Damage to run folders: nothing is silently wrong, nothing is a traceback."""

from __future__ import annotations

import random
import shutil
import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from fedskew.experiment.driver import Backend, drive
from fedskew.recipe import resolve
from fedskew.records import Labels, write_references
from fedskew.runtime.scripted import ScriptedRuntime

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
from damage import KINDS, Damage, damages, outcome_of

COUNTS = np.array([[6, 0], [0, 6], [3, 3], [4, 2]])
RECIPE = resolve({"name": "scripted", "run": {"rounds": 6, "clients_per_round": 2}})


class Stopped(Exception):
    pass


def play(out: Path, *, seed: int = 3, stop_after: int = -1, resume: bool = False):
    backend = Backend(
        ScriptedRuntime(COUNTS),
        clients_have_tests=lambda: False,
        labels=lambda: Labels(COUNTS + seed, ["cat", "dog"]),
        save_every_round=True,
    )

    def on_round(record):
        if record.round == stop_after:
            raise Stopped

    return drive(
        RECIPE,
        seed,
        lambda reached: nullcontext(backend),
        out=out,
        on_round=on_round,
        resume=resume,
    )


def finish(out: Path):
    return play(out, resume=True)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """(name -> a run folder of seed 3, the same of seed 4)."""
    place, found = tmp_path_factory.mktemp("runs"), {}
    for seed in (3, 4):
        played = play(place / f"finished-{seed}", seed=seed)
        write_references(
            played.folder,
            {"majority_class": {"accuracy": [0.5] * 4, "test_examples": [seed] * 4}},
            played.facts["mark"],
        )
        with pytest.raises(Stopped):
            play(place / f"stopped-{seed}", seed=seed, stop_after=4)
    for name in ("finished", "stopped"):
        found[name] = (place / f"{name}-3", place / f"{name}-4")
    return found


@pytest.mark.parametrize("name", ["finished", "stopped"])
def test_no_damage_is_silent_or_a_traceback(folders, name, tmp_path):
    whole, other = folders[name]
    found = Counter[str]()
    for damage in damages(whole, 100, random.Random(name)):
        outcome = outcome_of(damage, whole, other, tmp_path, finish)
        assert outcome in ("noticed", "harmless"), damage
        found[outcome] += 1
    assert found["noticed"] > found["harmless"]


@pytest.mark.parametrize("name", ["finished", "stopped"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("flip", "lines")])
def test_every_file_suffers_everything(folders, name, kind, tmp_path):
    whole, other = folders[name]
    for file in sorted(p.name for p in whole.iterdir() if p.name != ".lock"):
        for seed in range(3 if kind in ("cut", "zeros") else 1):
            damage = Damage(kind, file, seed)
            assert outcome_of(damage, whole, other, tmp_path, finish) in (
                "noticed",
                "harmless",
            ), damage


@pytest.mark.parametrize("name", ["finished", "stopped"])
def test_damage_to_the_checksum_itself_is_noticed(folders, name, tmp_path):
    """Seen by the drill: "sum" became "rum", and run.json had a fact more."""
    whole, other = folders[name]
    for path in sorted(whole.glob("*.json")):
        at = path.read_bytes().rindex(b'"sum"')
        for bit in range(8 * at, 8 * at + 40, 3):
            damage = Flip("flip", path.name, bit)
            assert outcome_of(damage, whole, other, tmp_path, finish) == "noticed", damage


class Flip(Damage):
    """Of this very bit."""

    def apply(self, folder: Path, other: Path) -> None:
        content = bytearray((folder / self.file).read_bytes())
        content[self.seed // 8] ^= 1 << self.seed % 8
        (folder / self.file).write_bytes(content)


def test_the_judge_would_notice(folders, tmp_path, monkeypatch):
    """Were checksums not looked at, damage would be silent: the test above can fail."""
    monkeypatch.setattr("fedskew.records.sums.checksum", lambda content, before="": "00000000")
    monkeypatch.setattr("fedskew.records.rounds.checksum", lambda content, before="": "00000000")
    monkeypatch.setattr("fedskew.records.reading.checksum", lambda content, before="": "00000000")
    with pytest.raises(Stopped):
        play(tmp_path / "stopped", stop_after=4)
    shutil.copytree(tmp_path / "stopped", tmp_path / "other")
    found = Counter(
        outcome_of(damage, tmp_path / "stopped", tmp_path / "other", tmp_path, finish)
        for damage in (Damage("flip", "rounds.jsonl", seed) for seed in range(30))
    )
    assert found["silent"] > 3
