"""A split of the user's own: one client id per training example, whatever ids look like."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedskew.data import Dataset, Partition, Pool, from_client_ids
from fedskew.errors import DataError, foreign_file
from fedskew.foreign import LONGEST_NAME, printable
from fedskew.types import Ints

COLUMN = "client ids that were given"
WANTED = "Give one whole number or one text per training example; -1 is nobody"


@dataclass(frozen=True, eq=False)
class OwnSplit:
    """Who owns which training example, numbered 0..K-1; -1: nobody."""

    owners: Ints  # (N,)
    size: int  # K
    names: tuple[str, ...] = ()  # none: clients go by their numbers

    @property
    def digest(self) -> str:
        """What tells this split from another one, in a recipe."""
        return hashlib.sha256(self.owners.tobytes()).hexdigest()[:12]

    def beside(self, dataset: Dataset) -> Dataset:
        """The dataset with the ids as a column, so that they go wherever their rows go."""
        if len(self.owners) != len(dataset.y):
            what = f"{len(self.owners)} client ids for {len(dataset.y)} training examples"
            raise DataError("clients", what, WANTED)
        return replace(dataset, columns={**dataset.columns, COLUMN: self.owners})

    def deal(self, pool: Pool, clients: int, rng: np.random.Generator) -> Partition:
        """A partition rule."""
        if COLUMN not in pool.columns:
            what = "data.client_test = 'split' divides the test examples too, which have no ids"
            raise DataError("clients", what, "Set data.client_test to 'matched' or 'none'")
        dealt = from_client_ids(pool.columns[COLUMN], clients=self.size)
        return replace(dealt, names=self.names)


def own_split(ids: Any) -> OwnSplit:
    """Client ids as they were given, numbered; numbers 0..K-1 stay as they are.

    >>> split = own_split(["north", "south", "north"])
    >>> split.owners.tolist(), split.names
    ([0, 1, 0], ('north', 'south'))
    >>> own_split([7, -1, 3]).names
    ('3', '7')
    """
    given = _vector(ids)
    whole = given.dtype.kind in "iu"
    nobody = given == -1 if whole else np.zeros(len(given), np.bool_)
    found, codes = np.unique(given[~nobody], return_inverse=True)
    if not len(found) or (whole and found[0] < 0):
        raise DataError("clients", "name nobody, or are negative", WANTED)
    owners = np.full(len(given), -1, np.int64)
    owners[~nobody] = codes
    numbered = whole and int(found[-1]) + 1 == len(found)
    names = () if numbered else tuple(printable(str(name), LONGEST_NAME) for name in found)
    return OwnSplit(owners, len(found), names)


def _vector(ids: Any) -> NDArray[Any]:
    """The ids as one vector of whole numbers or of texts."""
    with foreign_file(DataError, "clients", WANTED):
        given = np.asarray(ids)
        if given.dtype.kind == "U" and isinstance(ids, list | tuple):  # NaN and 1 became texts
            given = np.asarray(ids, dtype=object)
        if given.dtype.kind == "O":  # a column of a data frame, say
            given = given.astype(_kind(given))
    if given.ndim != 1 or not given.size or given.dtype.kind not in "iuU":
        what = f"are {type(ids).__name__} of shape {given.shape} and type {_types(given)}"
        raise DataError("clients", what, WANTED)
    return given


def _kind(given: NDArray[Any]) -> Any:
    """What single values are alike: texts, whole numbers, or neither."""
    kinds = {type(one) for one in given.ravel().tolist()}
    if all(issubclass(kind, str) for kind in kinds):
        return np.str_
    whole = all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds)
    return np.int64 if whole else "O"


def _types(given: NDArray[Any]) -> str:
    """What the ids are; of mixed ones each type."""
    if given.dtype.kind != "O":
        return str(given.dtype)
    return " and ".join(sorted({type(one).__name__ for one in given.ravel().tolist()}))
