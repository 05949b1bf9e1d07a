"""One round as one line of JSON; everything outside "times" repeats byte for byte.

A line carries two checksums. ``chain`` runs over all lines so far, without their times, and begins
with the mark of the run, so it repeats too: no line can be missing, changed or from another run.
The ``sum`` at the end is that of the line itself, times and all.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedskew.errors import RunFolderError
from fedskew.records.files import AGAIN, disk_errors, no_nan
from fedskew.records.sums import NOT_WHOLE, checksum
from fedskew.types import Chain, Cost, RoundRecord, Transfer

ROUNDS = "rounds.jsonl"
_SEALED = re.compile(
    rb'(?P<stem>(?P<head>.*),"chain":"(?P<chain>[0-9a-f]{8})","times":\{.*)'
    rb',"sum":"(?P<sum>[0-9a-f]{8})"\}\}'
)
_ODD = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


# ---------------------------------------------------------------- one line


def line_of(record: RoundRecord) -> str:
    """One round as one line of JSON; what differs between identical runs stands under "times"."""
    head, times = _halves(record)
    return f'{head},"times":{times}}}}}'


def sealed_line(record: RoundRecord, before: str) -> tuple[str, str]:
    """(the line with its checksums, the chain up to it); ``before`` is the chain up to the line
    in front of it. A line that could not be read back is never written.
    """
    try:
        head, times = _halves(record)
        chain = checksum(head.encode(), before)
        stem = f'{head},"chain":"{chain}","times":{times}'
        line = f'{stem},"sum":"{checksum(stem.encode())}"}}}}'
        record_of(line)
    except _ODD as error:
        what = f"holds what could not be read back ({error!r})"
        raise RunFolderError(f"record of round {record.round}", what, "Report this") from None
    return line, chain


def _halves(record: RoundRecord) -> tuple[str, str]:
    """What repeats, and the times; both without their last brace."""
    cost = record.cost
    content: dict[str, Any] = {
        "round": record.round,
        "chains": [[chain.slot, list(chain.clients)] for chain in record.chains],
        "loss": record.loss,
        "failures": record.failures,
        "transfers": [[t.direction, t.kind, t.bytes, t.multicast] for t in record.transfers],
        "accuracy": record.accuracy,
        "test_loss": record.test_loss,
        "cost": [cost.seconds, cost.joules, cost.sample_passes],
        "client_accuracy": record.client_accuracy,
        "client_loss": record.client_loss,
    }
    times: dict[str, Any] = {
        "seconds": round(float(record.seconds), 6),
        "clients": {c: round(float(s), 6) for c, s in record.client_seconds.items()},
    }
    if record.notes:
        content["notes"] = record.notes
    if record.unscored:
        content["unscored"] = record.unscored
    if record.covers is not None:
        content["covers"] = record.covers
    if not math.isnan(record.measured_joules):
        times["joules"] = record.measured_joules
    return _compact(content), _compact(times)


def _compact(content: dict[str, Any]) -> str:
    return json.dumps(no_nan(content), separators=(",", ":"))[:-1]


def record_of(line: str) -> RoundRecord:
    """The round behind a line; raises ValueError, KeyError ... for a damaged one."""
    raw = json.loads(line)

    def number(value: float | None) -> float:
        return float("nan") if value is None else float(value)

    return RoundRecord(
        round=int(raw["round"]),
        chains=tuple(
            Chain(int(slot), tuple(int(c) for c in clients)) for slot, clients in raw["chains"]
        ),
        loss={int(c): number(v) for c, v in raw["loss"].items()},
        failures={int(c): str(v) for c, v in raw["failures"].items()},
        transfers=tuple(
            Transfer(way, kind, int(sent), int(shared))
            for way, kind, sent, shared in raw["transfers"]
        ),
        accuracy=number(raw["accuracy"]),
        test_loss=number(raw["test_loss"]),
        seconds=number(raw["times"]["seconds"]),
        client_seconds={int(c): number(v) for c, v in raw["times"]["clients"].items()},
        cost=Cost(*(number(v) for v in raw.get("cost", ()))),
        measured_joules=number(raw["times"].get("joules")),
        # folders written before 0.1.0 was released have none
        client_accuracy=number(raw.get("client_accuracy")),
        client_loss=number(raw.get("client_loss")),
        notes={int(c): str(v) for c, v in raw.get("notes", {}).items()},
        unscored={int(c): str(v) for c, v in raw.get("unscored", {}).items()},
        covers=None if raw.get("covers") is None else int(raw["covers"]),
    )


# ---------------------------------------------------------------- all lines


@dataclass(frozen=True)
class Lines:
    """The lines of a run up to the first that is damaged; a half-written last one, left by a
    kill, is passed over.
    """

    raw: Sequence[bytes]
    records: Sequence[RoundRecord]
    chains: Sequence[str]  # one more than lines: the first is that of no line at all
    damage: RunFolderError | None = None

    def check(self) -> Lines:
        """These lines, if all are whole."""
        if self.damage is not None:
            raise self.damage
        return self


def first_chain(mark: str) -> str:
    """The chain before the first line of a run."""
    return checksum(mark.encode())


def read_lines(folder: Path, mark: str, *, sealed: bool) -> Lines:
    """The rounds of a run folder; ``sealed``: every line must have its checksums."""
    path = folder / ROUNDS
    raw, records, chains = list[bytes](), list[RoundRecord](), [first_chain(mark)]
    with disk_errors(path):
        lines = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []
    for number, line in enumerate(lines):
        try:
            chains.append(_chain(line, chains[-1], sealed))
            records.append(record_of(line.decode()))
            if records[-1].round != number:
                raise ValueError(f"round {records[-1].round} stands in the place of {number}")
        except _ODD as error:
            what = f"damaged record ({error})" if str(error) else "damaged record"
            damage = RunFolderError(f"{path}:{number + 1}", what, AGAIN)
            return Lines(raw, records[:number], chains[: number + 1], damage)
        raw.append(line)
    return Lines(raw, records, chains)


def _chain(line: bytes, before: str, sealed: bool) -> str:
    """The chain up to a line, if the line is whole and follows what is before it."""
    found = _SEALED.fullmatch(line)
    if found is None:
        if sealed or b',"chain":' in line:
            raise ValueError("its checksum is missing")
        return checksum(line.rpartition(b',"times":')[0], before)
    if checksum(found["stem"]) != found["sum"].decode():
        raise ValueError(NOT_WHOLE)
    chain = checksum(found["head"], before)
    if chain != found["chain"].decode():
        raise ValueError("it does not follow the lines before it")
    return chain
