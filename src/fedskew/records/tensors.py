"""The checkpoint (a State) and the final model as safetensors: nothing is pickled."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as save_tensors

from fedskew.errors import RunFolderError
from fedskew.records.files import REFINISH
from fedskew.records.sums import Damaged, seal_of_tensors, seal_tensors
from fedskew.types import Clustering, Layout, Params, Signal, State
from fedskew.version import __version__

VERSION = __version__
UNSEALED = {"sum": "00000000"}  # the first of the metadata: where the checksum is put
# what reading a damaged file can end in
UNREADABLE: tuple[type[Exception], ...] = (
    *(SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError),
    *(IndexError, RecursionError, OverflowError, MemoryError),
)


def _flatten(prefix: str, value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """Move arrays out of a nested value into ``arrays``; markers in their place make it JSON.

    Tuples come back as lists and numpy scalars as Python numbers; names must be strings, as memory
    is read back by name.
    """
    if isinstance(value, np.ndarray):
        name = f"{len(arrays)}:{prefix}"  # the number keeps "a/b" and {"a": {"b": ...}} apart
        arrays[name] = np.asarray(value, order="C")
        return {"array": name}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        if not all(isinstance(k, str) for k in value):
            raise RunFolderError(
                prefix,
                f"has names that are not strings: {list(value)[:3]}",
                "Use strings in a rule's memory",
            )
        return {"table": {str(k): _flatten(f"{prefix}/{k}", v, arrays) for k, v in value.items()}}
    if isinstance(value, list | tuple):
        return {"list": [_flatten(f"{prefix}/{i}", v, arrays) for i, v in enumerate(value)]}
    return value


def _unflatten(value: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[value["array"]]
    if "list" in value:
        return [_unflatten(v, arrays) for v in value["list"]]
    return {k: _unflatten(v, arrays) for k, v in value["table"].items()}


def checkpoint_bytes(state: State, mark: str, records: tuple[int, str] = (0, "")) -> bytes:
    """A state as safetensors; ``mark`` (the recipe's fingerprint) says which run it belongs to,
    ``records`` how many lines were written before it and their chain of checksums.
    """
    arrays: dict[str, NDArray[Any]] = {}
    fields = {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}
    for name in ("signal", "clustering"):
        if fields[name] is not None:
            fields[name] = {
                f.name: getattr(fields[name], f.name) for f in dataclasses.fields(fields[name])
            }
    content = {name: _flatten(name, value, arrays) for name, value in fields.items()}
    meta = {"mark": mark, "version": VERSION, "records": list(records), "state": content}
    return _file_bytes(arrays, meta, f"state after round {state.round}")


def _file_bytes(arrays: dict[str, NDArray[Any]], meta: Mapping[str, Any], where: str) -> bytes:
    try:
        return seal_tensors(save_tensors(arrays, {"fedskew": json.dumps({**UNSEALED, **meta})}))
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunFolderError(
            where,
            f"holds what cannot be written ({error!r})",
            "Keep arrays of numbers, numbers, strings, lists and tables of them",
        ) from None


@dataclasses.dataclass(frozen=True)
class Saved:
    """A checkpoint."""

    state: State
    chain: str | None  # of the lines written before it; None: written without checksums

    @property
    def lines(self) -> int:
        """How many rounds are before it."""
        return self.state.round + 1


def read_checkpoint(path: Path, mark: str) -> State:
    """The state behind a checkpoint that was written for the same recipe by the same version."""
    return read_saved(path, mark, sealed=False).state


def read_saved(path: Path, mark: str, *, sealed: bool) -> Saved:
    """A checkpoint, if it is whole; ``sealed``: it must have its checksum."""
    try:
        check_whole(path, sealed=sealed)
        with safe_open(str(path), "np") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            meta = json.loads(file.metadata()["fedskew"])
        known = {"mark": meta["mark"], "version": meta["version"]}
        fields = {name: _unflatten(value, arrays) for name, value in meta["state"].items()}
        for name, kind in (("signal", Signal), ("clustering", Clustering)):
            if fields[name] is not None:
                fields[name] = kind(**fields[name])
        saved = Saved(State(**fields), meta["records"][1] if "records" in meta else None)
    except UNREADABLE as error:
        raise RunFolderError(
            str(path), f"not a readable checkpoint ({error})", "Remove the folder and run again"
        ) from None
    _check_same(path, known, mark)
    return saved


def check_whole(path: Path, *, sealed: bool) -> str | None:
    """The checksum of a file, if it fits."""
    seal = seal_of_tensors(path.read_bytes())
    if seal is None and sealed:
        raise Damaged("its checksum is missing")
    return seal


def _check_expected(path: Path, expected: str | None) -> None:
    if expected not in (None, check_whole(path, sealed=expected is not None)):
        raise Damaged("it is not the file that the run left")


def _check_same(path: Path, known: Mapping[str, Any], mark: str) -> None:
    if known["mark"] != mark:
        raise RunFolderError(
            str(path),
            "belongs to another recipe",
            "Use the recipe.toml beside it, or another --out",
        )
    if known["version"] != VERSION:
        remedy = "Install that version, or start again in another --out"
        raise RunFolderError(
            str(path), f"was written by fedskew {known['version']}, this is {VERSION}", remedy
        )


def model_bytes(
    models: Params, layout: Layout, frozen: Mapping[str, Params] | None = None
) -> bytes:
    """A model as named tensors, ``slot/name`` if there are several slots; parameters that were
    never trained, alike in all slots, by their names alone.
    """
    prefix = "" if len(models) == 1 else "{}/"
    tensors = {
        prefix.format(slot) + name: np.ascontiguousarray(array)
        for slot, vector in enumerate(models)
        for name, array in layout.unpack(vector).items()
    }
    tensors |= {name: np.ascontiguousarray(array) for name, array in (frozen or {}).items()}
    layout_rows = [[b.name, list(b.shape), b.kind] for b in layout.blocks]
    meta = {"slots": len(models), "layout": layout_rows, "frozen": sorted(frozen or {})}
    return _file_bytes(tensors, meta, "final model")


def read_model(path: Path, *, expected: str | None = None) -> tuple[Params, Layout]:
    """The flat models (S, D) and the layout of a ``final.safetensors``, if it is whole;
    ``expected``: the checksum it must have.
    """
    try:
        _check_expected(path, expected)
        with safe_open(str(path), "np") as file:
            meta = json.loads(file.metadata()["fedskew"])
            layout = Layout.of([(name, shape, kind) for name, shape, kind in meta["layout"]])
            prefix = "" if meta["slots"] == 1 else "{}/"
            models = [
                np.concatenate(
                    [
                        file.get_tensor(prefix.format(slot) + b.name).reshape(-1)
                        for b in layout.blocks
                    ]
                )
                for slot in range(meta["slots"])
            ]
    except UNREADABLE as error:
        raise RunFolderError(str(path), f"not a readable model ({error})", REFINISH) from None
    return np.stack(models), layout


def read_frozen(path: Path, *, expected: str | None = None) -> dict[str, Params]:
    """Parameters of a ``final.safetensors`` that were never trained, if it is whole; ``expected``:
    the checksum it must have.
    """
    try:
        _check_expected(path, expected)
        with safe_open(str(path), "np") as file:
            meta = json.loads(file.metadata()["fedskew"])
            return {name: file.get_tensor(name) for name in meta.get("frozen", [])}
    except UNREADABLE as error:
        raise RunFolderError(str(path), f"not a readable model ({error})", REFINISH) from None


def read_num_models(path: Path) -> int:
    """How many models a ``final.safetensors`` holds; none of them is read."""
    try:
        with safe_open(str(path), "np") as file:
            return int(json.loads(file.metadata()["fedskew"])["slots"])
    except UNREADABLE as error:
        raise RunFolderError(str(path), f"not a readable model ({error})", REFINISH) from None
