"""The checks that are shipped for people who write rules catch what they promise to catch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from fedskew.testing import World, check_selection, play
from fedskew.types import AskLoss, AskTrial, AskUpdates, SelectionRule, needs


def first(view, rng):
    return np.flatnonzero(view.available)[: view.budget]


def drawn_elsewhere():
    source = np.random.default_rng(0)

    def rule(view, rng):
        return source.permutation(np.flatnonzero(view.available))[: view.budget]

    return rule


def remembering(change):
    """A rule whose memory is what ``change`` makes of the old one."""

    @dataclass(frozen=True)
    class Remembering(SelectionRule):
        def choose(self, memory, view, rng):
            return first(view, rng), change(memory)

    return Remembering


def scribble(memory):
    memory["rounds"] = memory.get("rounds", 0) + 1
    return dict(memory)


def scribble_in_array(memory):
    memory.get("counts", np.zeros(2))[0] += 1
    return {"counts": np.zeros(2)}


@dataclass(frozen=True)
class Forgetful(SelectionRule):
    """Hangs its answer on an object that no checkpoint knows."""

    def choose(self, memory, view, rng):
        seen = memory.get("seen", {})
        turned = np.roll(np.flatnonzero(view.available), len(seen))
        return turned[: view.budget], {"seen": {**seen, view.round: 1}}


@dataclass(frozen=True)
class Scribbling(SelectionRule):
    learns_from = "last"

    def choose(self, memory, view, rng):
        return first(view, rng), {"a": 1}

    def learn(self, memory, feedback):
        return scribble(memory)


BROKEN = {
    "twice": (
        lambda view, rng: np.repeat(first(view, rng), 2)[: view.budget],
        "chose a client twice",
    ),
    "absent": (lambda view, rng: np.arange(min(view.budget, view.size)), "who are not available"),
    "nowhere": (lambda view, rng: first(view, rng) + view.size, "do not exist"),
    "negative": (lambda view, rng: first(view, rng) - 1, "do not exist"),
    "too few": (
        lambda view, rng: first(view, rng)[:1],
        "chose 1 of 12 available clients with a budget of 4",
    ),
    "too many": (lambda view, rng: np.flatnonzero(view.available), "chose 12 of 12"),
    "floats": (lambda view, rng: first(view, rng).astype(float), "not int64"),
    "matrix": (lambda view, rng: first(view, rng)[None], "not a list of client ids"),
    "own randomness": (drawn_elsewhere(), "another answer from the same stream"),
    "writes to the view": (lambda view, rng: view.loss.fill(0), "read-only"),
    "writes to its memory": (remembering(scribble), "changed the memory"),
    "writes to an array": (remembering(scribble_in_array), "read-only"),
    "tuple in memory": (
        remembering(lambda memory: {"pair": (1, 2)}),
        "a checkpoint gives another memory back",
    ),
    "numbers as names": (Forgetful, "names that are not strings"),
    "asks for ever": (
        lambda view, rng: AskLoss(first(view, rng)),
        r"asked 9 questions|asked nobody",
    ),
    "asks nobody": (lambda view, rng: AskTrial(np.empty(0, int)), "asked nobody"),
    "asks the absent": (
        lambda view, rng: AskUpdates(np.arange(view.size)),
        "asked .* who are not available|questions",
    ),
    "learn writes": (
        Scribbling,
        "learn changed the memory",
    ),
}


def test_a_good_rule_passes():
    check_selection(first)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_caught(name):
    rule, message = BROKEN[name]
    with pytest.raises((AssertionError, ValueError), match=message):
        check_selection(rule)


def test_the_message_says_where():
    with pytest.raises(
        AssertionError,
        match=r"<lambda> in World\(available='some'\), round 1: chose \[.*\] who are not",
    ):
        check_selection(BROKEN["absent"][0])


def test_a_rule_with_its_own_number_must_still_choose_somebody():
    check_selection(BROKEN["too few"][0], fills_budget=False)
    with pytest.raises(AssertionError, match="chose nobody of 12"):
        check_selection(lambda view, rng: first(view, rng)[:0], fills_budget=False)


def test_options_are_passed_on():
    def rule(view, rng, *, skip=0):
        return np.flatnonzero(view.available)[skip:][: view.budget]

    with pytest.raises(AssertionError, match="chose 2 of 5"):
        check_selection(rule, worlds=(World(clients=5, budget=5),), skip=3)


def test_a_rule_sees_only_what_it_needs_when_asked_so():
    seen = []

    @needs("clustering", "snr")
    def rule(view, rng):
        seen.append(
            (view.signal, view.clustering, view.population.snr, view.population.latency_seconds)
        )
        return first(view, rng)

    list(play(rule, World(everything=False, rounds=1)))
    assert [fact is not None for fact in seen[0]] == [True, True, True, False]
    list(play(first, World(rounds=1)))


def test_questions_are_answered_for_the_clients_asked():
    answers = []

    def rule(view, rng):
        asks = [
            AskLoss(first(view, rng)),
            AskUpdates(first(view, rng), "last"),
            AskTrial(first(view, rng)),
        ]
        if len(view.answers) < 3:
            return asks[len(view.answers)]
        answers.append((view.answers, view.loss))
        return first(view, rng)

    (played,) = play(rule, World(rounds=1, budget=3, reports="some", seed=3))
    (loss, updates, trial), known = answers[0]
    assert [type(ask) for ask in played.asks] == [AskLoss, AskUpdates, AskTrial]
    assert loss.values.shape == (3,)
    assert updates.values.shape == (3, 16)
    assert trial.values.shape == (12,)
    assert np.array_equal(known[:3], loss.values, equal_nan=True)
    assert np.isnan(trial.values).any()


def test_renamed_worlds_hold_the_same_clients():
    order = (3, 1, 0, 2)
    plain, renamed = World(clients=4), World(clients=4, order=order)
    for read in (
        lambda w: w.num_examples,
        lambda w: w.losses_at(2),
        lambda w: w.updates_at(1, "all"),
        lambda w: w.signal.rows,
    ):
        assert np.array_equal(read(renamed), read(plain)[list(order)])
    same = plain.clustering.labels[:, None] == plain.clustering.labels
    assert np.array_equal(
        renamed.clustering.labels[:, None] == renamed.clustering.labels, same[np.ix_(order, order)]
    )
    firsts = [int(renamed.clustering.members(c)[0]) for c in range(renamed.clustering.k)]
    assert firsts == sorted(firsts)
