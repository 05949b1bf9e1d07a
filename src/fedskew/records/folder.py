"""The folder of one run: locked while it is written, restored after a kill."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import tomli_w

from fedskew.errors import RunFolderError
from fedskew.recipe import fingerprint
from fedskew.records.files import disk_errors, no_none, read_json, write_atomically, write_json
from fedskew.records.labels import LABELS, Labels, labels_bytes, read_labels
from fedskew.records.rounds import ROUNDS, line_of, record_of
from fedskew.records.tensors import VERSION, checkpoint_bytes, model_bytes, read_checkpoint
from fedskew.types import Layout, Params, RoundRecord, State

RECIPE, RUN, CHECKPOINT = "recipe.toml", "run.json", "checkpoint.safetensors"
FINAL, CLIENTS, RESULT = "final.safetensors", "clients.json", "result.json"


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
            ["git", "-C", str(folder), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


class RunFolder:
    """The folder of one run, open for writing. Only one process at a time can hold it."""

    def __init__(
        self, path: Path, recipe: Mapping[str, Any], seed: int, *, resume: bool = False
    ) -> None:
        self.path, self.recipe, self.seed = path, recipe, seed
        self.mark = f"{fingerprint(recipe)}-{seed}"
        self._rounds: IO[str] | None = None
        with disk_errors(path):
            if path.exists() and not path.is_dir():
                raise RunFolderError(str(path), "is a file", "Choose another --out")
            if not resume and path.is_dir() and _contents(path):
                raise RunFolderError(
                    str(path),
                    "exists and is not empty",
                    "Use --resume to go on with it, or another --out",
                )
            path.mkdir(parents=True, exist_ok=True)
            self._lock = open(path / ".lock", "w")  # noqa: SIM115 (held until close)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise RunFolderError(
                str(path), "another process is writing to it", "Wait for it, or use another --out"
            ) from None

    def restore(self) -> State | None:
        """The state to go on from; None if there is nothing yet. Records behind the checkpoint
        are cut off: they come again.
        """
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
            remedy = (
                f"Run {self.path / RECIPE} with --seed {known.get('seed')}, or choose another --out"
            )
            raise RunFolderError(str(self.path), "belongs to another recipe or seed", remedy)
        if known.get("fedskew") != VERSION:
            remedy = "Install that version, or start again in another --out"
            raise RunFolderError(
                str(self.path),
                f"was written by fedskew {known.get('fedskew')}, this is {VERSION}",
                remedy,
            )

    def _cut_rounds(self, last: int) -> None:
        path = self.path / ROUNDS
        if not path.is_file():
            return
        kept = []
        for expected, line in enumerate(path.read_bytes().split(b"\n")[:-1]):
            if expected > last:
                break
            if not _is_record(line, expected):
                raise RunFolderError(
                    f"{path}:{expected + 1}", "damaged record", "Remove the folder and run again"
                )
            kept.append(line)
        if len(kept) != last + 1:
            what = f"holds {len(kept)} rounds, the checkpoint {last + 1}"
            raise RunFolderError(str(path), what, "Remove the folder and run again")
        whole = b"".join(line + b"\n" for line in kept)
        if len(whole) != path.stat().st_size:
            write_atomically(path, whole)

    def begin(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Write what the run is, once; returns what was written."""
        if not (self.path / RUN).is_file():
            identity = {"name": self.recipe["name"], "seed": self.seed, "mark": self.mark}
            # first: it makes this a run folder
            write_json(self.path / RUN, {**identity, **machine_facts(), **facts})
        if not (self.path / RECIPE).is_file():
            write_atomically(self.path / RECIPE, tomli_w.dumps(no_none(self.recipe)).encode())
        return read_json(self.path / RUN)

    def keep_labels(self, labels: Labels) -> Labels:
        """Write who has how many examples of what; returns what is now kept. Clients that are not
        in it, because they have not joined, keep what was written of them before.
        """
        before = read_labels(self.path)
        labels = labels if before is None else before.updated(labels)
        content = labels_bytes(labels)
        if before is None or content != labels_bytes(before):
            write_atomically(self.path / LABELS, content)
        return labels

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

    def finish(
        self, models: Params, layout: Layout, clients: Mapping[str, Any], result: Mapping[str, Any]
    ) -> None:
        """The final model, the per-client results and the summary; the summary comes last and
        marks the run complete.
        """
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
    return [
        p
        for p in folder.iterdir()
        if p.name != ".lock" and not (p.name.startswith(".") and p.name.endswith(".tmp"))
    ]


def _is_record(line: bytes, round: int) -> bool:
    try:
        return record_of(line.decode()).round == round
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
