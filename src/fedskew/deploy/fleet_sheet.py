"""What of a fleet runs on this machine, as it stands in ``fleet.json``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fedskew.deploy.addresses import LOOPBACK
from fedskew.deploy.keys import Certificates, write_private
from fedskew.deploy.processes import Started
from fedskew.errors import RunFolderError

SHEET = "fleet.json"


@dataclass(frozen=True)
class Fleet:
    """What was started, as it stands in ``fleet.json``."""

    home: str
    address: str  # where nodes connect: the gate with TLS, else the SuperLink itself
    tls: bool
    simulated: int = 0  # virtual nodes on Ray instead of SuperNodes
    # what nodes' address listens on; the address is where this machine reaches it
    host: str = LOOPBACK
    control: str = ""  # where runs are submitted, on loopback: the SuperLink
    processes: tuple[Started, ...] = field(default_factory=tuple)

    @property
    def folder(self) -> Path:
        """Where everything of this fleet lies."""
        return Path(self.home)

    @property
    def flower_home(self) -> Path:
        """Flower's configuration for commands against this fleet."""
        return self.folder / "flwr" / "cli"

    @property
    def authority(self) -> Path | None:
        """The certificate to check the SuperLink with."""
        return self.certificates.authority if self.certificates else None

    @property
    def certificates(self) -> Certificates | None:
        """The files behind TLS."""
        keys = self.folder / "keys"
        files = (keys / "ca.crt", keys / "superlink.crt", keys / "superlink.key")
        return Certificates(*files) if self.tls else None

    @property
    def members(self) -> Path:
        """Who was admitted, with which client number."""
        return self.folder / "members.json"


# ---------------------------------------------------------------- the sheet


def read_fleet(home: Path) -> Fleet:
    """The fleet of a folder."""
    try:
        raw = json.loads((home / SHEET).read_text())
        raw["control"] = raw.get("control") or raw["address"]
        return Fleet(**{**raw, "processes": tuple(Started(**p) for p in raw["processes"])})
    except FileNotFoundError:
        raise RunFolderError(
            str(home), "no fleet was started here", "Start one: fedskew flower up"
        ) from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RunFolderError(
            str(home / SHEET), f"cannot be read ({error})", "Remove it once nothing runs any more"
        ) from None


def write_fleet(fleet: Fleet) -> Fleet:
    """Keep what runs."""
    write_private(fleet.folder / SHEET, (json.dumps(asdict(fleet), indent=2) + "\n").encode())
    return fleet
