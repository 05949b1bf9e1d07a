"""HACCS: weights by hand, the fastest of a drawn cluster, guaranteed places, guards."""

from __future__ import annotations

import numpy as np
import pytest
from making_views import NAN, often, play, view_of

from fedskew.errors import RecipeError, RunError
from fedskew.selection.groups import group
from fedskew.selection.haccs import haccs, weights
from fedskew.types import bind

# cluster 0 = {0, 1}, mean latency 2, mean loss 3; cluster 1 = {2}, 4 and 1
SMALL = {
    "labels": np.array([0, 0, 1]),
    "latency": np.array([3.0, 1.0, 4.0]),
    "loss": np.array([2.0, 4.0, 1.0]),
}


def theta(rho, loss=SMALL["loss"]):
    return weights(group(np.arange(3), SMALL["labels"]), SMALL["latency"], loss, rho)


def test_weights_by_hand():
    assert theta(0.5) == pytest.approx([0.5 * (1 - 2 / 4) + 0.5 * 3 / 4, 0.5 * 0 + 0.5 * 1 / 4])
    assert theta(1.0) == pytest.approx([0.5, 0.0])
    assert theta(0.0) == pytest.approx([0.75, 0.25])


def test_a_cluster_without_members_there_has_no_weight_and_no_say():
    grouped = group(np.array([0, 1]), SMALL["labels"])
    assert weights(grouped, SMALL["latency"], SMALL["loss"], 0.0).tolist() == [1.0, 0.0]
    assert weights(grouped, SMALL["latency"], SMALL["loss"], 1.0).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("variant", "chance"),
    # squares: means 10 and 1
    [("paper", 0.625 / 0.75), ("official", (0.25 + 0.5 * 10 / 11) / (0.25 + 0.5))],
)
def test_clusters_are_drawn_in_proportion_and_send_their_fastest(variant, chance):
    share = often(haccs, view_of(m=1, **SMALL), 1000, variant=variant)
    assert share[0] == 0  # slower than client 1 of its cluster
    assert abs(share[1] - chance) < 4.5 * np.sqrt(chance * (1 - chance) / 1000)
    assert share[1] + share[2] == pytest.approx(1)


def test_official_gives_whole_shares_before_it_draws():
    labels = np.repeat([0, 1], 5)
    view = view_of(m=4, labels=labels, latency=np.arange(10.0), loss=np.repeat([3.0, 1.0], 5))
    # rho 0: squares 9 and 1, theta .9 and .1; 4 * .9 = 3.6, 4 * .1 = .4: three places are sure
    for seed in range(40):
        assert play(haccs, view, seed, variant="official", rho=0.0)[:3] == [0, 1, 2]
    seen = {tuple(sorted(play(haccs, view, seed, rho=0.0))) for seed in range(200)}
    assert (0, 1, 5, 6) in seen  # the paper's draws promise nothing


def test_official_shares_are_parts_of_all_weights():
    labels, latency = np.repeat([0, 1], 10), np.repeat([1.0, 2.0], 10)
    view = view_of(m=10, labels=labels, latency=latency, loss=np.repeat([3.0, 1.0], 10))
    # theta = .5 (1 - 1/2) + .5 * .9 and .5 * .1, together .75
    # 10 * .7 / .75 = 9.3 and 10 * .05 / .75 = .7: nine places are sure
    drawn = []
    for seed in range(300):
        chosen = play(haccs, view, seed, variant="official")
        assert chosen[:9] == list(range(9))
        drawn.append(chosen[9])
    assert set(drawn) == {9, 10}
    assert drawn.count(10) / 300 == pytest.approx(0.05 / 0.75, abs=4.5 * 0.015)


def test_official_shares_end_where_a_cluster_does():
    # theta .9 and .1: 3.6 places for a cluster of two
    view = view_of(m=4, labels=[0, 0, 1, 1, 1], latency=np.arange(5.0), loss=[3.0, 3, 1, 1, 1])
    assert play(haccs, view, variant="official", rho=0.0) == [0, 1, 2, 3]


def test_an_exact_share_is_not_lost_to_rounding():
    labels = np.repeat(np.arange(10), 7)
    view = view_of(m=70, labels=labels, latency=np.ones(70), loss=np.ones(70))
    chosen = play(haccs, view, variant="official", rho=0.0)
    # ten shares of exactly 7, cluster by cluster, nothing left to draw
    assert chosen == list(range(70))


def test_an_emptied_cluster_is_drawn_no_more():
    for seed in range(10):
        assert sorted(play(haccs, view_of(m=3, **SMALL), seed)) == [0, 1, 2]


def test_clients_without_experience_count_with_a_large_loss():
    view = view_of(m=1, labels=[0, 1], latency=[1.0, 1.0], loss=[0.5, NAN])
    share = often(haccs, view, 400)
    assert share[1] > 0.97  # 100 / 100.5
    assert often(haccs, view, 400, initial_loss=0.5)[1] == pytest.approx(0.5, abs=0.12)


def test_no_weight_at_all_means_clusters_alike():
    share = often(
        haccs,
        view_of(m=1, labels=[0, 0, 1], latency=[2.0, 2.0, 2.0], loss=[1.0, 1.0, 1.0]),
        1000,
        rho=1.0,
    )
    assert share[0] == pytest.approx(0.5, abs=0.08)
    assert play(haccs, view_of(m=2, labels=[0, 1], latency=[0.0, 0.0], loss=[0.0, 0.0])) in (
        [0, 1],
        [1, 0],
    )


def test_clients_in_no_cluster_fill_up_fastest_first():
    view = view_of(m=3, labels=[-1, 0, -1, -1], latency=[3.0, 9.0, 1.0, 2.0])
    assert play(haccs, view) == [1, 2, 3]


def test_an_unknown_latency_counts_as_the_slowest():
    view = view_of(m=2, labels=[0, 0, 0], latency=[NAN, 1.0, 5.0])
    assert play(haccs, view) == [1, 0]  # 0 ties with 2 at 5 s: lower id
    assert sorted(play(haccs, view_of(m=2, labels=[0, 0], latency=[NAN, NAN]))) == [0, 1]


def test_it_is_faster_than_uniform_selection():
    rng = np.random.default_rng(0)
    latency, labels = rng.exponential(size=60), np.arange(60) % 6
    view = view_of(m=6, labels=labels, latency=latency, loss=np.ones(60))
    mean = np.mean([latency[play(haccs, view, seed)].mean() for seed in range(100)])
    assert mean < 0.4 * latency.mean()


def test_refusals_and_edges():
    with pytest.raises(RunError, match="latencies are not known"):
        play(haccs, view_of(labels=[0, 1]))
    with pytest.raises(RecipeError, match="rho"):
        play(haccs, view_of(m=1, **SMALL), rho=1.5)
    assert play(haccs, view_of(labels=[0, 0], latency=[1.0, 2.0], available=[0, 0])) == []
    assert play(haccs, view_of(m=9, labels=[0], latency=[1.0])) == [0]
    assert set(bind("selection", haccs, {}).needs()) == {"clustering", "latency", "loss"}
