"""The world of a recipe: its examples, dealt out to clients, and its model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedskew import data as datasets
from fedskew import models
from fedskew.accounting.devices import Devices, draw_population
from fedskew.data import Dataset, Shards, build_shards, from_given
from fedskew.errors import RecipeError
from fedskew.experiment.own_split import own_split
from fedskew.recipe import find
from fedskew.records import Labels
from fedskew.runtime.faults import Faults
from fedskew.runtime.hostile import flip_labels
from fedskew.runtime.local.store import Store
from fedskew.types import Ids, Ints, Population

if TYPE_CHECKING:
    from torch import nn


def dataset_of(
    resolved: Mapping[str, Any], given: Any = None, model: Callable[[], nn.Module] | None = None
) -> Dataset:
    """The examples a recipe names, or those the user brings, as the user's model wants them."""
    if given is None:
        return datasets.load(resolved["data"]["use"], folder=resolved["data"]["folder"] or None)
    if model is None:
        return from_given(given, grey=True)  # models of ours take tables, images or texts
    taken = _channels_taken(model)
    return from_given(given, channels_taken=taken, grey=taken == 1)


def _channels_taken(model: Callable[[], nn.Module]) -> int | None:
    """How many channels the first convolution of images in the user's model takes; None: there is
    no such layer, or no such model, which the runtime says.
    """
    with suppress(Exception):
        return next(filter(None, map(_channels_of, model().modules())), None)
    return None


def _channels_of(layer: Any) -> int | None:
    """The channels of the images that this layer takes, if it is a convolution of images."""
    size = getattr(layer, "kernel_size", None)
    is_flat = isinstance(size, tuple) and len(size) == 2 and hasattr(layer, "in_channels")
    return int(layer.in_channels) if is_flat else None


def shards_of(
    resolved: Mapping[str, Any], dataset: Dataset, seed: int, client_ids: Any = None
) -> Shards:
    """The examples dealt out to clients, by the recipe's partition or by the user's client ids."""
    options = {k: v for k, v in resolved["partition"].items() if k != "use"}
    own = None if client_ids is None else own_split(client_ids)
    if own is None and resolved["partition"]["use"] == "custom":
        what = "it was a split of the user's own, which no recipe holds"
        raise RecipeError("partition.use", what, "Give clients= again, in Python")
    return build_shards(
        dataset if own is None else own.beside(dataset),
        partition=find("partition", resolved["partition"]["use"]) if own is None else own.deal,
        options=options if own is None else {},
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


def flipped_clients(resolved: Mapping[str, Any], size: int, seed: int) -> Ints:
    """Whose training labels are turned round (``faults.hostile`` with label_flip)."""
    hostile = Faults(**resolved["faults"]).hostile
    flips = hostile is not None and "label_flip" in hostile.kinds
    return hostile.who(size, seed) if hostile is not None and flips else np.empty(0, np.int64)


def store_of(shards: Shards, flipped: Ids = ()) -> Store:
    """Shards in the form the local runtime shares between processes; ``flipped`` clients hold
    wrong labels.
    """
    labels = shards.y
    if len(flipped):
        parts = [slice(*shards.train.offsets[c : c + 2]) for c in flipped]
        rows = np.concatenate([shards.train.order[part] for part in parts])
        labels = labels.copy()
        labels[rows] = flip_labels(labels[rows], shards.dataset.num_classes)
    mean, std = shards.mean, shards.std
    if _float_images(shards.x) and mean is not None and std is not None and mean.ndim:
        mean, std = mean.reshape(-1, 1, 1), std.reshape(-1, 1, 1)
    return Store(
        x=_as_fed(shards.x),
        y=labels,
        train_order=shards.train.order,
        train_offsets=shards.train.offsets,
        x_test=_as_fed(shards.x_test),
        y_test=shards.y_test,
        central_order=shards.central_test,
        test_order=shards.test.order if shards.test is not None else np.empty(0, np.int64),
        test_offsets=shards.test.offsets
        if shards.test is not None
        else np.zeros(shards.clients + 1, np.int64),
        num_classes=shards.dataset.num_classes,
        auxiliary_order=shards.auxiliary,
        mean=mean,
        std=std,
    )


def _float_images(x: NDArray[Any]) -> bool:
    return x.dtype.kind == "f" and x.ndim == 4


def _as_fed(x: NDArray[Any]) -> NDArray[Any]:
    """Float images with channels first, as models take them; the runtime turns uint8 itself."""
    return np.ascontiguousarray(np.moveaxis(x, 3, 1)) if _float_images(x) else x


def _check_kind(name: str, dataset: Dataset, *, is_text: bool) -> None:
    """Refuse a model of ours that cannot read such examples: torch would speak of its types."""
    if name not in models.MODELS or is_text == (dataset.kind == "tokens"):
        return
    texts = "embedding, lstm, transformer"
    if is_text:
        what = f"reads texts, but the examples of {dataset.name} are numbers"
        remedy = "Give whole numbers, the tokens of a text, or take another model"
    else:
        what = f"reads numbers, but the examples of {dataset.name} are whole numbers: tokens"
        remedy = f"Give a table as floats; for texts take a text model: {texts}"
    raise RecipeError(f"model {name}", what, remedy)


def factory_of(resolved: Mapping[str, Any], dataset: Dataset) -> Callable[[], nn.Module]:
    """A function without arguments that builds the recipe's model for this dataset."""
    options = {key: value for key, value in resolved["model"].items() if key != "use"}
    factory, shape, num_classes = (
        find("model", resolved["model"]["use"]),
        tuple(dataset.x.shape[1:]),
        dataset.num_classes,
    )
    _check_kind(resolved["model"]["use"], dataset, is_text="vocab" in options)
    if dataset.kind == "tokens" and options.get("vocab", dataset.vocab_size or 0) < (
        dataset.vocab_size or 0
    ):
        words = f"{dataset.vocab_size:,}"
        what = f"{options['vocab']:,} words, but the texts of {dataset.name} are in {words}"
        raise RecipeError("model.vocab", what, f"Set model.vocab = {dataset.vocab_size}")
    return lambda: models.build(factory, shape, num_classes, **options)
