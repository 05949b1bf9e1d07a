"""Run folders that were damaged, or made to harm: readers say so, and never end in a traceback."""

from __future__ import annotations

import copy
import io
import json
import random
import tomllib
import warnings
from pathlib import Path

import pytest
import tomli_w
from played import write_run
from rich.console import Console

from fedskew import Comparison, Run
from fedskew.errors import FedskewError
from fedskew.measure.sources import counts_of_run
from fedskew.report.page.html import page_html
from fedskew.report.page.payload import payload_of
from fedskew.report.terminal.comparison import show_comparison

ODD = [
    *(None, True, -1, 0, 10**9, 10**30, 1e308, "x", "", [], [1], ["a"], {}, {"a": 1}, [[1]]),
    *([None], "\x1b[31m</script>"),
]
FILES = ("clients.json", "labels.json", "recipe.toml", "result.json", "rounds.jsonl", "run.json")


def read_everything(folder: Path) -> None:
    """What report, compare, export, measure and Python do with a folder of runs."""
    found = Comparison.read(folder)
    for table in ("rounds", "choices", "transfers", "clients", "scores"):
        found.rows(table)
    show_comparison(found.table(target=0.5, budget="bytes"), Console(file=io.StringIO()))
    page_html(payload_of(found, target=0.5))
    counts_of_run(folder / "fedavg")
    Run.read(folder / "fedavg").summary(0.5)


def places(value, before=()):
    """Where values stand in nested JSON; the first and last entry of each list."""
    yield before
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*before, key))
    elif isinstance(value, list):
        for i in {0, len(value) - 1} if value else ():
            yield from places(value[i], (*before, i))


def changed(value, place, new):
    if not place:
        return new
    value = copy.deepcopy(value)
    at = value
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = new
    return value


def mutants(name: str, raw: bytes, number: int, rng: random.Random):
    """Flipped bits, cuts, and values of another kind in files that can still be parsed."""
    for _ in range(number):
        damaged = bytearray(raw)
        damaged[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        yield bytes(damaged)
        yield raw[: rng.randrange(len(raw))]
    lines = raw.decode().splitlines() if name.endswith("l") and "toml" not in name else []
    for _ in range(4 * number):
        line = rng.randrange(len(lines)) if lines else 0
        text = lines[line] if lines else raw.decode()
        value = tomllib.loads(text) if name.endswith("toml") else json.loads(text)
        new = changed(value, rng.choice(list(places(value))), rng.choice(ODD))
        if not name.endswith("toml"):
            whole = [*lines[:line], json.dumps(new), *lines[line + 1 :]]
            yield ("\n".join(whole) + "\n").encode()
        elif isinstance(new, dict) and "None" not in repr(new):  # TOML has no null
            yield tomli_w.dumps(new).encode()


@pytest.mark.parametrize("name", FILES)
def test_a_mutated_run_folder_is_no_traceback(name, tmp_path):
    write_run(tmp_path / "fedavg", "fedavg", cluster=True)
    write_run(tmp_path / "other", "other")
    read_everything(tmp_path)
    path, refused, rng = tmp_path / "fedavg" / name, 0, random.Random(name)
    raw = path.read_bytes()
    for mutant in mutants(name, raw, 6, rng):
        path.write_bytes(mutant)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # huge numbers overflow somewhere
            try:
                read_everything(tmp_path)
            except FedskewError as error:
                refused += 1
                assert str(error).isprintable()  # noqa: PT017 (any error of ours will do)
    path.write_bytes(raw)
    read_everything(tmp_path)
    assert refused > 5 or name == "result.json"
