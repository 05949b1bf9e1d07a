"""Measuring a federation: reference values through a file, yardsticks, words, odd federations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedskew.errors import RecipeError
from fedskew.measure import (
    Counts,
    Measurement,
    counts_of_data,
    measure,
    measurement_payload,
    privacy_table,
    read_counts,
    verdict,
)
from fedskew.measure.groups import PAPER_RULES, Grouping, rules_for
from fedskew.measure.measurement import drawable
from fedskew.measure.wording import skew_share, skew_word
from fedskew.measure.yardsticks import hd_by_chance, one_class_each
from fedskew.recipe import resolve
from fedskew.types import Clustering


def named(table) -> Counts:
    table = np.asarray(table)
    return Counts(
        table, [f"c{i}" for i in range(len(table))], [str(label) for label in range(table.shape[1])]
    )


def balanced(classes_per_client: int, num_classes: int = 10) -> Counts:
    """Ten clients with k classes each in equal parts, every class equally often."""
    table = np.zeros((num_classes, num_classes), np.int64)
    for client in range(num_classes):
        table[client, (client + np.arange(classes_per_client)) % num_classes] = 60
    return named(table)


def sorted_blocks(sizes: list[int], clients: int) -> Counts:
    """Similarity S = 0: label-sorted examples cut into one block per client."""
    labels = np.repeat(np.arange(len(sizes)), sizes)
    each = len(labels) // clients
    table = [
        np.bincount(labels[i * each : (i + 1) * each], minlength=len(sizes)) for i in range(clients)
    ]
    return named(table)


# ---------------------------------------------------------------- oracles


@pytest.mark.parametrize("form", ["long", "wide"])
def test_the_figures_of_methods_12_through_a_file(tmp_path, form):
    rows = [[14, 4, 2, 0], [2, 4, 6, 8], [5, 5, 5, 5]]  # (.7,.2,.1,0), (.1,.2,.3,.4), (.25 x 4)
    if form == "wide":
        text = "client,a,b,c,d\n" + "".join(
            f"{i},{','.join(map(str, row))}\n" for i, row in enumerate(rows)
        )
    else:
        text = "client,label,count\n" + "".join(
            f"{i},{'abcd'[j]},{n}\n" for i, row in enumerate(rows) for j, n in enumerate(row)
        )
    (tmp_path / "counts.csv").write_text(text)
    figures = measure(read_counts(tmp_path / "counts.csv")).figures
    assert [figures.hd, figures.jsd, figures.emd_values] == pytest.approx(
        [0.443606, 0.432556, 0.397911], abs=1e-6
    )


def test_the_psi_oracle_of_methods_2_11(tmp_path):
    (tmp_path / "counts.csv").write_text("client,a,b,c,d\nx,7,2,1,0\ny,3,6,9,12\n")
    figures = measure(read_counts(tmp_path / "counts.csv")).figures
    assert figures.wpsi == pytest.approx(1.227553, abs=1e-6)
    assert figures.psi_per_client.tolist() == pytest.approx([4.384233, 0.175327], abs=1e-6)


@pytest.mark.parametrize(
    ("clients", "classes", "hd", "jsd"),
    [
        (100, 10, 0.953, 0.707),
        (250, 10, 0.951, 0.646),
        (300, 10, 0.950, 0.635),
        (100, 2, 0.711, 0.388),
    ],
)
def test_ceilings_of_methods_1_7(clients, classes, hd, jsd):
    assert one_class_each(clients, classes) == pytest.approx((hd, jsd), abs=6e-4)
    found = measure(sorted_blocks([clients * 10 // classes] * classes, clients))
    assert (found.figures.hd, found.figures.jsd) == pytest.approx(
        (found.hd_ceiling, found.jsd_ceiling), abs=1e-9
    )


def test_afls_switches_between_two_and_three_classes_each():
    two, three = measure(balanced(2)), measure(balanced(3))
    assert (two.figures.omega, three.figures.omega) == pytest.approx((8.888, 7.698), abs=1e-3)
    assert (two.sequential, three.sequential) == (True, False)
    assert (
        "AFLS would train sequentially, "
        "because omega reaches that of clients with 2 classes each (8.888 >= 8.888)"
    ) in verdict(two)
    assert "AFLS would train in parallel, because omega stays below" in verdict(three)
    assert "(7.698 < 8.888)" in verdict(three)


def test_classes_nobody_has_change_nothing_whoever_measures():
    three = balanced(3)
    table = np.insert(three.table, [0, 4, 10], 0, axis=1)
    bare, padded = measure(three), measure(named(table))
    assert list(padded.counts.labels) == ["1", "2", "3", "4", "6", "7", "8", "9", "10", "11"]
    assert (padded.figures.omega, padded.sequential) == (bare.figures.omega, bare.sequential)
    assert padded.omega_threshold == bare.omega_threshold == pytest.approx(8.888, abs=1e-3)
    assert padded.figures.emd_values == bare.figures.emd_values
    assert padded.counts.notes == ("3 labels without examples left out: '0', '5', '12'",)
    # omega of 2 classes each is 8.888 of 10 classes; of 20, half of them empty, 9.508 would count
    two = measure(named(np.hstack([balanced(2).table, np.zeros((10, 10), int)])))
    assert two.sequential
    assert privacy_table(named(table), epsilons=[1.0], repeats=1).counts.table.shape == (10, 10)


def test_of_two_classes_the_afls_threshold_is_one_class_each():
    one_each = measure(sorted_blocks([300, 300], 6))
    assert (one_each.omega_classes, one_each.sequential) == (1, True)
    assert not measure(named([[3, 4], [4, 3], [5, 5]])).sequential


def test_papers_that_find_three_and_ten_groups():
    # ACSIncome, S = 0: 63/37, one client with both
    income = measure(sorted_blocks([57_100, 33_500], 100))
    assert income.grouping("clust_psi_pfl").clustering.k == 3
    fashion = measure(sorted_blocks([6_000] * 10, 100))  # FMNIST, S = 0
    assert [grouping.clustering.k for grouping in fashion.groupings] == [10, 10, 10]
    assert (
        "Clust-PSI-PFL would train 10 models (τ = 10 by PSI, clear groups, silhouette 1.00)"
        in verdict(fashion)
    )
    assert "FedLECC would choose from J <= 10 clusters by OPTICS" in verdict(fashion)
    assert "the similarity study would train c = 10 clients a round" in verdict(fashion)


def test_no_clear_groups_are_called_so_before_any_number():
    clear = measure(sorted_blocks([600] * 5, 20))
    assert "no clear groups" not in verdict(clear)
    blurred = replace(
        clear,
        groupings=tuple(
            replace(grouping, clustering=replace(grouping.clustering, silhouette=0.18))
            for grouping in clear.groupings
        ),
    )
    for who in ("Clust-PSI-PFL", "FedLECC", "the similarity study"):
        assert f"{who} finds no clear groups (silhouette 0.18, below 0.25): it would" in verdict(
            blurred
        )
    assert verdict(blurred).count("but that number means little") == 3
    payload = measurement_payload(blurred)["groupings"]["fedlecc"]
    assert (payload["quality"], payload["silhouette_with_noise"]) == ("no real groups", 0.18)


def test_noise_left_out_does_not_make_groups_clear():
    pairs = Clustering(np.arange(40) // 2, 0.6, 0.45, True, {"silhouette_of_all": 0.1})
    grouping = Grouping(PAPER_RULES[1], pairs, 0.0)
    assert grouping.clarity == 0.1
    assert Grouping(PAPER_RULES[0], Clustering(np.arange(4) // 2, 0.6), 0.0).clarity == 0.6


# ---------------------------------------------------------------- yardsticks and words


def test_chance_is_what_dealing_at_random_gives():
    rng = np.random.default_rng(3)
    mix = [0.5, 0.3, 0.2]
    small, large = (named(rng.multinomial(size, mix, 400)) for size in (6, 6_000))
    for counts, chance in ((small, 0.37), (large, 0.01)):
        found = measure(counts)
        assert found.hd_chance == pytest.approx(found.figures.hd, rel=0.1)
        assert found.hd_chance == pytest.approx(chance, abs=0.01)
        assert "This federation is hardly skewed" in verdict(found)


def test_the_chance_value_of_few_clients_is_steady():
    values = [hd_by_chance(named([[20, 20, 20]] * 5), seed) for seed in range(20)]
    assert np.std(values) < 0.1 * np.mean(values)


def test_words_follow_the_share_between_chance_and_ceiling():
    words = [skew_word(skew_share(hd, 0.95, 0.05)) for hd in (0.05, 0.3, 0.6, 0.8, 0.95)]
    assert words == [
        "hardly skewed",
        "mildly skewed",
        "moderately skewed",
        "strongly skewed",
        "extremely skewed",
    ]
    # one example each: nothing can be told
    singles = measure(named(np.eye(4, dtype=int).repeat(25, axis=0)))
    assert "too thinly spread to tell skew from chance" in verdict(singles)


# ---------------------------------------------------------------- odd federations


def test_one_client_and_one_class():
    assert verdict(measure(named([[3, 4]]))).startswith("There is one client with examples")
    assert verdict(measure(named([[3, 4], [0, 0]]))).startswith("There is one client with examples")
    assert verdict(measure(named([[3], [4]]))).startswith("All examples have the same label")


def test_identical_clients_are_one_group():
    found = measure(named([[10, 20, 30]] * 12))
    assert [grouping.clustering.k for grouping in found.groupings] == [1, 1, 1]
    assert "one model for all (τ = 1)" in verdict(found)
    assert "J = 1" in verdict(found)
    assert "c = 1" in verdict(found)


def test_empty_clients_take_no_part():
    rows = sorted_blocks([600] * 10, 60).table
    with_empty = named(np.insert(rows, [0, 30], 0, axis=0))
    found, without = measure(with_empty), measure(named(rows))
    assert found.figures.hd == without.figures.hd
    assert found.hd_ceiling == without.hd_ceiling
    for one, other in zip(found.groupings, without.groupings, strict=True):
        assert np.flatnonzero(one.clustering.labels < 0).tolist() == [0, 31]
        assert one.clustering.k == other.clustering.k
    assert measurement_payload(found)["empty_clients"] == ["c0", "c31"]


def test_a_pair_of_ones_own_is_a_fourth_grouping():
    found = measure(balanced(2), distance="tv", clustering="dbscan")
    assert [grouping.rule.how for grouping in found.groupings][3] == "dbscan on tv"
    assert found.chosen_grouping.rule.key == "chosen"
    assert "chosen_cluster" in measurement_payload(found)["clients"]


def test_options_reach_the_chosen_rule_only():
    options = {"clustering": {"count": 4}}
    found = measure(
        sorted_blocks([600] * 10, 40), distance="euclidean", clustering="kmedoids", options=options
    )
    assert [grouping.clustering.k for grouping in found.groupings] == [10, 10, 4]
    with pytest.raises(RecipeError, match="Did you mean 'count'"):
        measure(balanced(2), clustering="kmedoids", options={"clustering": {"cuont": 4}})


def test_figures_use_a_grouping_that_can_be_drawn():
    def with_clusters(k: int, score: float) -> Grouping:
        return Grouping(rules_for()[0][0], Clustering(np.arange(k), score), 0.0)

    assert drawable([with_clusters(2, 0.1), with_clusters(9, 0.5)], 1) == 1
    assert drawable([with_clusters(2, 0.1), with_clusters(99, 0.9), with_clusters(8, 0.4)], 1) == 2
    assert drawable([with_clusters(1, 0.1), with_clusters(99, 0.9)], 1) == 1


def test_the_largest_number_tried_is_pointed_out():
    rng = np.random.default_rng(0)
    counts = named(rng.multinomial(200, rng.dirichlet(np.full(3, 0.3), 40)))
    options = {"clustering": {"max_count": 2}}
    found = measure(counts, distance="euclidean", clustering="kmedoids", options=options)
    assert found.chosen_grouping.at_edge
    assert not measure(counts, distance="euclidean", clustering="kmedoids").chosen_grouping.at_edge


# ---------------------------------------------------------------- sources, privacy, repeatability


def test_counts_of_a_dataset():
    raw = {"data": {"clients": 10, "client_test": "none"}, "partition": {"use": "equal_classes"}}
    counts = counts_of_data(resolve(raw), seed=1)
    assert measure(counts).figures.omega == pytest.approx(8.888, abs=1e-3)
    assert counts.source == "digits, equal_classes (classes_per_client = 2), 10 clients, seed 1"
    assert "before any test split" in counts.notes[0]
    after = counts_of_data(resolve({"data": {"clients": 10, "client_test": "split"}}))
    assert after.table.sum() == pytest.approx(0.8 * 1797, abs=10)
    assert "after a share" in after.notes[0]


def without_times(found: Measurement) -> dict:
    payload = measurement_payload(found)
    for grouping in payload["groupings"].values():
        del grouping["seconds"]
    return payload


def test_the_same_twice():
    counts = counts_of_data(
        resolve({"data": {"client_test": "none"}, "partition": {"use": "dirichlet"}})
    )
    assert without_times(measure(counts)) == without_times(measure(counts))


def test_what_a_server_sees_through_noise():
    pytest.importorskip("opendp")
    counts = sorted_blocks([6_000] * 10, 50)
    found = measure(counts, signal="private", options={"signal": {"epsilon": 0.02}})
    assert found.private
    assert found.signal.epsilon == 0.02
    assert found.figures.hd == pytest.approx(found.hd_ceiling)
    # noise on absent classes makes clients look alike
    assert found.seen.hd < found.figures.hd - 0.02
    assert found.sequential == (found.seen.omega >= found.omega_threshold)
    assert measurement_payload(found)["figures_seen"]["hd"] == found.seen.hd


def test_a_client_drowned_in_noise_still_counts():
    pytest.importorskip("opendp")
    found = measure(
        named([[1, 0, 0]] * 60), signal="private", options={"signal": {"epsilon": 0.001}}
    )
    assert len(found.seen.empty_clients) == 0


def test_privacy_table_falls_with_epsilon():
    pytest.importorskip("opendp")
    counts = sorted_blocks([600] * 10, 30)
    table = privacy_table(counts, epsilons=(0.05, 10.0), repeats=2, seed=4)
    noisy, fine, none = table.rows
    assert (
        noisy.total_variation.mean
        > 0.2
        > fine.total_variation.mean
        >= none.total_variation.mean
        == 0
    )
    assert none.presence_recall.mean == none.presence_precision.mean == 1
    assert none.ari["fedlecc"].mean == fine.ari["fedlecc"].mean == 1
    assert none.groups["similarity"].mean == 10
    assert (noisy.epsilon, none.epsilon) == (0.05, None)
    with pytest.raises(RecipeError):
        privacy_table(counts, repeats=0)
    with pytest.raises(RecipeError, match="epsilon = -1"):
        privacy_table(counts, epsilons=(-1,), repeats=1)
