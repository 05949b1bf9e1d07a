"""The adviser: which method to switch on, what it gives and costs, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedskew.advice.bank import BASE, Bank, Federation, read_bank
from fedskew.advice.budget import Budget, read_budget
from fedskew.advice.candidates import Candidate, Field, field_of, permitted, price
from fedskew.advice.costs import Means, Price, means_of
from fedskew.advice.features import features_of
from fedskew.advice.forecast import Anchor, Forecast, forecast
from fedskew.advice.nearest import Likeness, left_out, likeness
from fedskew.advice.permits import Allowed, disclosed_by, read_allowed
from fedskew.advice.pilot import play_pilot
from fedskew.advice.subject import Subject, subject_of
from fedskew.errors import RecipeError
from fedskew.experiment.figures import Resource

SHOWN = 5  # nearest federations that are named
TOO_DEAR = "one round costs more than the budget"


@dataclass(frozen=True)
class Choice:
    """One method: what to expect of it within the budget, what it costs, what it discloses."""

    method: str
    accuracy: float
    low: float  # 90 % interval
    high: float
    gain: float  # over FedAvg within the same budget
    gain_low: float
    gain_high: float
    rounds: int
    spent: Mapping[Resource, float]
    discloses: tuple[str, ...]
    wanted: tuple[str, ...]  # what has to be allowed for it
    note: str = ""


@dataclass(frozen=True)
class Neighbour:
    """A federation of the bank, and what its best methods reached within the same rounds."""

    federation: Federation
    distance: float
    weight: float
    best: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Advice:
    """Methods from the best on; what they rest on."""

    subject: Subject
    bank: Bank
    budget: Budget
    allowed: Allowed
    choices: tuple[Choice, ...]
    left_out: Mapping[str, str]  # method -> why
    near: Likeness
    beyond: bool  # whether the budget pays for more rounds than the bank has
    pilot: Mapping[str, Anchor]  # what was measured here
    candidates: Mapping[str, Candidate]
    # what would have to change -> the first choice then
    rivals: Sequence[tuple[str, str]] = ()

    @property
    def unlike(self) -> bool:
        """Whether nothing in the bank is like this federation."""
        return self.near.is_unlike

    @cached_property
    def nearest(self) -> tuple[Neighbour, ...]:
        """The federations of the bank that count most."""
        rounds = {choice.method: choice.rounds for choice in self.choices}
        at = self.bank.accuracy_at([rounds.get(name, np.nan) for name in self.bank.names])
        return tuple(
            Neighbour(
                self.bank.federations[f],
                float(self.near.distance[f]),
                float(self.near.weights[f]),
                _best(self.bank.names, at[f]),
            )
            for f in self.near.order[:SHOWN]
        )

    @property
    def paragraph(self) -> str:
        """The answer in words."""
        from fedskew.advice.wording import paragraph

        return paragraph(self)

    @property
    def changes(self) -> list[str]:
        """What would have to change for another answer."""
        from fedskew.advice.wording import changes

        return changes(self)

    def recipe(self, method: str | None = None) -> Mapping[str, Any]:
        """The resolved recipe of a method, by default of the first choice, ready to run."""
        chosen = method or self.choices[0].method
        if chosen not in {choice.method for choice in self.choices}:
            known = ", ".join(choice.method for choice in self.choices)
            raise RecipeError("advise", f"'{chosen}' is not among the choices", f"Known: {known}")
        from fedskew.advice.written import ready

        return ready(self, chosen)

    def payload(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        from fedskew.advice.payload import advice_payload

        return advice_payload(self)


def _best(names: Sequence[str], row: Any) -> dict[str, float]:
    order = [m for m in np.argsort(-np.nan_to_num(row, nan=-1.0)) if not np.isnan(row[m])]
    return {names[m]: float(row[m]) for m in order[:3]}


# ---------------------------------------------------------------- the answer


def advise(
    source: str | Path | Mapping[str, Any] | Any,
    *,
    budget: str | Budget | None = None,
    allow: str | Allowed | None = None,
    settings: Mapping[str, Any] | None = None,
    parameters: int | None = None,
    pilot: bool = False,
    seed: int = 0,
    bank: Bank | str | Path | None = None,
    trust: bool = False,
) -> Advice:
    """Say which method to switch on for a federation, and what that gives and costs.

    Parameters
    ----------
    source
        A shipped recipe's name, a TOML file or a dict; a CSV or Parquet file of label counts, a
        (K, C) array; or a run folder, whose own result then anchors the forecast.
    budget
        What may be spent: "200MB", "2h" (simulated), "50Wh", "100rounds". By default the recipe's
        rounds.
    allow
        What clients agree to: of "d2d,histograms,probe,personal,private=1.0", or "none". By default
        the first three.
    settings
        Changes to the recipe, or to what is assumed about counts: ``{"local.epochs": 5}``.
    parameters
        Of the model, where they are not known (100,000 by default).
    pilot
        Train the best candidates for a few rounds first (needs torch and data).
    seed, bank, trust
        Root of the recipe's random streams; another bank than the shipped one; whether code that a
        run folder names may be imported.

    Examples
    --------
    >>> one_class_each = np.kron(np.eye(10, dtype=int), np.full((3, 1), 60))
    >>> advice = advise(one_class_each, budget="15rounds", allow="none")
    >>> sorted(choice.method for choice in advice.choices)[:2], advice.choices[0].rounds
    (['baton', 'fedavg'], 15)
    """
    subject = subject_of(source, settings=settings, parameters=parameters, seed=seed, trust=trust)
    known = bank if isinstance(bank, Bank) else read_bank(bank)
    question = _Question.of(known, subject)
    wanted = read_budget(budget) if isinstance(budget, str) else budget
    allowed = read_allowed(allow) if isinstance(allow, str) else allow or Allowed()
    wanted = wanted or Budget("rounds", float(subject.recipe["run"]["rounds"]))
    anchors = {name: a for name, a in (subject.anchors or {}).items() if name in known.methods}
    if pilot:
        first = question.answer(wanted, allowed, anchors)
        best = [(choice.method, first.candidates[choice.method].recipe) for choice in first.choices]
        anchors = play_pilot(subject, best)
    return question.with_rivals(question.answer(wanted, allowed, anchors))


@dataclass(frozen=True, eq=False)
class _Question:
    """What does not change with budget and permits."""

    bank: Bank
    subject: Subject
    means: Means
    near: Likeness
    field: Field
    others: Sequence[Likeness]

    @classmethod
    def of(cls, bank: Bank, subject: Subject) -> _Question:
        table = subject.counts.table
        near = likeness(bank, features_of(table, subject.training), subject.data)
        sizes = table.sum(axis=1)
        means = means_of(sizes[sizes > 0], subject.recipe, 4 * subject.parameters)
        field = field_of(bank, subject, means, near.weights)
        return cls(bank, subject, means, near, field, left_out(bank))

    def answer(self, budget: Budget, allowed: Allowed, anchors: Mapping[str, Anchor]) -> Advice:
        """The methods that can be paid and are allowed, the best first."""
        kept, left = permitted(self.bank, self.subject, self.field, allowed)
        prices = {one.method: price(one, self.means) for one in kept}
        rounds = {name: self.rounds_for(prices[name], budget) for name in prices}
        paid = [one for one in kept if rounds[one.method] >= 1]
        if not paid:
            raise RecipeError("--budget", "pays for no round of any method", "Give more")
        left |= {one.method: TOO_DEAR for one in kept if one not in paid}
        near = self.near.everybody if self.near.is_unlike and anchors else self.near
        played = [rounds[name] if rounds.get(name, 0) >= 1 else np.nan for name in self.bank.names]
        found = forecast(self.bank, near, played, anchors=anchors, others=self.others)
        choices = [self.choice(one, found, prices[one.method], rounds[one.method]) for one in paid]
        return Advice(
            subject=self.subject,
            bank=self.bank,
            budget=budget,
            allowed=allowed,
            choices=tuple(sorted(choices, key=_worst_last)),
            left_out=left,
            near=self.near,
            beyond=max(one.rounds for one in choices) > self.bank.levels[-1],
            pilot=dict(anchors),
            candidates={one.method: one for one in paid},
        )

    def rounds_for(self, price: Price, budget: Budget) -> float:
        """What a budget pays for; of what costs nothing, as many as anybody has played."""
        most = max(float(self.subject.recipe["run"]["rounds"]), float(self.bank.levels[-1]))
        rounds = price.rounds_for(budget)
        return most if np.isinf(rounds) else rounds

    def choice(self, one: Candidate, found: Forecast, price: Price, rounds: float) -> Choice:
        """A line of the table."""
        place = self.bank.names.index(one.method)
        return Choice(
            method=one.method,
            accuracy=float(found.mean[place]),
            low=float(found.low[place]),
            high=float(found.high[place]),
            gain=float(found.gain[place]),
            gain_low=float(found.gain_low[place]),
            gain_high=float(found.gain_high[place]),
            rounds=int(rounds),
            spent=price.after(int(rounds)),
            discloses=tuple(disclosed_by(one.recipe)),
            wanted=tuple(sorted(one.wanted)),
            note=one.note,
        )

    def with_rivals(self, advice: Advice) -> Advice:
        """The answer, and what would have to change for another one."""
        rivals = []
        for words, budget, allowed in _other_questions(advice):
            try:
                other = self.answer(budget, allowed, advice.pilot)
            except RecipeError:
                continue
            if other.choices[0].method != advice.choices[0].method:
                rivals.append((words, other.choices[0].method))
        return replace(advice, rivals=tuple(rivals))


def _worst_last(choice: Choice) -> float:
    return np.inf if np.isnan(choice.accuracy) else -choice.accuracy


def _other_questions(advice: Advice) -> list[tuple[str, Budget, Allowed]]:
    """A smaller or larger budget, one permission more or less, another thing that is scarce."""
    budget, allowed, spent = advice.budget, advice.allowed, advice.choices[0].spent
    asked = [
        (f"{factor:g} times the budget", budget.times(factor), allowed)
        for factor in (1 / 8, 1 / 4, 1 / 2, 2, 4, 8)
    ]
    for flag in ("d2d", "histograms", "probe", "personal"):
        words = f"{'without' if getattr(allowed, flag) else 'with'} {flag}"
        asked.append((words, budget, allowed.toggled(flag)))
    scarce: tuple[Resource, ...] = ("bytes", "time", "energy", "rounds")
    for resource in scarce:
        if resource != budget.resource:
            asked.append((f"{resource} scarce instead", Budget(resource, spent[resource]), allowed))
    return asked


def gain_is_certain(choice: Choice) -> bool:
    """Whether the interval of a gain over FedAvg leaves 0 outside."""
    return choice.method != BASE and (choice.gain_low > 0 or choice.gain_high < 0)
