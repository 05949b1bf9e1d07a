"""Our ledger against the bytes Flower counted at the SuperLink.

Flower counts what its SuperNodes pull and push: our arrays, and around each message its own
envelope (metadata, the tree of objects, hashes) and our small header. That envelope is stated here
as constants per message, measured with flwr 1.41 on three runs of FedLECC and sequential FedAvg on
digits; what is left after taking it off is compared with the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedskew.errors import RunFolderError
from fedskew.experiment.run import Run
from fedskew.records import read_json

OVERHEAD_BYTES = {"down": 900, "up": 1025}  # per message to a client, per reply
# more, if it has arrays in it: four nested objects with their hashes
ARRAYS_OVERHEAD_BYTES = {"down": 1390, "up": 780}
FLEET = "fleet.json"


@dataclass(frozen=True)
class Direction:
    """One direction of one Flower run."""

    ledger: int  # what the rounds' records charge
    # models sent out to be tested, and relays the ledger calls device-to-device but Flower has to
    # carry
    uncharged: int
    messages: int
    overhead: int  # stated, for all messages
    flower: int  # what Flower measured
    # charged as the published method sends it, but worked out by the server of a fleet: SCAFFOLD's
    # change of a client's control variate follows from its update
    unsent: int = 0

    @property
    def difference(self) -> float:
        """(our bytes - Flower's net of the stated overhead) / the latter.

        >>> Direction(ledger=900, uncharged=120, messages=10, overhead=200, flower=1200).difference
        0.02
        """
        net = self.flower - self.overhead
        ours = self.ledger + self.uncharged - self.unsent
        return (ours - net) / net if net > 0 else float("nan")


def compare(folder: Path, flower_runs: Sequence[Mapping[str, Any]]) -> dict[str, Direction]:
    """The last Flower run of a run folder, direction by direction."""
    if not (folder / FLEET).is_file():
        raise RunFolderError(
            str(folder), "was not played over a fleet", "Give the folder of 'fedskew flower run'"
        )
    entry = read_json(folder / FLEET)["runs"][-1]
    measured = next(
        (run for run in flower_runs if str(run["run-id"]) == str(entry["flower_run"])), None
    )
    if measured is None:
        raise RunFolderError(
            str(folder), "the SuperLink does not know its run", "Was the SuperLink restarted?"
        )
    transfers = [
        t for r in Run.read(folder).rounds if r.round > entry["after_round"] for t in r.transfers
    ]
    bytes_of = {
        way: sum(t.bytes for t in transfers if t.direction == way) for way in ("down", "up", "d2d")
    }
    control = sum(t.bytes for t in transfers if (t.kind, t.direction) == ("control", "up"))
    unsent = {"down": 0, "up": control}
    uncharged = {"down": entry["test_down"] + bytes_of["d2d"], "up": bytes_of["d2d"]}
    flower = {
        way: measured["network-traffic"][f"{name}bound-bytes"]
        for way, name in (("down", "out"), ("up", "in"))
    }
    return {
        way: Direction(
            bytes_of[way],
            uncharged[way],
            entry[f"messages_{way}"],
            stated_overhead(entry, way),
            flower[way],
            unsent[way],
        )
        for way in ("down", "up")
    }


def stated_overhead(entry: Mapping[str, Any], way: str) -> int:
    """Flower's envelopes in one direction, by the constants above."""
    return int(
        OVERHEAD_BYTES[way] * entry[f"messages_{way}"]
        + ARRAYS_OVERHEAD_BYTES[way] * entry[f"arrays_{way}"]
    )
