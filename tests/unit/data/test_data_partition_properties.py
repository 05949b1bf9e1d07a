"""What every partition rule keeps for any labels: disjoint, complete, deterministic.

Complete but for what is dropped.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedskew.data import PARTITIONS, Pool
from fedskew.errors import DataError
from fedskew.streams import stream

OPTIONS: dict[str, dict[str, Any]] = {
    "iid": {},
    "iid_stratified": {},
    "dirichlet": {"alpha": 0.5, "min_size": 2, "max_tries": 200, "repair": "move"},
    "dirichlet_client": {"alpha": 0.3},
    "dirichlet_plain": {"alpha": 0.3},
    "similarity": {"similarity": 0.3},
    "class_limited": {"classes_per_client": 1},
    "equal_classes": {"classes_per_client": 1},
    "quantity": {"alpha": 0.5, "min_size": 1, "max_tries": 200, "repair": "move"},
    "natural": {"column": "writer"},
}


def test_every_rule_is_covered() -> None:
    assert set(OPTIONS) == set(PARTITIONS)


@st.composite
def pools(draw: st.DrawFn) -> Pool:
    classes = draw(st.integers(1, 6))
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=5, max_size=300))
    return Pool(np.array(labels), classes, {"writer": np.arange(len(labels)) % 7})


@pytest.mark.parametrize("name", sorted(OPTIONS))
@settings(max_examples=40, deadline=None)
@given(pool=pools(), clients=st.integers(1, 40), seed=st.integers(0, 99))
def test_promises(name: str, pool: Pool, clients: int, seed: int) -> None:
    try:
        partition = PARTITIONS[name](pool, clients, stream(seed, "p"), **OPTIONS[name])
    except DataError:
        # a clear refusal is a promise kept; that rules do divide what they can is tested by example
        return
    assert partition.clients == clients
    owned = np.concatenate([partition.indices(i) for i in range(clients)])
    assert len(np.unique(owned)) == len(owned) == pool.size - partition.report.dropped
    assert owned.min() >= 0
    assert owned.max() < pool.size
    assert all((np.diff(partition.indices(i)) > 0).all() for i in range(clients))
    assert (partition.report.min_size, partition.report.max_size) == (
        partition.sizes.min(),
        partition.sizes.max(),
    )
    assert partition.sizes.min() >= OPTIONS[name].get(
        "min_size", 0 if name == "dirichlet_plain" else 1
    )
    assert partition.counts(pool.labels, pool.num_classes).sum() == len(owned)
    again = PARTITIONS[name](pool, clients, stream(seed, "p"), **OPTIONS[name])
    assert again.order.tolist() == partition.order.tolist()
    assert again.offsets.tolist() == partition.offsets.tolist()


@pytest.mark.parametrize("name", sorted(set(OPTIONS) - {"natural"}))
def test_another_seed_gives_another_partition(name: str) -> None:
    pool = Pool(np.arange(300) % 5, 5)
    first, second = (
        PARTITIONS[name](pool, 10, stream(seed, "p"), **OPTIONS[name]) for seed in (0, 1)
    )
    assert first.order.tolist() != second.order.tolist()
