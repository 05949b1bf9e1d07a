"""Every method of the bank on the federation that is asked about: its recipe, its price, or why it
is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedskew.advice.bank import Bank
from fedskew.advice.costs import Means, Price, over_server, price_of, units_of
from fedskew.advice.permits import Allowed, changes_for, wanted_by
from fedskew.advice.subject import Subject
from fedskew.compare.contenders import line_up
from fedskew.errors import FedskewError
from fedskew.streams import stream
from fedskew.types import Floats, Ints

DROWNED = 0.2  # total variation by which noise may move clients' label mixes


@dataclass(frozen=True, eq=False)
class Candidate:
    """A method of the bank, on this federation."""

    method: str
    recipe: Mapping[str, Any]  # resolved
    wanted: frozenset[str]  # flags of the recipe as shipped
    units: Mapping[str, float]  # its costs as the bank has them
    note: str = ""


@dataclass(frozen=True, eq=False)
class Field:
    """All methods that can be played here, and why the others cannot."""

    candidates: tuple[Candidate, ...]
    left_out: Mapping[str, str]  # method -> why


def field_of(bank: Bank, subject: Subject, means: Means, weights: Floats) -> Field:
    """The methods of the bank on this federation; what is allowed is not looked at yet."""
    candidates, left_out = [], {}
    for method in bank.names:
        try:
            recipe = recipe_for(bank, subject, method)
        except FedskewError as error:
            left_out[method] = str(error)
            continue
        units = units_of(bank, weights, method, means)
        candidates.append(Candidate(method, recipe, frozenset(wanted_by(recipe)), units))
    return Field(tuple(candidates), left_out)


def recipe_for(
    bank: Bank, subject: Subject, method: str, changes: Mapping[str, Any] | None = None
) -> Mapping[str, Any]:
    """A method of the bank on the federation of the subject, trained as the subject says."""
    entry = bank.methods[method]
    base = {**subject.recipe, "name": "asked about"}
    settings = {f"{entry.recipe}:{k}": v for k, v in {**entry.settings, **(changes or {})}.items()}
    contenders = line_up([base, entry.recipe], settings, same_training=True, twins=True)
    return {**contenders[-1].recipe, "name": method}


def permitted(
    bank: Bank, subject: Subject, whole: Field, allowed: Allowed
) -> tuple[list[Candidate], dict[str, str]]:
    """The candidates as they keep to what is allowed, and why others are left out."""
    kept, left_out = [], dict(whole.left_out)
    for one in whole.candidates:
        changes = changes_for(one.wanted, allowed)
        if changes is None:
            missing = sorted(flag for flag in one.wanted if not getattr(allowed, flag))
            left_out[one.method] = f"needs {', '.join(missing)}, which is not allowed"
        elif "signal.epsilon" in changes and (moved := noise(subject, changes)) > DROWNED:
            left_out[one.method] = f"noise would move label mixes by {moved:.2f} (total variation)"
        else:
            kept.append(_changed(bank, subject, one, changes))
    return kept, left_out


def _changed(bank: Bank, subject: Subject, one: Candidate, changes: Mapping[str, Any]) -> Candidate:
    if not changes:
        return one
    notes = []
    if "procedure.relay" in changes:
        notes.append("models go over the server")
    if "signal.epsilon" in changes:
        notes.append("the bank knows it with exact counts only")
    units = over_server(one.units) if "procedure.relay" in changes else one.units
    recipe = recipe_for(bank, subject, one.method, changes)
    return Candidate(one.method, recipe, one.wanted, units, "; ".join(notes))


def noise(subject: Subject, changes: Mapping[str, Any]) -> float:
    """By how much noise of this epsilon moves clients' label mixes (mean total variation)."""
    table: Ints = subject.counts.table[subject.counts.table.sum(axis=1) > 0]
    drawn = stream(0, "noise").laplace(scale=1 / changes["signal.epsilon"], size=table.shape)
    noisy = np.maximum(table + drawn, 0.0) + 1e-12
    apart = np.abs(
        noisy / noisy.sum(axis=1, keepdims=True) - table / table.sum(axis=1, keepdims=True)
    )
    return float(apart.sum(axis=1).mean() / 2)


def price(one: Candidate, means: Means) -> Price:
    """What a candidate costs."""
    return price_of(one.units, int(one.recipe["local"]["epochs"]), means)
