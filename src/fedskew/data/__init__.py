"""Datasets, ways to divide them among clients, and client test sets.

``load("mnist")`` gets a dataset;
``build_shards(dataset, clients=100, partition="dirichlet", options={"alpha": 0.3})`` divides it.
"""

from __future__ import annotations

from .arrays import from_arrays
from .cache import cache_folder, is_cached
from .dataset import Dataset, describe
from .fetch import fetch, load
from .given import from_given, from_torch
from .partitions import PARTITIONS, Partition, Pool, Report, from_client_ids
from .sources import SOURCES, Info
from .split import Shards, build_shards

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "Dataset",
    "Info",
    "Partition",
    "Pool",
    "Report",
    "Shards",
    "build_shards",
    "cache_folder",
    "describe",
    "fetch",
    "from_arrays",
    "from_client_ids",
    "from_given",
    "from_torch",
    "is_cached",
    "load",
]

DATASETS: dict[str, Info] = {name: source.info for name, source in SOURCES.items()}
