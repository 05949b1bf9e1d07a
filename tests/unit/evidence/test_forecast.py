"""The time left, on made-up durations: within a fifth after a tenth of the cells."""

from __future__ import annotations

import pytest

from fedskew.evidence.forecast import Forecast, order_of, work_of
from fedskew.streams import stream


def cells(methods: int, seeds: int) -> Forecast:
    """Small and large federations; what a method costs beside its steps is not known beforehand."""
    works, kinds, twins = [], [], []
    for _ in range(seeds):
        for method in range(methods):
            for data, size in (("small", 1.0), ("large", 30.0)):
                works.append(size)
                kinds.append((data,))
                twins.append(f"{method} {data}")
    return Forecast(works, kinds, twins)


def durations(forecast: Forecast) -> list[float]:
    """A large step is slower than its work says, methods differ by a half, seeds by a tenth."""
    random = stream(3, "durations")
    extra = {twin: random.uniform(0.75, 1.25) for twin in forecast.twins}
    speed = {("small",): 0.5, ("large",): 1.7}
    return [
        work * speed[kind] * extra[twin] * random.uniform(0.95, 1.05)
        for work, kind, twin in zip(forecast.works, forecast.kinds, forecast.twins, strict=True)
    ]


def test_within_a_fifth_after_a_tenth_of_the_cells():
    forecast = cells(methods=8, seeds=5)
    true = durations(forecast)
    for number in range(len(true) // 10):
        forecast.seconds[number] = true[number]
    left = sum(true[len(true) // 10 :]) / 2
    assert forecast.remaining(cores=2) == pytest.approx(left, rel=0.2)


def test_a_cell_takes_what_its_twin_took():
    forecast = Forecast([1.0, 1.0, 1.0], [("a",), ("a",), ("b",)], ["x", "x", "y"])
    assert forecast.remaining(1) is None
    forecast.seconds[0] = 8.0
    assert forecast.expected(1) == 8.0
    assert forecast.remaining(1) == 16.0
    forecast.shares[1] = 0.75  # three quarters of its rounds are played
    assert forecast.remaining(1) == 10.0
    assert forecast.remaining(2) == 8.0  # the last one alone takes as long


def test_a_look_at_a_large_study_visits_every_cell_once():
    """It is taken at every round of every cell: not cells times finished cells."""

    class Counted(list):
        visits = 0

        def __getitem__(self, number):
            Counted.visits += 1
            return super().__getitem__(number)

    forecast = cells(methods=50, seeds=10)
    forecast.works = Counted(forecast.works)
    forecast.seconds = dict.fromkeys(range(0, len(forecast.works), 2), 1.0)
    forecast.remaining(2)
    assert Counted.visits <= 5 * len(forecast.works)


def test_the_smallest_of_every_kind_first_then_seed_by_seed_the_longest_first(tmp_path):
    from test_study import study

    from fedskew.evidence.cells import cells_of

    text = """
    [[grid]]
    seeds = [0, 1]
    axes.data = { a = { "data.use" = "digits" }, b = { "data.use" = "fmnist" } }
    axes.rounds = { set = "run.rounds", values = [5, 20, 10] }
    """
    found = cells_of(study(tmp_path, text))
    assert [work_of(found[2]) / work_of(found[0])] == [4.0]
    order = [found[i] for i in order_of(found)]
    facts = [(c.labels["data"], c.labels["rounds"], c.seed) for c in order]
    assert facts[:2] == [("a", "5", 0), ("b", "5", 0)]
    assert facts[2:6] == [("a", "20", 0), ("b", "20", 0), ("a", "10", 0), ("b", "10", 0)]
    assert [seed for *_, seed in facts[6:]] == [1] * 6
