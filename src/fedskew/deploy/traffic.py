"""Our ledger against the bytes Flower counted at the SuperLink.

Flower counts what its SuperNodes pull and push: our arrays, and around each message its own envelope (metadata, the tree of
objects, hashes) and our small header. That envelope is stated here as a constant per message, measured on loopback with flwr
1.41; what is left after taking it off is compared with the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedskew.errors import RunFolderError
from fedskew.records import read_json, read_rounds

DOWN_OVERHEAD_BYTES = 2050  # per message to a client, besides its arrays
UP_OVERHEAD_BYTES = 1675  # per reply
FLEET = "fleet.json"


@dataclass(frozen=True)
class Direction:
    """One direction of one Flower run."""

    ledger: int  # what the rounds' records charge
    uncharged: int  # models sent out to be tested, and relays the ledger calls device-to-device but Flower has to carry
    messages: int
    overhead: int  # stated, for all messages
    flower: int  # what Flower measured

    @property
    def difference(self) -> float:
        """(our bytes - Flower's net of the stated overhead) / the latter.

        >>> Direction(ledger=900, uncharged=120, messages=10, overhead=200, flower=1200).difference
        0.02
        """
        net = self.flower - self.overhead
        return (self.ledger + self.uncharged - net) / net if net > 0 else float("nan")


def compare(folder: Path, flower_runs: Sequence[Mapping[str, Any]]) -> dict[str, Direction]:
    """The last Flower run of a run folder, direction by direction."""
    if not (folder / FLEET).is_file():
        raise RunFolderError(str(folder), "was not played over a fleet", "Give the folder of 'fedskew flower run'")
    entry = read_json(folder / FLEET)["runs"][-1]
    measured = next((run for run in flower_runs if str(run["run-id"]) == str(entry["flower_run"])), None)
    if measured is None:
        raise RunFolderError(str(folder), "the SuperLink does not know its run", "Was the SuperLink restarted?")
    transfers = [t for r in read_rounds(folder) if r.round > entry["after_round"] for t in r.transfers]
    bytes_of = {way: sum(t.bytes for t in transfers if t.direction == way) for way in ("down", "up", "d2d")}
    traffic, down, up = measured["network-traffic"], entry["messages_down"], entry["messages_up"]
    return {
        "down": Direction(
            bytes_of["down"], entry["test_down"] + bytes_of["d2d"], down, down * DOWN_OVERHEAD_BYTES, traffic["outbound-bytes"]
        ),
        "up": Direction(bytes_of["up"], bytes_of["d2d"], up, up * UP_OVERHEAD_BYTES, traffic["inbound-bytes"]),
    }
