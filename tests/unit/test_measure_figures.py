"""Figures: drawn without warnings from three clients to ten thousand, for every odd federation
and every odd name.
"""

from __future__ import annotations

import builtins

import numpy as np
import pytest

from fedskew.errors import DataError
from fedskew.measure import Counts, Measurement, measure
from fedskew.report.figures.client_map import draw_map, principal_plane
from fedskew.report.figures.heatmap import MOST_BANDS, draw_heatmap, make_bands, sort_clients
from fedskew.report.figures.measurement import FIGURES, save_figures
from fedskew.report.figures.psi_bars import halves
from fedskew.report.figures.silhouette_curve import best_by_count
from fedskew.report.figures.sizes import draw_sizes, size_bins
from fedskew.report.figures.style import drawing, save

pytest.importorskip("matplotlib")


def named(table, labels=None) -> Counts:
    table = np.asarray(table)
    return Counts(
        table,
        [f"c{i}" for i in range(len(table))],
        labels or [str(label) for label in range(table.shape[1])],
    )


def lay_out(found: Measurement) -> None:
    """Everything but the files: drawing, texts and layout, where warnings come from."""
    with drawing():
        for draw in FIGURES.values():
            draw(found).draw_without_rendering()


@pytest.fixture(scope="module")
def six_thousand() -> Measurement:
    rng = np.random.default_rng(0)
    groups = rng.dirichlet(np.full(8, 0.2), 6)[rng.integers(0, 6, 6_000)]
    sizes = rng.lognormal(4, 1, 6_000).astype(int) + 1
    # k-means and k-medoids exact, OPTICS on cells: both kinds are drawn
    cells = {"clustering": {"exact_limit": 0}}
    return measure(named(rng.multinomial(sizes, groups)), options=cells)


def test_every_figure_as_png_and_svg_with_the_same_bytes_again(tmp_path):
    table = np.random.default_rng(1).multinomial(
        80, np.random.default_rng(2).dirichlet(np.full(6, 0.3), 24)
    )
    found = measure(named(table))
    paths = save_figures(found, tmp_path / "new" / "folder")
    with drawing():
        again = save(draw_sizes(found), tmp_path, "sizes")
    assert [path.read_bytes() for path in again] == [
        path.read_bytes() for path in paths if path.stem == "sizes"
    ]
    assert sorted(path.name for path in paths) == sorted(
        f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg")
    )
    assert all(path.stat().st_size > 3_000 for path in paths)


def test_six_thousand_clients(six_thousand, tmp_path):
    assert [grouping.clustering.exact for grouping in six_thousand.groupings] == [True, False, True]
    assert all((grouping.clustering.labels >= 0).all() for grouping in six_thousand.groupings)
    with drawing():
        paths = save(draw_heatmap(six_thousand), tmp_path, "labels") + save(
            draw_map(six_thousand), tmp_path, "map"
        )
    assert max(path.stat().st_size for path in paths if path.suffix == ".png") < 150_000
    # an SVG must not hold six thousand shapes
    assert max(path.stat().st_size for path in paths) < 1_000_000
    lay_out(six_thousand)


@pytest.mark.parametrize(
    "counts",
    [
        named([[3, 4]]),
        named([[3], [4]]),
        named([[3, 4], [4, 3]]),
        named([[5, 5, 5]] * 4),
        named([[5, 0], [0, 5], [0, 0], [5, 0], [0, 5]]),
        named(np.eye(3, dtype=int) * 9, ["$5 \\alpha$", "猫", "x" * 90]),
        named(np.random.default_rng(0).poisson(0.2, (30, 130)) + np.eye(30, 130, dtype=int)),
    ],
    ids=[
        "one client",
        "one class",
        "two clients",
        "identical",
        "an empty client",
        "odd names",
        "130 classes",
    ],
)
def test_odd_federations_are_drawn_too(counts):
    lay_out(measure(counts))


def test_clients_in_no_cluster_are_drawn():
    rng = np.random.default_rng(5)
    table = rng.multinomial(60, rng.dirichlet(np.full(5, 0.3), 40))
    found = measure(named(table), clustering="optics", options={"clustering": {"noise": "drop"}})
    assert (found.chosen_grouping.clustering.labels < 0).any()
    lay_out(found)


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="Choose another folder"):
        save_figures(measure(named([[3, 4], [4, 3]])), tmp_path / "file")


def test_without_matplotlib(monkeypatch):
    real = builtins.__import__

    def refuse(name, *rest, **more):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(DataError, match=r"pip install 'fedskew\[report\]'"), drawing():
        pass


# ---------------------------------------------------------------- what is drawn


def test_bands_keep_clusters_apart_and_average_their_clients():
    labels = np.array([0] * 3 + [1] * 7)
    rows = np.arange(10.0)[:, None]
    bands = make_bands(rows, labels, most=3)
    assert bands.edges.tolist() == [0, 3, 6, 10]
    assert bands.rows.ravel().tolist() == [1.0, 4.0, 7.5]
    assert (bands.cluster_edges.tolist(), bands.clusters.tolist()) == ([0, 3, 10], [0, 1])


def test_bands_are_few_enough_to_be_seen(six_thousand):
    labels = six_thousand.chosen_grouping.clustering.labels
    order = sort_clients(six_thousand.signal.rows, labels)
    bands = make_bands(six_thousand.signal.rows[order], labels[order])
    assert MOST_BANDS / 2 < len(bands.rows) <= MOST_BANDS + len(bands.clusters)
    whole = np.average(bands.rows, axis=0, weights=np.diff(bands.edges))
    assert whole == pytest.approx(six_thousand.signal.rows.mean(axis=0))
    many = make_bands(six_thousand.signal.rows, np.arange(6_000) // 2)  # more clusters than bands
    assert len(many.rows) == MOST_BANDS


def test_sorting_puts_clusters_side_by_side_and_the_unclustered_last():
    rng = np.random.default_rng(0)
    labels = rng.integers(-1, 4, 200)
    ordered = labels[sort_clients(rng.dirichlet(np.ones(5), 200), labels)]
    assert np.count_nonzero(np.diff(ordered)) == 4
    assert ordered[-1] == -1


def test_the_plane_is_that_of_the_largest_variance():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(500, 4)) * [0.1, 5, 0.1, 2]
    places, shares = principal_plane(points)
    assert np.abs(np.corrcoef(places[:, 0], points[:, 1])[0, 1]) > 0.99
    assert np.abs(np.corrcoef(places[:, 1], points[:, 3])[0, 1]) > 0.99
    assert shares.tolist() == pytest.approx([25 / 29, 4 / 29], abs=0.03)
    assert principal_plane(np.ones((5, 1)))[0].tolist() == [[0, 0]] * 5


def test_psi_halves_add_up_and_tell_absence_from_presence():
    found = measure(named([[10, 0], [5, 5]]))
    present, absent = halves(found)
    assert (present + absent).sum() == pytest.approx(found.figures.wpsi)
    assert absent[0] == pytest.approx(0, abs=1e-12)  # nobody lacks label 0
    assert absent[1] > 10 * present[1]


def test_size_bins_hold_everyone():
    rng = np.random.default_rng(0)
    for sizes in (
        rng.integers(1, 9, 50),
        rng.lognormal(4, 2, 999).astype(int) + 1,
        np.array([7]),
        np.array([1, 1, 400]),
    ):
        edges, _ = size_bins(sizes.astype(float))
        assert np.histogram(sizes, edges)[0].sum() == len(sizes)
        assert (np.diff(edges) > 0).all()


def test_the_curve_shows_only_candidates_that_could_win(six_thousand):
    for grouping in six_thousand.groupings:
        counts, scores = best_by_count(grouping)
        assert (np.diff(counts) > 0).all()
        assert np.isfinite(scores).all()
        assert counts.min() >= 2
