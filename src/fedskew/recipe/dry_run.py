"""Play a selection rule once with nobody there, so that options it would refuse in round 1 are
refused before anything runs.
"""

from __future__ import annotations

import contextlib

import numpy as np

from fedskew.errors import RecipeError
from fedskew.loop.method import Named
from fedskew.types import Clustering, Population, SelectionRule, Signal, View


def rehearse(selection: Named[SelectionRule], budget: int) -> None:
    """Raise the rule's :class:`RecipeError`, if its options give it one; whatever else happens says
    nothing about the recipe.

    >>> from fedskew.loop.method import named
    >>> from fedskew.selection.power_of_choice import power_of_choice
    >>> try:
    ...     rehearse(named("selection", "poc", power_of_choice, {"d": 3}), budget=5)
    ... except RecipeError as error:
    ...     print(error.what)
    d = 3 candidates for 5 places: nothing is left to choose
    """
    refused: RecipeError | None = None
    # a rule from outside may not be ready for an empty federation
    with contextlib.suppress(Exception):
        try:
            selection.rule.choose({}, _empty_stage(budget), np.random.default_rng(0))
        except RecipeError as error:
            refused = error
    if refused is not None:
        raise refused


def _empty_stage(budget: int) -> View:
    none, one = np.zeros(1, np.int64), np.ones(1)
    return View(
        round=1,
        budget=budget,
        population=Population(none, latency_seconds=one, uplink_bps=one, snr=one),
        available=np.zeros(1, np.bool_),
        loss=np.full(1, np.nan),
        times_selected=none,
        last_selected=none,
        signal=Signal(np.zeros((1, 2)), np.zeros(1), "disclosed"),
        clustering=Clustering(np.array([-1])),
    )
