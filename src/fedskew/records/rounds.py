"""One round as one line of JSON; everything outside "times" repeats byte for byte."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from fedskew.errors import RunFolderError
from fedskew.records.files import no_nan
from fedskew.types import Chain, Cost, RoundRecord, Transfer

ROUNDS = "rounds.jsonl"


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
        "times": {
            "seconds": round(record.seconds, 6),
            "clients": {c: round(s, 6) for c, s in record.client_seconds.items()},
        },
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
        # folders written before 0.1.0 was released have none
        client_accuracy=number(raw.get("client_accuracy")),
        client_loss=number(raw.get("client_loss")),
    )


def read_rounds(folder: Path) -> list[RoundRecord]:
    """All whole records of a run folder; a half-written last line, left by a kill, is skipped."""
    path = folder / ROUNDS
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf8").split("\n")
    records = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            records.append(record_of(line))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise RunFolderError(
                f"{path}:{number}", "damaged record", "Remove the folder and run again"
            ) from None
    return records
