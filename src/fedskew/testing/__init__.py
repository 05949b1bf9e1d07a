"""For authors of selection rules: all the loop relies on, checked in a second on made-up clients.

Nothing is trained. A :class:`World` says how many clients there are, who is there and who answers;
its numbers are all drawn from its seed. :func:`play` lets a rule select for a few rounds, answers
what it asks for and feeds what it learns from; :func:`check_selection` does so in worlds that have
broken rules before, and says what went wrong, where:

>>> import numpy as np
>>> def worst_first(view, rng):
...     return np.argsort(-view.loss)[: view.budget]
>>> check_selection(worst_first)
Traceback (most recent call last):
AssertionError: worst_first in World(available='some'), round 1: chose [1, 2] who are not available

>>> def worst_first(view, rng):
...     there = np.flatnonzero(view.available)
...     known = np.nan_to_num(view.loss[there], nan=np.inf)  # never asked: first of all
...     return there[np.argsort(-known, kind="stable")][: view.budget]
>>> check_selection(worst_first)

A rule that remembers is given as its class; options are passed on:
``check_selection(my_rule, temperature=2.0)``.
"""

from fedskew.testing.checks import check_selection
from fedskew.testing.game import Played, play
from fedskew.testing.world import WORLDS, World

__all__ = ["WORLDS", "Played", "World", "check_selection", "play"]
