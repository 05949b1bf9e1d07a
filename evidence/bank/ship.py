"""The results of the study as the bank that ships with the package, and how good advice from it is.

python evidence/bank/ship.py       # writes src/fedskew/advice/bank.json
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedskew.advice.bank import COSTS, LEVELS, Bank, Entry, Federation, bank_bytes
from fedskew.advice.judging import Verdict, judge
from fedskew.advice.permits import wanted_by
from fedskew.evidence.observations import Observation, observations
from fedskew.evidence.results import FILE, read_results
from fedskew.evidence.study import read_study
from fedskew.recipe import load, resolve
from fedskew.records import write_atomically
from fedskew.types import Floats
from fedskew.version import __version__

HERE = Path(__file__).resolve().parent
SHIPPED = HERE.parents[1] / "src" / "fedskew" / "advice" / "bank.json"
RESOURCES = ("rounds", "bytes", "time")
FEWEST = 12  # federations below which nothing is judged


def bank_of(rows: Sequence[Observation], methods: Mapping[str, Entry], version: str) -> Bank:
    """All federations whose features are known, with what methods gave there."""
    features = {_federation(row): row.row for row in rows if row.labels["grid"] == "features"}
    runs = {
        (_federation(row), row.labels["method"]): row.row
        for row in rows
        if row.labels["grid"] == "runs"
    }
    names = list(next(iter(features.values())))
    levels = LEVELS[: min(len(run["accuracy"]) for run in runs.values())]
    shape = (len(features), len(methods))
    accuracy, costs = np.full((*shape, len(levels)), np.nan), np.full((*shape, len(COSTS)), np.nan)
    for f, federation in enumerate(features):
        for m, method in enumerate(methods):
            if (found := runs.get((federation, method))) is not None:
                accuracy[f, m] = found["accuracy"][: len(levels)]
                costs[f, m] = [found[name] for name in COSTS]
    return Bank(
        version=version,
        methods=methods,
        federations=list(features),
        feature_names=names,
        features=np.array([[row[name] for name in names] for row in features.values()]),
        levels=np.array(levels, np.float64),
        accuracy=accuracy,
        costs={name: costs[:, :, place] for place, name in enumerate(COSTS)},
    )


def _federation(row: Observation) -> Federation:
    data = row.labels["data"]
    return Federation(data, row.labels["partition"], row.labels[data])


def methods_of(folder: Path) -> dict[str, Entry]:
    """The methods of the study: a shipped recipe each, and settings of its own."""
    axis = next(
        axis for grid in read_study(folder).grids for axis in grid.axes if axis.names_recipes
    )  # at the scale that is published
    return {
        label: Entry(str(changes["recipe"]), {k: v for k, v in changes.items() if k != "recipe"})
        for label, changes in axis.values.items()
    }


# ---------------------------------------------------------------- how good the advice is


def equal_rounds(bank: Bank, resource: str, share: float) -> Floats:
    """(F, M) rounds that each method may play in each federation for a share of what FedAvg spends
    in all rounds of the bank: of bytes, or of simulated time with links and devices as by default.
    """
    most = float(bank.levels[-1])
    if resource == "rounds":
        return np.full(bank.accuracy.shape[:2], round(share * most))
    cost = bank.costs
    if resource == "bytes":
        each = (cost["down"] + cost["up"] + cost["d2d"]) * bank.per_round[:, None]
        start = (cost["start_down"] + cost["start_up"]) * bank.num_clients[:, None]
    else:  # a model takes as long as a mean client's turn
        each, start = cost["hops"] + cost["handed"] + cost["turns"], cost["start_hops"]
    base = bank.names.index("fedavg")
    budget = start[:, [base]] + share * most * each[:, [base]]
    return np.maximum(0.0, np.floor((budget - start) / each))


def judged(bank: Bank) -> list[tuple[str, str, Verdict]]:
    """Budgets x permissions."""
    flags = {name: wanted_by(resolve(load(bank.methods[name].recipe))) for name in bank.names}
    sets = {
        "one model": [name for name in bank.names if "personal" not in flags[name]],
        "one model, nothing disclosed": [name for name in bank.names if not flags[name] - {"d2d"}],
        "everything": list(bank.names),
    }
    return [
        (
            f"{'all' if share == 1 else 'a third'} of FedAvg's {resource}",
            words,
            judge(bank, rounds, kept),
        )
        for resource in RESOURCES
        for share in (1.0, 1 / 3)
        for rounds in [equal_rounds(bank, resource, share)]
        for words, kept in sets.items()
    ]


LEGEND = """
{federations} federations, {methods} methods. Each federation is asked about with all others as the
bank. Near best: the first choice reached the best in hindsight to within a point; beside it, the
same share if one method were always the answer (the best such method for that line). Held:
intervals that hold what was reached; of the accuracy, and of the difference from FedAvg.

| budget | allowed | near best | always the same | points lost | held | width | gain held | width |
|---|---|---|---|---|---|---|---|---|
"""


def leave_one_out(rows: Sequence[Observation]) -> str:
    """The section of the page: each federation asked about, and left out of the bank."""
    present = {row.labels["method"] for row in rows if "method" in row.labels}
    methods = {name: entry for name, entry in methods_of(HERE).items() if name in present}
    bank = bank_of(rows, methods, __version__)
    if len(bank.federations) < FEWEST:
        return _too_few(bank)
    found = judged(bank)
    legend = LEGEND.format(federations=len(bank.federations), methods=len(bank.names))
    table = legend + "\n".join(_line(*one) for one in found)
    return f"## Leave one federation out\n{table}\n\n{_means([verdict for *_, verdict in found])}"


def _too_few(bank: Bank) -> str:
    """What a smoke test shows."""
    rows = [f"| {one.text} | {row.max():.3f} |" for one, row in _reached(bank)]
    return "\n".join(
        ["Too few federations to judge by.", "", "| federation | best |", "|---|---|", *rows]
    )


def _reached(bank: Bank) -> list[tuple[Federation, Floats]]:
    return list(zip(bank.federations, bank.accuracy[:, :, -1], strict=True))


def _line(budget: str, allowed: str, v: Verdict) -> str:
    return (
        f"| {budget} | {allowed} | {v.near_best:.0%} | {v.always_near_best:.0%} ({v.always}) | "
        f"{100 * v.regret:.1f} | {v.covered:.0%} | {v.width:.2f} | {v.gain_covered:.0%} | "
        f"{v.gain_width:.2f} |"
    )


def _means(verdicts: Sequence[Verdict]) -> str:
    names = ("near_best", "covered", "gain_covered")
    near, held, gain = (np.mean([getattr(one, name) for one in verdicts]) for name in names)
    return (
        f"In the mean over this table: near best {near:.0%} (to reach: 80 %), intervals hold "
        f"{held:.0%} and those of gains {gain:.0%} (to reach: 85 to 95 %)."
    )


COSTS_TEXT = """## What a round costs

In the mean over federations. Models sent per place in a round; models and mean clients' turns on
the longest way through a round; models per client before the first round.

| method | down | up | device to device | on the way | handed on | turns | before, down |
|---|---|---|---|---|---|---|---|
"""
SHOWN = ("down", "up", "d2d", "hops", "handed", "turns", "start_down")


def costs(rows: Sequence[Observation]) -> str:
    """The section of the page: costs by method."""
    table: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row.labels["grid"] == "runs":
            table.setdefault(row.labels["method"], []).append(row.row)
    lines = [
        f"| {method} | "
        + " | ".join(f"{np.mean([one[n] for one in found]):.2f}" for n in SHOWN)
        + " |"
        for method, found in table.items()
    ]
    return COSTS_TEXT + "\n".join(lines)


def shipped() -> bytes:
    """The bank as the published results give it."""
    results = read_results(HERE / FILE)
    if results is None:
        raise SystemExit("no results yet: fedskew reproduce bank")
    rows: list[Any] = observations(results)
    return bank_bytes(bank_of(rows, methods_of(HERE), str(results.makers[-1]["version"])))


if __name__ == "__main__":
    write_atomically(SHIPPED, shipped())
    print(f"{SHIPPED}: {SHIPPED.stat().st_size / 1e3:.0f} kB")
