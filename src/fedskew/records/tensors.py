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
from fedskew.types import Clustering, Layout, Params, Signal, State
from fedskew.version import __version__

VERSION = __version__


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


def checkpoint_bytes(state: State, mark: str) -> bytes:
    """A state as safetensors; ``mark`` (the recipe's fingerprint) says which run it belongs to."""
    arrays: dict[str, NDArray[Any]] = {}
    fields = {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}
    for name in ("signal", "clustering"):
        if fields[name] is not None:
            fields[name] = {
                f.name: getattr(fields[name], f.name) for f in dataclasses.fields(fields[name])
            }
    content = {name: _flatten(name, value, arrays) for name, value in fields.items()}
    return save_tensors(
        arrays, {"fedskew": json.dumps({"mark": mark, "version": VERSION, "state": content})}
    )


def read_checkpoint(path: Path, mark: str) -> State:
    """The state behind a checkpoint that was written for the same recipe by the same version."""
    try:
        with safe_open(str(path), "np") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            meta = json.loads(file.metadata()["fedskew"])
        fields = {name: _unflatten(value, arrays) for name, value in meta["state"].items()}
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(
            str(path), f"not a readable checkpoint ({error})", "Remove it to start again"
        ) from None
    if meta["mark"] != mark:
        raise RunFolderError(
            str(path),
            "belongs to another recipe",
            "Use the recipe.toml beside it, or another --out",
        )
    if meta["version"] != VERSION:
        remedy = "Install that version, or start again in another --out"
        raise RunFolderError(
            str(path), f"was written by fedskew {meta['version']}, this is {VERSION}", remedy
        )
    for name, kind in (("signal", Signal), ("clustering", Clustering)):
        if fields[name] is not None:
            fields[name] = kind(**fields[name])
    return State(**fields)


def model_bytes(models: Params, layout: Layout) -> bytes:
    """A model as named tensors, ``slot/name`` if there are several slots."""
    prefix = "" if len(models) == 1 else "{}/"
    tensors = {
        prefix.format(slot) + name: np.ascontiguousarray(array)
        for slot, vector in enumerate(models)
        for name, array in layout.unpack(vector).items()
    }
    layout_rows = [[b.name, list(b.shape), b.kind] for b in layout.blocks]
    return save_tensors(
        tensors, {"fedskew": json.dumps({"slots": len(models), "layout": layout_rows})}
    )


def read_model(path: Path) -> tuple[Params, Layout]:
    """The flat models (S, D) and the layout of a ``final.safetensors``."""
    try:
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
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(str(path), f"not a readable model ({error})", "Run again") from None
    return np.stack(models), layout


def read_num_models(path: Path) -> int:
    """How many models a ``final.safetensors`` holds; none of them is read."""
    try:
        with safe_open(str(path), "np") as file:
            return int(json.loads(file.metadata()["fedskew"])["slots"])
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(str(path), f"not a readable model ({error})", "Run again") from None
