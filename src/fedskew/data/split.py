"""Divide a dataset among clients and give each client something to be tested on (docs/methods.md
9.5).

``client_test`` says where a client's own test rows come from:

- ``split``: training and official test rows are pooled, divided, and a fifth of each client's rows
  is put aside at random; the central test set is all of those together (the setting of
  Clust-PSI-PFL, paper 004);
- ``matched``: the official test set is dealt out so that each client gets its own class proportions
  (largest remainder), every test row once; the central test set is the official one;
- ``none``: clients have no test rows; the central test set is the official one;
- ``auto``: ``matched`` if there is an official test set, else ``split``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, did_you_mean
from ..streams import stream
from ..types import Ints, Params, frozen
from .arrays import fit_scale
from .dataset import Dataset
from .partitions import PARTITIONS, Partition, Pool
from .test_sets import discard, match, split_clients
from .text import fit_vocabulary

ClientTest: TypeAlias = Literal["auto", "split", "matched", "none"]
Rule: TypeAlias = Callable[..., Partition]


@dataclass(frozen=True, eq=False)
class Shards:
    """What an engine trains and tests on.

    ``train`` addresses ``x`` and ``y``; ``test`` and ``central_test`` address ``x_test`` and
    ``y_test``, which are the same arrays as ``x`` and ``y`` after ``split``. ``mean`` and ``std``
    are fitted to training rows only (or fixed by the dataset).
    """

    dataset: Dataset
    x: NDArray[Any]
    y: Ints
    x_test: NDArray[Any]
    y_test: Ints
    train: Partition
    test: Partition | None
    central_test: Ints
    mean: Params | None
    std: Params | None
    client_test: Literal["split", "matched", "none"]
    # rows of x that the server itself holds
    auxiliary: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def clients(self) -> int:
        """K."""
        return self.train.clients

    @property
    def label_counts(self) -> Ints:
        """(K, C) training examples of each class at each client."""
        return self.train.counts(self.y, self.dataset.num_classes)

    @property
    def untested(self) -> int:
        """Clients without test rows: they are left out of AD and SDAD."""
        return self.clients if self.test is None else int((self.test.sizes == 0).sum())


def build_shards(
    dataset: Dataset,
    *,
    clients: int,
    partition: str | Rule = "dirichlet",
    options: Mapping[str, Any] | None = None,
    client_test: ClientTest = "auto",
    test_fraction: float = 0.2,
    stratified: bool = False,
    holdout: float = 0.0,
    auxiliary: int = 0,
    seed: int = 0,
) -> Shards:
    """Divide ``dataset`` among ``clients`` by a partition rule (a name or a function).

    ``options`` are the rule's.

    ``stratified`` takes the test rows of ``split`` class by class. ``holdout`` throws that share of
    every client's training rows away, as one published study does without meaning to
    (docs/methods.md 5). ``auxiliary`` rows, equally many of every class, are kept for the server
    before clients get theirs.

    >>> from fedskew.data import load
    >>> shards = build_shards(load("digits"), clients=5, partition="iid", seed=1)
    >>> shards.train.sizes.tolist(), shards.test.sizes.tolist(), shards.x_test is shards.x
    ([288, 288, 287, 287, 287], [72, 72, 72, 72, 72], True)
    """
    _check_shares(test_fraction, holdout)
    how = _resolve(client_test, dataset)
    divide = _rule(partition)
    x, y, columns = (
        pool_rows(dataset) if how == "split" else (dataset.x, dataset.y, dataset.columns)
    )
    kept = draw_auxiliary(y, dataset.num_classes, auxiliary, stream(seed, "auxiliary"))
    rest = np.delete(np.arange(len(y)), kept)
    pool = Pool(
        y[rest], dataset.num_classes, {name: column[rest] for name, column in columns.items()}
    )
    dealt = divide(pool, clients, stream(seed, "partition"), **(options or {}))
    whole = replace(dealt, order=rest[dealt.order]) if len(kept) else dealt
    train, test = _test_sets(
        how, whole, y, dataset, stream(seed, "split"), test_fraction, stratified
    )
    if holdout:
        train = discard(train, holdout, stream(seed, "split", 1))
    x_test, y_test = (x, y) if how == "split" else (dataset.x_test, dataset.y_test)
    central = np.sort(test.order) if how == "split" and test is not None else np.arange(len(y_test))
    refit = how == "split" and dataset.scale == "fitted" and dataset.mean is not None
    mean, std = fit_scale(x, train.order) if refit else (dataset.mean, dataset.std)
    x, x_test = _in_words(dataset, x, x_test, train.order)
    return Shards(
        dataset, x, y, x_test, y_test, train, test, frozen(central, np.int64), mean, std, how, kept
    )


def _in_words(
    dataset: Dataset, x: NDArray[Any], x_test: NDArray[Any], rows: Ints
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Texts in the vocabulary of the training clients; anything else as it is."""
    if dataset.words is None or dataset.vocab_size is None:
        return x, x_test
    table = fit_vocabulary(x, rows, dataset.words, dataset.vocab_size)
    recoded = frozen(table[x])
    return recoded, recoded if x_test is x else frozen(table[x_test])


def draw_auxiliary(y: Ints, num_classes: int, size: int, rng: np.random.Generator) -> Ints:
    """Rows for the server, size // C of every class, ascending.

    >>> draw_auxiliary(np.array([0, 1, 0, 1, 1]), 2, 2, np.random.default_rng(0)).size
    2
    """
    if not size:
        return np.empty(0, np.int64)
    each = size // num_classes
    rows = [np.flatnonzero(y == c) for c in range(num_classes)]
    rarest = min(len(r) for r in rows)
    if each < 1 or rarest <= each:
        what = (
            f"auxiliary = {size}, but there are {num_classes} classes "
            f"and {rarest} rows of the rarest"
        )
        raise DataError(
            "data", what, "Give at least one example per class, and leave some for the clients"
        )
    return np.sort(np.concatenate([rng.choice(r, each, replace=False) for r in rows]))


def _test_sets(
    how: str,
    whole: Partition,
    y: Ints,
    dataset: Dataset,
    rng: np.random.Generator,
    test_fraction: float,
    stratified: bool,
) -> tuple[Partition, Partition | None]:
    if how == "split":
        return split_clients(
            whole, y, dataset.num_classes, rng, test_fraction=test_fraction, stratified=stratified
        )
    return whole, match(
        dataset.y_test, whole.counts(y, dataset.num_classes), rng
    ) if how == "matched" else None


def pool_rows(dataset: Dataset) -> tuple[NDArray[Any], Ints, Mapping[str, NDArray[Any]]]:
    """Training and test rows as one.

    Without a copy when there are no test rows or both lie in one file of the cache.
    """
    if not len(dataset.y_test):
        return dataset.x, dataset.y, dataset.columns
    return _joined(dataset.x, dataset.x_test), _joined(dataset.y, dataset.y_test), {}


def _joined(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    """``second`` behind ``first``; a view of their common owner if they lie in memory like that."""
    owner = first.base
    while isinstance(owner, np.ndarray):
        if (
            owner.shape == (len(first) + len(second), *first.shape[1:])
            and owner.dtype == first.dtype
            and owner.flags.c_contiguous
        ):
            start = owner.__array_interface__["data"][0]
            places = [a.__array_interface__["data"][0] - start for a in (first, second)]
            if places == [0, first.nbytes]:
                return frozen(owner)
        owner = owner.base
    return frozen(np.concatenate([first, second]))


def _resolve(client_test: str, dataset: Dataset) -> Literal["split", "matched", "none"]:
    official = len(dataset.y_test) > 0
    if client_test == "auto":
        return "matched" if official else "split"
    if client_test == "matched" and not official:
        raise DataError(
            f"data {dataset.name}",
            "there is no official test set to match",
            "Use client_test = 'split'",
        )
    if client_test not in ("split", "matched", "none"):
        known = did_you_mean(client_test, ["auto", "split", "matched", "none"])
        raise DataError("data", f"client_test = '{client_test}'", known)
    return client_test  # type: ignore[return-value]


def _rule(partition: str | Rule) -> Rule:
    if callable(partition):
        return partition
    if partition not in PARTITIONS:
        raise DataError(
            "data", f"no partition is called '{partition}'", did_you_mean(partition, PARTITIONS)
        )
    return PARTITIONS[partition]


def _check_shares(test_fraction: float, holdout: float) -> None:
    if not 0.0 < test_fraction < 1.0 or not 0.0 <= holdout < 1.0:
        raise DataError(
            "data",
            f"test_fraction = {test_fraction}, holdout = {holdout}",
            "Use shares between 0 and 1",
        )
