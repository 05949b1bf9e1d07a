"""Who leads by how much, on the page and in the README."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedskew.compare.estimates import mean_interval
from fedskew.evidence.observations import Observation

KINDS_OF_DATA = ("data", "images", "text", "table")  # axes of the study
BUDGETS = {"at_bytes": ("bytes", "Baton"), "at_time": ("simulated time", "Baton, fast")}
OURS = ("Baton", "Baton, fast")
Scores = dict[str, dict[int, float]]  # method -> seed -> accuracy


def leads(rows: Sequence[Observation]) -> str:
    """Both budgets: our method against the best rival of every federation."""
    return "\n\n".join(_lead(rows, figure) for figure in BUDGETS)


def accuracies(rows: Sequence[Observation]) -> str:
    """Every method on every federation, within both budgets."""
    return "\n\n".join(_accuracies(rows, figure) for figure in BUDGETS)


def headline(rows: Sequence[Observation]) -> str:
    """The README's table: both budgets in one."""
    within_bytes, within_time = (_races(rows, figure) for figure in BUDGETS)
    lines = [
        "| federation | Baton | best rival, equal bytes | ahead | ahead, equal time |",
        "| --- | ---: | --- | ---: | ---: |",
    ]
    for federation, race in within_bytes.items():
        rival = f"{race.rival} {race.theirs:.3f}"
        ahead = _text(within_time[federation].ahead, "+.3f") if federation in within_time else ""
        lines.append(
            f"| {federation} | {race.ours:.3f} | {rival} | {_text(race.ahead, '+.3f')} | {ahead} |"
        )
    means = f"**{_mean_lead(within_bytes)}** | **{_mean_lead(within_time)}**"
    lines.append(f"| **mean of {len(within_bytes)}** | | | {means} |")
    return "\n".join(lines)


class Race(NamedTuple):
    """Ours against the best rival of a federation."""

    ours: float
    rival: str
    theirs: float
    ahead: list[float]  # seed by seed


def _races(rows: Sequence[Observation], figure: str) -> dict[str, Race]:
    """Federation -> how it ended, over the seeds that all methods have; the best rival is the one
    with the best mean.
    """
    ours, races = BUDGETS[figure][1], {}
    for federation, every in _federations(rows, figure).items():
        seeds = set.intersection(*({*found} for found in every.values())) if every else set()
        means = {
            method: float(np.mean([found[seed] for seed in seeds]))
            for method, found in every.items()
            if seeds
        }
        rivals = {method: mean for method, mean in means.items() if method not in OURS}
        if ours in means and rivals:
            best = max(rivals, key=lambda method: rivals[method])
            ahead = [every[ours][seed] - every[best][seed] for seed in sorted(seeds)]
            races[federation] = Race(means[ours], best, rivals[best], ahead)
    return races


def _mean_lead(races: Mapping[str, Race]) -> str:
    return f"{np.mean([np.mean(race.ahead) for race in races.values()]):+.3f}" if races else ""


def _lead(rows: Sequence[Observation], figure: str) -> str:
    words, ours = BUDGETS[figure]
    races = _races(rows, figure)
    lines = [
        "| federation | ours | best rival | | ahead by |",
        "| --- | ---: | --- | ---: | ---: |",
    ]
    for federation, race in races.items():
        shown = f"{race.ours:.3f} | {race.rival} | {race.theirs:.3f}"
        lines.append(f"| {federation} | {shown} | {_text(race.ahead, '+.3f')} |")
    lines.append(f"| **mean of {len(races)}** | | | | **{_mean_lead(races)}** |")
    return f"## At equal {words}: {ours}\n\n" + "\n".join(lines)


def _accuracies(rows: Sequence[Observation], figure: str) -> str:
    federations = _federations(rows, figure)
    methods = list(dict.fromkeys(method for scores in federations.values() for method in scores))
    lines = [f"| method | {' | '.join(federations)} |", "| --- |" + " ---: |" * len(federations)]
    for method in methods:
        fields = [_text([*scores.get(method, {}).values()]) for scores in federations.values()]
        lines.append(f"| {method} | {' | '.join(fields)} |")
    return f"## Accuracy at equal {BUDGETS[figure][0]}\n\n" + "\n".join(lines)


def _federations(
    rows: Sequence[Observation], figure: str
) -> dict[str, dict[str, dict[int, float]]]:
    """Federation -> method -> seed -> accuracy; of a budget that ends before the first evaluation
    nothing is known.
    """
    found: dict[str, Scores] = {}
    for row in rows:
        if row.labels["grid"].startswith("tuning"):
            continue
        data = next(row.labels[kind] for kind in KINDS_OF_DATA if kind in row.labels)
        scores = found.setdefault(f"{data}, {row.labels['partition']}", {})
        if not np.isnan(value := row.number(figure)):
            scores.setdefault(row.labels["method"], {})[row.seed] = value
    return found


def _text(values: Sequence[float], format: str = ".3f") -> str:
    """A mean and half its interval."""
    if not values:
        return ""
    estimate = mean_interval(values)
    half = (estimate.high - estimate.low) / 2
    return f"{estimate.mean:{format}}" + ("" if np.isnan(half) else f" ± {half:.3f}")
