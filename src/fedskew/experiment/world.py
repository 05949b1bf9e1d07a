"""The world of a recipe: its examples, dealt out to clients, and its model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedskew import data as datasets
from fedskew import models
from fedskew.accounting.devices import Devices, draw_population
from fedskew.data import Dataset, Shards, build_shards, from_arrays, from_client_ids, from_torch
from fedskew.errors import RecipeError
from fedskew.recipe import find
from fedskew.records import Labels
from fedskew.runtime.local.store import Store
from fedskew.types import Ints, Population

if TYPE_CHECKING:
    from torch import nn


def dataset_of(resolved: Mapping[str, Any], given: Any = None) -> Dataset:
    """The examples a recipe names, or those the user brings.

    A Dataset, arrays (x, y[, x_test, y_test]), or torch Datasets.
    """
    if given is None:
        return datasets.load(resolved["data"]["use"], folder=resolved["data"]["folder"] or None)
    if isinstance(given, Dataset):
        return given
    if (
        isinstance(given, tuple)
        and all(isinstance(part, np.ndarray) for part in given)
        and len(given) in (2, 4)
    ):
        return from_arrays(*given)
    return from_torch(*given) if isinstance(given, tuple) else from_torch(given)


def shards_of(
    resolved: Mapping[str, Any], dataset: Dataset, seed: int, client_ids: Any = None
) -> Shards:
    """The examples dealt out to clients, by the recipe's partition or by the user's client ids."""
    use, options = (
        resolved["partition"]["use"],
        {k: v for k, v in resolved["partition"].items() if k != "use"},
    )
    rule = (
        find("partition", use)
        if client_ids is None
        else lambda pool, clients, rng: from_client_ids(client_ids)
    )
    return build_shards(
        dataset,
        partition=rule,
        options=options if client_ids is None else {},
        clients=resolved["data"]["clients"],
        client_test=resolved["data"]["client_test"],
        test_fraction=resolved["data"]["test_fraction"],
        auxiliary=resolved["data"]["auxiliary"],
        holdout=resolved["data"]["holdout"],
        seed=seed,
    )


def labels_of(shards: Shards) -> Labels:
    """Who trains on how many examples of what."""
    return Labels(shards.label_counts, shards.dataset.class_names, shards.train.names or ())


def population_of(resolved: Mapping[str, Any], sizes: Ints, seed: int) -> Population:
    """The means of clients that have so many examples, as the recipe's devices are drawn."""
    pace = resolved["faults"]["seconds_per_example"]
    return draw_population(sizes, Devices(**resolved["devices"]), seed, seconds_per_example=pace)


def store_of(shards: Shards) -> Store:
    """Shards in the form the local runtime shares between processes."""
    return Store(
        x=shards.x,
        y=shards.y,
        train_order=shards.train.order,
        train_offsets=shards.train.offsets,
        x_test=shards.x_test,
        y_test=shards.y_test,
        central_order=shards.central_test,
        test_order=shards.test.order if shards.test is not None else np.empty(0, np.int64),
        test_offsets=shards.test.offsets
        if shards.test is not None
        else np.zeros(shards.clients + 1, np.int64),
        num_classes=shards.dataset.num_classes,
        auxiliary_order=shards.auxiliary,
        mean=shards.mean,
        std=shards.std,
    )


def factory_of(resolved: Mapping[str, Any], dataset: Dataset) -> Callable[[], nn.Module]:
    """A function without arguments that builds the recipe's model for this dataset."""
    options = {key: value for key, value in resolved["model"].items() if key != "use"}
    factory, shape, num_classes = (
        find("model", resolved["model"]["use"]),
        tuple(dataset.x.shape[1:]),
        dataset.num_classes,
    )
    if dataset.kind == "tokens" and options.get("vocab", dataset.vocab_size or 0) < (
        dataset.vocab_size or 0
    ):
        words = f"{dataset.vocab_size:,}"
        what = f"{options['vocab']:,} words, but the texts of {dataset.name} are in {words}"
        raise RecipeError("model.vocab", what, f"Set model.vocab = {dataset.vocab_size}")
    return lambda: models.build(factory, shape, num_classes, **options)
