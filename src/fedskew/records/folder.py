"""The folder of one run: locked while it is written, restored after a kill."""

from __future__ import annotations

import contextlib
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
from fedskew.records.checkpoints import PREVIOUS, newest_state, write_checkpoint
from fedskew.records.files import (
    disk_errors,
    lock_alone,
    no_none,
    read_json,
    write_atomically,
    write_sealed,
)
from fedskew.records.labels import LABELS, Labels, labels_bytes, read_labels
from fedskew.records.reading import (
    CHECKSUMS,
    CLIENTS,
    FINAL,
    RECIPE,
    RECIPE_SUM,
    RESULT,
    RUN,
    SUMS,
    is_pending,
    is_sealed,
)
from fedskew.records.rounds import ROUNDS, Lines, first_chain, read_lines, sealed_line
from fedskew.records.sums import checksum, seal_of, seal_of_tensors
from fedskew.records.tensors import VERSION, model_bytes
from fedskew.types import Layout, Params, RoundRecord, State


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


def check_free(path: Path, *, resume: bool = False) -> None:
    """Refuse a folder that no new run may be written to."""
    if path.exists() and not path.is_dir():
        raise RunFolderError(str(path), "is a file", "Choose another --out")
    if not resume and path.is_dir() and _contents(path):
        remedy = "Use --resume to go on with it, or another --out"
        raise RunFolderError(str(path), "exists and is not empty", remedy)


class RunFolder:
    """The folder of one run, open for writing. Only one process at a time can hold it."""

    def __init__(
        self, path: Path, recipe: Mapping[str, Any], seed: int, *, resume: bool = False
    ) -> None:
        self.path, self.recipe, self.seed = path, recipe, seed
        self.mark = f"{fingerprint(recipe)}-{seed}"
        self._rounds: IO[str] | None = None
        self._chains = [first_chain(self.mark)]  # of the lines, see Lines
        with disk_errors(path):
            check_free(path, resume=resume)
            path.mkdir(parents=True, exist_ok=True)
            self._lock = open(path / ".lock", "w")  # noqa: SIM115 (held until close)
        try:
            lock_alone(self._lock)
        except OSError:
            self._lock.close()
            raise RunFolderError(
                str(path), "another process is writing to it", "Wait for it, or use another --out"
            ) from None

    def restore(self) -> State | None:
        """The state to go on from; None if there is nothing yet. Records behind the checkpoint
        are cut off: they come again.
        """
        known: Mapping[str, Any] = {}
        if (self.path / RUN).is_file():
            known = read_json(self.path / RUN)
            self._check_same_run(known)
        elif _contents(self.path):
            raise RunFolderError(str(self.path), "is not a run folder", "Choose another --out")
        if self.finished:
            self._mend_recipe(known)
            return None
        lines = read_lines(self.path, self.mark, sealed=is_sealed(known))
        state = newest_state(self.path, self.mark, lines, sealed=is_sealed(known))
        self._cut_rounds(lines, 0 if state is None else state.round + 1)
        return state

    @property
    def finished(self) -> bool:
        """Whether the run has come to its end, tests of its clients and all."""
        return (self.path / RESULT).is_file() and not is_pending(self.path)

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

    def _cut_rounds(self, lines: Lines, keep: int) -> None:
        self._chains = list(lines.chains[: keep + 1])
        path, whole = self.path / ROUNDS, b"".join(line + b"\n" for line in lines.raw[:keep])
        if path.is_file() and path.stat().st_size != len(whole):
            write_atomically(path, whole)

    def begin(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Write what the run is, once; returns what was written."""
        recipe = self._recipe_bytes()
        if not (self.path / RUN).is_file():
            identity = {"name": self.recipe["name"], "seed": self.seed, "mark": self.mark}
            sums = {CHECKSUMS: "crc32", RECIPE_SUM: checksum(recipe)}
            # first: it makes this a run folder
            write_sealed(self.path / RUN, {**identity, **machine_facts(), **facts, **sums})
        known = read_json(self.path / RUN)
        self._mend_recipe(known)
        return known

    def _recipe_bytes(self) -> bytes:
        return tomli_w.dumps(no_none(self.recipe)).encode()

    def _mend_recipe(self, known: Mapping[str, Any]) -> None:
        """Write the recipe if it is not there, or not as ``run.json`` knows it."""
        if not _is_whole(self.path / RECIPE, known.get(RECIPE_SUM)):
            write_atomically(self.path / RECIPE, self._recipe_bytes())

    def keep_labels(self, labels: Labels) -> Labels:
        """Write who has how many examples of what; returns what is now kept. Clients that are not
        in it, because they have not joined, keep what was written of them before.
        """
        before = read_labels(self.path, self.mark)
        labels = labels if before is None else before.updated(labels)
        content = labels_bytes(labels, self.mark)
        if before is None or content != (self.path / LABELS).read_bytes():
            write_atomically(self.path / LABELS, content)
        return labels

    def append(self, record: RoundRecord) -> None:
        """Add one round, flushed."""
        line, chain = sealed_line(record, self._chains[-1])
        with disk_errors(self.path / ROUNDS):
            if self._rounds is None:
                self._rounds = open(self.path / ROUNDS, "a", encoding="utf8")  # noqa: SIM115 (held until close)
            self._rounds.write(line + "\n")
            self._rounds.flush()
        self._chains.append(chain)

    def save(self, state: State) -> None:
        """Replace the older of the two checkpoints; the lines before it are on disk first."""
        if self._rounds is not None:
            with disk_errors(self.path / ROUNDS):
                os.fsync(self._rounds.fileno())
        write_checkpoint(self.path, state, self.mark, self._chains)

    def finish(
        self,
        models: Params,
        layout: Layout,
        clients: Mapping[str, Any],
        result: Mapping[str, Any],
        frozen: Mapping[str, Params] | None = None,
    ) -> None:
        """The final model (with ``frozen``, its parameters that were never trained), the
        per-client results and the summary, which comes last, has the checksums of the others and
        marks the run complete.
        """
        model = model_bytes(models, layout, frozen or {})
        write_atomically(self.path / FINAL, model)
        sums: dict[str, Any] = {
            ROUNDS: [len(self._chains) - 1, self._chains[-1]],
            FINAL: seal_of_tensors(model),
            CLIENTS: write_sealed(self.path / CLIENTS, clients),
        }
        if (self.path / LABELS).is_file():
            sums[LABELS] = seal_of((self.path / LABELS).read_bytes())
        (self.path / PREVIOUS).unlink(missing_ok=True)
        write_sealed(self.path / RESULT, {**result, SUMS: sums})

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


def _is_whole(path: Path, expected: str | None) -> bool:
    """Whether a file is there, and is the one with this checksum, if any is known."""
    return path.is_file() and expected in (None, checksum(path.read_bytes()))
