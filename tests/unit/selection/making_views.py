"""Views for tests, and a small loop that answers what a rule asks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedskew.types import Answer, AskLoss, Clustering, Population, Signal, View, bind

NAN = float("nan")


def view_of(
    K=0,
    m=2,
    *,
    sizes=None,
    labels=None,
    loss=None,
    available=None,
    latency=None,
    counts=None,
    round=1,
    times=None,
    last=None,
):
    counts = None if counts is None else np.asarray(counts, np.int64)
    K = next(
        (len(x) for x in (counts, labels, loss, sizes, latency, available) if x is not None), K
    )
    sizes = counts.sum(axis=1) if counts is not None else np.full(K, 10) if sizes is None else sizes
    signal = (
        None
        if counts is None
        else Signal(counts / np.maximum(sizes, 1)[:, None], sizes, "disclosed")
    )
    return View(
        round=round,
        budget=m,
        population=Population(sizes, latency_seconds=latency),
        available=np.ones(K, bool) if available is None else available,
        loss=np.full(K, np.nan) if loss is None else loss,
        times_selected=np.zeros(K) if times is None else times,
        last_selected=np.zeros(K) if last is None else last,
        signal=signal,
        clustering=None if labels is None else Clustering(labels),
    )


def play(rule, view, seed=0, *, fresh=None, memory=None, asked=None, **options):
    """The ids a rule ends with. Losses it asks for are those of ``fresh`` (K,), and view.loss
    learns them as in the loop.
    """
    bound, memory = bind("selection", rule, options), memory or {}
    for turn in range(9):
        chosen, memory = bound.choose(memory, view, np.random.default_rng([seed, turn]))
        if not isinstance(chosen, AskLoss):
            return np.asarray(chosen).tolist()
        if asked is not None:
            asked.append(chosen)
        values = np.asarray(fresh, float)[chosen.clients]
        loss = view.loss.copy()
        loss[chosen.clients] = np.where(np.isnan(values), loss[chosen.clients], values)
        view = replace(view, loss=loss, answers=(*view.answers, Answer(chosen, values)))
    raise AssertionError("the rule never selects")


def often(rule, view, draws, **options):
    """(K,) share of the draws in which each client was chosen."""
    counts = np.zeros(view.size)
    for seed in range(draws):
        counts[play(rule, view, seed, **options)] += 1
    return counts / draws
