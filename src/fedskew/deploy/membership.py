"""Who takes part: a public key becomes a client number, until it is revoked.

The private half never comes here: it is made where it is used (:mod:`fedskew.deploy.hospital`).
A revoked key is out at once, also of a run that is going on, and for ever: its hospital makes
another one, which may be admitted with the same client number.
"""

from __future__ import annotations

import contextlib
import fcntl
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedskew.deploy.addresses import hosts_of
from fedskew.deploy.fleet_sheet import Fleet, read_fleet
from fedskew.deploy.flower_cli import CONNECTION, call, check_reachable
from fedskew.deploy.keys import fingerprint_of, private_folder
from fedskew.errors import RunError
from fedskew.records import write_json
from fedskew.runtime.flower.members import Member, read_members, read_revoked


@dataclass(frozen=True)
class Admission:
    """Who was admitted, and what is sent back."""

    member: Member
    authority: Path  # the certificate that the hospital needs
    command: tuple[str, ...]  # what it starts


def admit(home: Path, public_key: Path, client: int | None = None) -> Admission:
    """Register the public key of a SuperNode on another machine and bind it to a client number;
    the same again if it is known.
    """
    fleet = read_fleet(home.resolve())
    if fleet.authority is None:
        raise RunError("fleet", "has no TLS: any node may join it", "Start it with --tls")
    check_reachable(fleet.control, fleet.authority)
    member = register(fleet, public_key, client)
    address = f"{hosts_of(fleet.host)[0]}:{fleet.address.rpartition(':')[2]}"
    words = ("fedskew", "flower", "join", member.name, "--superlink", address)
    return Admission(member, fleet.authority, (*words, "--client", str(member.client)))


def register(fleet: Fleet, public_key: Path, client: int | None) -> Member:
    """Make the SuperLink know a key, and bind it to a client number: the lowest free one, if none
    is asked for.
    """
    key, name = fingerprint_of(public_key), public_key.stem
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
        raise RunError(f"name '{name}'", "becomes a file name", "Use letters, digits, - and _")
    with _turn(fleet):
        known = read_members(fleet.members)
        _check_not_revoked(fleet, key, name)
        earlier = next((one for one in known if one.key == key), None)
        number = _number(known, earlier, client, name)
        node = _node_of(fleet, public_key, earlier)
        member = Member(number, name, key, node)
        others = [one for one in known if one.key != key]
        _write(fleet, [*others, member], read_revoked(fleet.members))
    return member


def revoke(home: Path, who: str) -> Member:
    """A member, named by its name, client number or key, takes no part any more. The SuperLink
    refuses its key when this returns.
    """
    fleet = read_fleet(home.resolve())
    if fleet.authority is None:
        raise RunError("fleet", "has no TLS: any node may join it", "Start it with --tls")
    check_reachable(fleet.control, fleet.authority)
    with _turn(fleet):
        known = read_members(fleet.members)
        member = _only(known, who)
        _unregister(fleet, member)
        gone = {**asdict(member), "at": datetime.now(UTC).isoformat(timespec="seconds")}
        others = [one for one in known if one != member]
        _write(fleet, others, [*read_revoked(fleet.members), gone])
    return member


def _only(known: Sequence[Member], who: str) -> Member:
    """The one member that is meant; names may be the same, and look like numbers."""
    found = [one for one in known if who in (one.name, str(one.client), one.key)]
    if len(found) == 1:
        return found[0]
    rows = ", ".join(f"{one.name} (client {one.client}, {one.key})" for one in found or known)
    if found:
        raise RunError(f"'{who}'", f"may be {rows}", "Give the key: SHA256:...")
    raise RunError(f"'{who}'", "was not admitted", f"Members: {rows or 'nobody'}")


def _unregister(fleet: Fleet, member: Member) -> None:
    """Make the SuperLink forget a node; that it did so before is no error."""
    try:
        call(fleet.flower_home, "supernode", "unregister", str(member.node), CONNECTION)
    except RunError as error:
        if "node id not found" not in error.what.lower():
            raise


def _write(fleet: Fleet, known: Sequence[Member], revoked: Sequence[Mapping[str, Any]]) -> None:
    rows = [asdict(one) for one in sorted(known, key=lambda one: one.client)]
    write_json(fleet.members, {"members": rows, "revoked": revoked})


def _check_not_revoked(fleet: Fleet, key: str, name: str) -> None:
    ended = next((row["at"] for row in read_revoked(fleet.members) if row["key"] == key), None)
    if ended is not None:
        remedy = "Make another: fedskew flower join NEW-NAME"
        raise RunError(name, f"its key was revoked at {ended}", remedy)


def _number(known: Sequence[Member], earlier: Member | None, wanted: int | None, name: str) -> int:
    """The client number for a key."""
    if earlier is not None and wanted in (None, earlier.client):
        return earlier.client
    if earlier is not None:
        what = f"its key was admitted as client {earlier.client}"
        raise RunError(name, what, "Make a new key for another number")
    taken = {one.client: one.name for one in known}
    if wanted in taken:
        raise RunError(f"client {wanted}", f"is {taken[wanted]}", "Give another --client")
    return wanted if wanted is not None else min(set(range(len(taken) + 1)) - set(taken))


def _node_of(fleet: Fleet, public_key: Path, earlier: Member | None) -> int:
    """Flower's number for a key, which is registered if it is not yet."""
    try:
        answer = call(fleet.flower_home, "supernode", "register", str(public_key), CONNECTION)
        return int(answer["node-id"])
    except RunError as error:
        if "already in use" not in error.what:
            raise
        if earlier is None:
            what = "is registered with the SuperLink, but nobody was admitted with it"
            raise RunError(str(public_key), what, "Make another key") from None
        return earlier.node


@contextlib.contextmanager
def _turn(fleet: Fleet) -> Iterator[None]:
    """One admission at a time: no number is given twice."""
    with open(private_folder(fleet.folder) / ".members.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
