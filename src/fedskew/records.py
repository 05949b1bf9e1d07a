"""Run folders: what a run leaves on disk, and how a killed run goes on.

::

    recipe.toml              the resolved recipe: everything but the seed
    run.json                 seed, fingerprint, versions, commit, machine
    rounds.jsonl             one line per round, flushed as it happens; everything outside "times" repeats byte for byte
    checkpoint.safetensors   the latest State, replaced atomically
    final.safetensors        the final model, tensors by name
    labels.json              how many examples of each class every client trains on
    clients.json             per-client results of the final model
    result.json              the summary that --json prints

Nothing here is pickled: reading a folder from a stranger cannot run code.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import math
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import numpy as np
import tomli_w
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as save_tensors

from fedskew.errors import RunFolderError
from fedskew.recipe import fingerprint
from fedskew.types import Chain, Clustering, Cost, Ints, Layout, Params, RoundRecord, Signal, State, Transfer
from fedskew.version import __version__

VERSION = __version__
RECIPE, RUN, ROUNDS, CHECKPOINT = "recipe.toml", "run.json", "rounds.jsonl", "checkpoint.safetensors"
FINAL, CLIENTS, RESULT, LABELS = "final.safetensors", "clients.json", "result.json", "labels.json"


# ---------------------------------------------------------------- files


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn what the operating system says into one line a person can act on."""
    try:
        yield
    except OSError as error:
        remedy = "Free some space, then use --resume" if error.errno == errno.ENOSPC else "Choose another --out"
        raise RunFolderError(str(path), error.strerror or str(error), remedy) from None


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that at every moment either the old or the new content is there, whole."""
    temporary = path.with_name(f".{path.name}.tmp")
    with disk_errors(path):
        try:
            with open(temporary, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """JSON with two-space indent; nan becomes null."""
    write_atomically(path, (json.dumps(no_nan(value), indent=2) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a run folder."""
    try:
        content = json.loads(path.read_text(encoding="utf8"))
    except (OSError, ValueError) as error:
        raise RunFolderError(str(path), f"cannot be read ({error})", "Remove the folder and run again") from None
    if not isinstance(content, dict):
        raise RunFolderError(str(path), "is not a JSON object", "Remove the folder and run again")
    return content


def no_nan(value: Any) -> Any:
    """A value that is legal JSON: what is not finite becomes None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): no_nan(v) for k, v in value.items()}
    return [no_nan(v) for v in value] if isinstance(value, list | tuple) else value


# ---------------------------------------------------------------- records


def line_of(record: RoundRecord) -> str:
    """One round as one line of JSON; what differs between identical runs stands under "times"."""
    content: dict[str, Any] = {
        "round": record.round,
        "chains": [[chain.slot, list(chain.clients)] for chain in record.chains],
        "loss": record.loss,
        "failures": record.failures,
        "transfers": [list(dataclasses.astuple(t)) for t in record.transfers],
        "accuracy": record.accuracy,
        "test_loss": record.test_loss,
        "cost": list(dataclasses.astuple(record.cost)),
        "client_accuracy": record.client_accuracy,
        "client_loss": record.client_loss,
        "times": {"seconds": round(record.seconds, 6), "clients": {c: round(s, 6) for c, s in record.client_seconds.items()}},
    }
    if not math.isnan(record.measured_joules):
        content["times"]["joules"] = record.measured_joules
    return json.dumps(no_nan(content), separators=(",", ":"))


def record_of(line: str) -> RoundRecord:
    """The round behind a line; raises ValueError or KeyError for a damaged one."""
    raw = json.loads(line)

    def number(value: float | None) -> float:
        return float("nan") if value is None else float(value)

    return RoundRecord(
        round=int(raw["round"]),
        chains=tuple(Chain(int(slot), tuple(clients)) for slot, clients in raw["chains"]),
        loss={int(c): number(v) for c, v in raw["loss"].items()},
        failures={int(c): str(v) for c, v in raw["failures"].items()},
        transfers=tuple(Transfer(*t) for t in raw["transfers"]),
        accuracy=number(raw["accuracy"]),
        test_loss=number(raw["test_loss"]),
        seconds=float(raw["times"]["seconds"]),
        client_seconds={int(c): float(v) for c, v in raw["times"]["clients"].items()},
        cost=Cost(*(number(v) for v in raw.get("cost", ()))),
        measured_joules=number(raw["times"].get("joules")),
        client_accuracy=number(raw.get("client_accuracy")),  # folders written before 0.1.0 was released have none
        client_loss=number(raw.get("client_loss")),
    )


def read_rounds(folder: Path) -> list[RoundRecord]:
    """All whole records of a run folder; a half-written last line, as a kill leaves it, is passed over."""
    path = folder / ROUNDS
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf8").split("\n")
    records = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            records.append(record_of(line))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise RunFolderError(f"{path}:{number}", "damaged record", "Remove the folder and run again") from None
    return records


def labels_bytes(counts: Ints, classes: Sequence[str], names: Sequence[str] | None) -> bytes:
    """Label counts as compact JSON: a row per client, (class, count) for what it has. 10,000 clients of 10 classes: 0.4 MB."""
    rows = [[int(n) for c in np.flatnonzero(row) for n in (c, row[c])] for row in counts]
    content = {"classes": list(classes), "clients": list(names) if names else None, "rows": rows}
    return (json.dumps(content, separators=(",", ":")) + "\n").encode()


def read_labels(folder: Path) -> tuple[Ints, list[str], list[str]] | None:
    """(counts (K, C), names of the classes, names of the clients) of a run folder; None if it has none."""
    if not (folder / LABELS).is_file():
        return None
    raw = read_json(folder / LABELS)
    try:
        counts = np.zeros((len(raw["rows"]), len(raw["classes"])), np.int64)
        for client, row in enumerate(raw["rows"]):
            counts[client, row[::2]] = row[1::2]
        names = raw["clients"] or range(len(counts))
        return counts, [str(name) for name in raw["classes"]], [str(name) for name in names]
    except (KeyError, TypeError, ValueError, IndexError):
        raise RunFolderError(str(folder / LABELS), "is damaged", "Remove the file to go on without label counts") from None


# ---------------------------------------------------------------- checkpoints


def _flatten(prefix: str, value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """Move arrays out of a nested value into ``arrays``; what stays is JSON with a marker in their place.

    Tuples come back as lists and numpy scalars as Python numbers; names must be strings, as memory is read back by name.
    """
    if isinstance(value, np.ndarray):
        name = f"{len(arrays)}:{prefix}"  # the number keeps "a/b" and {"a": {"b": ...}} apart
        arrays[name] = np.asarray(value, order="C")
        return {"array": name}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        if not all(isinstance(k, str) for k in value):
            raise RunFolderError(prefix, f"has names that are not strings: {list(value)[:3]}", "Use strings in a rule's memory")
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
            fields[name] = {f.name: getattr(fields[name], f.name) for f in dataclasses.fields(fields[name])}
    content = {name: _flatten(name, value, arrays) for name, value in fields.items()}
    return save_tensors(arrays, {"fedskew": json.dumps({"mark": mark, "version": VERSION, "state": content})})


def read_checkpoint(path: Path, mark: str) -> State:
    """The state behind a checkpoint that was written for the same recipe by the same version."""
    try:
        with safe_open(str(path), "np") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            meta = json.loads(file.metadata()["fedskew"])
        fields = {name: _unflatten(value, arrays) for name, value in meta["state"].items()}
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(str(path), f"not a readable checkpoint ({error})", "Remove it to start again") from None
    if meta["mark"] != mark:
        raise RunFolderError(str(path), "belongs to another recipe", "Use the recipe.toml beside it, or another --out")
    if meta["version"] != VERSION:
        remedy = "Install that version, or start again in another --out"
        raise RunFolderError(str(path), f"was written by fedskew {meta['version']}, this is {VERSION}", remedy)
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
    return save_tensors(tensors, {"fedskew": json.dumps({"slots": len(models), "layout": layout_rows})})


def read_model(path: Path) -> tuple[Params, Layout]:
    """The flat models (S, D) and the layout of a ``final.safetensors``."""
    try:
        with safe_open(str(path), "np") as file:
            meta = json.loads(file.metadata()["fedskew"])
            layout = Layout.of([(name, shape, kind) for name, shape, kind in meta["layout"]])
            prefix = "" if meta["slots"] == 1 else "{}/"
            models = [
                np.concatenate([file.get_tensor(prefix.format(slot) + b.name).reshape(-1) for b in layout.blocks])
                for slot in range(meta["slots"])
            ]
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(str(path), f"not a readable model ({error})", "Run again") from None
    return np.stack(models), layout


# ---------------------------------------------------------------- the folder of one run


def machine_facts() -> dict[str, Any]:
    """Where and with what a run was made."""
    versions = {}
    for name in ("numpy", "scipy", "scikit-learn", "torch"):
        try:
            versions[name] = importlib_version(name)
        except Exception:
            versions[name] = "not installed"
    return {
        "fedskew": VERSION,
        "python": platform.python_version(),
        "versions": versions,
        "commit": _commit(),
        "machine": platform.machine(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def importlib_version(name: str) -> str:
    """The installed version of a distribution."""
    from importlib.metadata import version

    return version(name)


def _commit() -> str:
    """The commit of the source tree fedskew was imported from, "" if it is an installed package."""
    try:
        folder = Path(__file__).resolve().parent
        done = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


class RunFolder:
    """The folder of one run, open for writing. Only one process at a time can hold it."""

    def __init__(self, path: Path, recipe: Mapping[str, Any], seed: int, *, resume: bool = False) -> None:
        self.path, self.recipe, self.seed = path, recipe, seed
        self.mark = f"{fingerprint(recipe)}-{seed}"
        self._rounds: IO[str] | None = None
        with disk_errors(path):
            if path.exists() and not path.is_dir():
                raise RunFolderError(str(path), "is a file", "Choose another --out")
            if not resume and path.is_dir() and _contents(path):
                raise RunFolderError(str(path), "exists and is not empty", "Use --resume to go on with it, or another --out")
            path.mkdir(parents=True, exist_ok=True)
            self._lock = open(path / ".lock", "w")  # noqa: SIM115 (held until close)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise RunFolderError(str(path), "another process is writing to it", "Wait for it, or use another --out") from None

    def restore(self) -> State | None:
        """The state to go on from; None if there is nothing yet. Records behind the checkpoint are cut off: they come again."""
        run_json = self.path / RUN
        if run_json.is_file():
            self._check_same_run(read_json(run_json))
        elif _contents(self.path):
            raise RunFolderError(str(self.path), "is not a run folder", "Choose another --out")
        if self.finished:
            return None
        checkpoint = self.path / CHECKPOINT
        state = read_checkpoint(checkpoint, self.mark) if checkpoint.is_file() else None
        self._cut_rounds(-1 if state is None else state.round)
        return state

    @property
    def finished(self) -> bool:
        """Whether the run has come to its end."""
        return (self.path / RESULT).is_file()

    def _check_same_run(self, known: Mapping[str, Any]) -> None:
        if known.get("mark") != self.mark:
            remedy = f"Run {self.path / RECIPE} with --seed {known.get('seed')}, or choose another --out"
            raise RunFolderError(str(self.path), "belongs to another recipe or seed", remedy)
        if known.get("fedskew") != VERSION:
            remedy = "Install that version, or start again in another --out"
            raise RunFolderError(str(self.path), f"was written by fedskew {known.get('fedskew')}, this is {VERSION}", remedy)

    def _cut_rounds(self, last: int) -> None:
        path = self.path / ROUNDS
        if not path.is_file():
            return
        kept = []
        for expected, line in enumerate(path.read_bytes().split(b"\n")[:-1]):
            if expected > last:
                break
            if not _is_record(line, expected):
                raise RunFolderError(f"{path}:{expected + 1}", "damaged record", "Remove the folder and run again")
            kept.append(line)
        if len(kept) != last + 1:
            what = f"holds {len(kept)} rounds, the checkpoint {last + 1}"
            raise RunFolderError(str(path), what, "Remove the folder and run again")
        whole = b"".join(line + b"\n" for line in kept)
        if len(whole) != path.stat().st_size:
            write_atomically(path, whole)

    def begin(self, facts: Mapping[str, Any]) -> None:
        """Write what the run is, once."""
        if not (self.path / RUN).is_file():
            identity = {"name": self.recipe["name"], "seed": self.seed, "mark": self.mark}
            write_json(self.path / RUN, {**identity, **machine_facts(), **facts})  # first: it makes this a run folder
        if not (self.path / RECIPE).is_file():
            write_atomically(self.path / RECIPE, tomli_w.dumps(_no_none(self.recipe)).encode())

    def keep_labels(self, counts: Ints, classes: Sequence[str], names: Sequence[str] | None) -> None:
        """Write who has how many examples of what, once."""
        if not (self.path / LABELS).is_file():
            write_atomically(self.path / LABELS, labels_bytes(counts, classes, names))

    def append(self, record: RoundRecord) -> None:
        """Add one round, flushed."""
        with disk_errors(self.path / ROUNDS):
            if self._rounds is None:
                self._rounds = open(self.path / ROUNDS, "a", encoding="utf8")  # noqa: SIM115 (held until close)
            self._rounds.write(line_of(record) + "\n")
            self._rounds.flush()

    def save(self, state: State) -> None:
        """Replace the checkpoint."""
        write_atomically(self.path / CHECKPOINT, checkpoint_bytes(state, self.mark))

    def finish(self, models: Params, layout: Layout, clients: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """The final model, the per-client results and the summary; the summary comes last and marks the run complete."""
        write_atomically(self.path / FINAL, model_bytes(models, layout))
        write_json(self.path / CLIENTS, clients)
        write_json(self.path / RESULT, result)

    def close(self) -> None:
        """Let go of the folder."""
        with contextlib.suppress(OSError):  # a full disk has been reported already
            if self._rounds is not None:
                self._rounds.close()
        self._lock.close()


def _contents(folder: Path) -> list[Path]:
    """What a folder holds besides the lock and half-written files of a run that was killed."""
    return [p for p in folder.iterdir() if p.name != ".lock" and not (p.name.startswith(".") and p.name.endswith(".tmp"))]


def _is_record(line: bytes, round: int) -> bool:
    try:
        return record_of(line.decode()).round == round
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def _no_none(value: Any) -> Any:
    """TOML has no null: an option that is None is left out and becomes None again when it is read."""
    if isinstance(value, Mapping):
        return {k: _no_none(v) for k, v in value.items() if v is not None}
    return [_no_none(v) for v in value] if isinstance(value, list | tuple) else value
