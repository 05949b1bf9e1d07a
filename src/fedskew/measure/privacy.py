"""What noise on label counts spoils: for each epsilon, wrong label mixes and lost groups.

Every row repeats the release (:mod:`fedskew.signal.private`) and compares with the exact counts:
total variation, presence of classes (docs/methods.md 8.4), and the adjusted Rand index of each
rule's groups with those it finds on the exact counts. The last row has no noise but other random
draws in the clustering: an agreement below 1 there is not the noise's doing.

The noise comes from the operating system and cannot be seeded, so two tables differ by chance; the
spread is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedskew.clustering import agreement
from fedskew.distance import skew_figures
from fedskew.errors import RecipeError
from fedskew.measure.counts import Counts
from fedskew.measure.groups import Rule, group, rules_for
from fedskew.measure.measurement import Options, seen_counts, signal_of
from fedskew.signal import estimation_quality
from fedskew.types import Ints, Signal

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over the repeats."""

    mean: float
    sd: float


@dataclass(frozen=True)
class NoiseRow:
    """One epsilon; None: no noise."""

    epsilon: float | None
    total_variation: Spread
    presence_precision: Spread
    presence_recall: Spread
    false_mass: Spread  # share given to classes a client does not have
    hd: Spread
    ari: Mapping[str, Spread]  # by rule
    groups: Mapping[str, Spread]  # by rule, how many


@dataclass(frozen=True, eq=False)
class PrivacyTable:
    """A row per epsilon, the exact counts last."""

    counts: Counts
    rules: tuple[Rule, ...]
    rows: tuple[NoiseRow, ...]
    repeats: int
    mechanism: str
    neighbours: str


def privacy_table(
    counts: Counts,
    *,
    epsilons: Sequence[float] = EPSILONS,
    repeats: int = 3,
    distance: str | None = None,
    clustering: str | None = None,
    options: Options | None = None,
    seed: int = 0,
    on_step: Callable[[str], None] = lambda text: None,
) -> PrivacyTable:
    """The table.

    ``options`` as in :func:`fedskew.measure.measure`; ``epsilon`` in [signal] is ignored.
    """
    if repeats < 1 or not epsilons:
        raise RecipeError(
            "privacy", "nothing to repeat", "Give at least one epsilon and one repeat"
        )
    tables = options or {}
    noise = {"mechanism": "geometric", "neighbours": "add_remove"} | {
        key: value for key, value in tables.get("signal", {}).items() if key != "epsilon"
    }
    rules, chosen = rules_for(distance, clustering)

    def groups(signal: Signal, seed: int) -> dict[str, Ints]:
        groupings = [
            group(signal, rule, seed, tables if i == chosen else None)
            for i, rule in enumerate(rules)
        ]
        return {
            rule.key: grouping.clustering.labels
            for rule, grouping in zip(rules, groupings, strict=True)
        }

    on_step("exact counts")
    exact = signal_of(counts, "histogram", {})
    truth = groups(exact, seed)
    rows = []
    for epsilon in (*epsilons, None):
        samples = []
        for repeat in range(repeats):
            on_step("no noise" if epsilon is None else f"epsilon {epsilon:g}, repeat {repeat + 1}")
            signal = (
                exact
                if epsilon is None
                else signal_of(counts, "private", {**noise, "epsilon": float(epsilon)})
            )
            samples.append(
                _compare(
                    exact,
                    truth,
                    signal,
                    groups(signal, seed + repeat + 1 if epsilon is None else seed),
                )
            )
        rows.append(_summarise(epsilon, samples, rules))
    return PrivacyTable(
        counts, rules, tuple(rows), repeats, str(noise["mechanism"]), str(noise["neighbours"])
    )


def num_steps(num_epsilons: int, repeats: int) -> int:
    """How often :func:`privacy_table` calls ``on_step``."""
    return 1 + (num_epsilons + 1) * repeats


def _compare(
    exact: Signal, truth: Mapping[str, Ints], signal: Signal, groups: Mapping[str, Ints]
) -> dict[str, Any]:
    known = exact.known
    quality = estimation_quality(exact.rows[known], signal.rows[known], exact.num_examples[known])
    return {
        "total_variation": quality.total_variation,
        "presence_precision": quality.presence_precision,
        "presence_recall": quality.presence_recall,
        "false_mass": quality.false_mass,
        "hd": skew_figures(seen_counts(signal)).hd,
        "ari": {key: agreement(labels, truth[key]).ari for key, labels in groups.items()},
        "groups": {key: int(labels.max(initial=-1)) + 1 for key, labels in groups.items()},
    }


def _summarise(
    epsilon: float | None, samples: Sequence[Mapping[str, Any]], rules: Sequence[Rule]
) -> NoiseRow:
    plain = ("total_variation", "presence_precision", "presence_recall", "false_mass", "hd")
    return NoiseRow(
        epsilon,
        **{name: _spread([sample[name] for sample in samples]) for name in plain},
        ari={rule.key: _spread([sample["ari"][rule.key] for sample in samples]) for rule in rules},
        groups={
            rule.key: _spread([sample["groups"][rule.key] for sample in samples]) for rule in rules
        },
    )


def _spread(values: Sequence[float]) -> Spread:
    return Spread(float(np.mean(values)), float(np.std(values)))
