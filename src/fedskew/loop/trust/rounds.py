"""Where the loop asks: before it selects, when it hears losses, after it trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedskew.loop.method import Setting
from fedskew.loop.probe import bias_slice
from fedskew.loop.training import Runner
from fedskew.loop.trust.book import Book, open_book
from fedskew.loop.trust.cap import enough, under_cap
from fedskew.loop.trust.losses import believe, judge, merged, usual
from fedskew.streams import stream
from fedskew.types import Bools, Floats, Ints, Memory, State, View

SECOND_THOUGHTS = 0.5  # below this trust a client only fills places that would stay empty


def invite(setting: Setting, state: State, view: View) -> View:
    """The view of a round in which nobody is above the cap and trust is a chance."""
    trust = setting.method.trust
    book, can_train = open_book(state), int((view.population.num_examples > 0).sum())
    places = max(view.budget, book.places)
    welcome = book.invited(stream(setting.seed, "trust", view.round))
    free = under_cap(view.times_selected, can_train, places, view.round, trust.cap)
    reliable = book.trust > SECOND_THOUGHTS
    kept = enough(welcome & free, view.available, view.budget, reliable, view.times_selected)
    return replace(view, available=kept)


def believed(setting: Setting, state: State, clients: Ints, losses: Floats) -> Floats:
    """(n,) losses clients were asked for, as they count."""
    trust = setting.method.trust
    if not trust.on:
        return losses
    normal = usual(merged(state.loss, clients, losses), trust.loss_factor)
    return believe(losses, clients, normal, open_book(state))


def inspect(setting: Setting, state: State, runners: Sequence[Runner], round: int) -> Memory:
    """Correct the losses that the round's clients claim, in place; returns the book after it."""
    reports = [(runner, client) for runner in runners for client in runner.loss]
    book = open_book(state)
    asked = sum(len(runner.seconds) for runner in runners)
    book = replace(book, places=max(book.places, asked))
    if not reports:
        return book.memory()
    clients = np.array([client for _, client in reports], np.int64)
    book, refuted = _losses(setting, state, reports, clients, book, round)
    return book.refute(clients[refuted]).confirm(clients[~refuted]).memory()


def _losses(
    setting: Setting,
    state: State,
    reports: Sequence[tuple[Runner, int]],
    clients: Ints,
    book: Book,
    round: int,
) -> tuple[Book, Bools]:
    """Whose loss was refuted; corrected."""
    losses = np.array([runner.loss[client] for runner, client in reports])
    factor, job = setting.method.trust.loss_factor, setting.method.job_at(round)
    normal = usual(merged(state.loss, clients, losses), factor)
    pulls = _pulls(setting, reports, job.lr)
    heard = judge(losses, pulls, clients, normal, book, factor, job)
    for (runner, client), loss in zip(reports, heard.losses, strict=True):
        runner.loss[client] = float(loss)
    return heard.book, heard.refuted


def _pulls(setting: Setting, reports: Sequence[tuple[Runner, int]], lr: float) -> Floats | None:
    """(n,) how far each client's output bias moved per step; None: there is none, or nobody's
    moved.
    """
    known = setting.description
    part = (
        bias_slice(known.layout, known.num_classes) if setting.method.trust.head_trained else None
    )
    if part is None:
        return None
    moved = [r.returned[c][part].astype(np.float64) - r.received[c][part] for r, c in reports]
    steps = np.array([max(1, r.work[c][1]) for r, c in reports])
    pulls = np.abs(np.stack(moved)).sum(axis=1) / (lr * steps)
    return pulls if pulls.any() else None
