"""The gate: the only address of a fleet that its members reach. A SuperNode's own calls go through,
nothing else does.

Flower 1.41 and 1.42 serve three interfaces on one port: Fleet (what SuperNodes need), Control
(submit a run, register a key) and Runtime (take over a ServerApp). Control and Runtime ask nobody
who they are, and an address of their own can no longer be given to them. So the SuperLink listens
on loopback, and the gate in front of it lets through what a SuperNode with a key of its own calls,
by name. It also reads what a node pushes: a reply, in its own name, to the server. Flower itself
would take a message to another node just as well.

A node whose clock is wrong is told so: Flower answers it with a bare 401.
"""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path

from fedskew.deploy.forwarding import Refusal, Rules, Scope, server
from fedskew.runtime.flower.undocumented import (
    AHEAD_SECONDS,
    BEHIND_SECONDS,
    KEYLESS,
    NODE_CALLS,
    PUSH,
    SIGNED_TIME,
    SUPERLINK_NODE,
    pushed_messages,
)


def closed(scope: Scope) -> Refusal | None:
    """Whether this is no call of a SuperNode.

    >>> closed({"method": "POST", "path": "/v1/control/start-run", "query_string": b""}).status
    404
    >>> closed({"method": "POST", "path": "/v1/fleet/get-fab", "query_string": b""}) is None
    True
    """
    path = scope["path"]
    if scope["method"] == "POST" and path == KEYLESS:
        why = "this fleet admits SuperNodes with a registered key only"
        return Refusal(400, why, "Make one: fedskew flower join NAME")
    written = scope.get("raw_path") or path.encode()
    plain = written == path.encode() and not scope["query_string"]
    if scope["method"] == "POST" and path in NODE_CALLS and plain:
        return None
    return Refusal(404, "members of the fleet cannot reach this", "")


def wrong_clock(scope: Scope, now: float) -> Refusal | None:
    """Whether the time a node has signed is one that Flower would refuse; then it is told by how
    much.
    """
    signed = next((v for n, v in scope["headers"] if n == SIGNED_TIME), b"")
    try:
        ahead = datetime.fromisoformat(signed.decode("ascii")).timestamp() - now
    except (ValueError, OverflowError):
        return None  # Flower refuses what it cannot read
    if -BEHIND_SECONDS < ahead < AHEAD_SECONDS:
        return None
    way = "ahead of" if ahead > 0 else "behind"
    why = f"the clock of this node is {abs(ahead):.0f} s {way} the server's"
    return Refusal(400, why, "Set both by NTP (timedatectl set-ntp true), then start it again")


def not_a_reply(content: bytes) -> Refusal | None:
    """Whether a node pushes anything but replies to the server in its own name."""
    from google.protobuf.message import DecodeError

    try:
        pushed = pushed_messages(content)
    except DecodeError:
        return Refusal(400, "what was pushed cannot be read")
    for message in pushed.messages_list:
        meta = message.metadata
        if meta.src_node_id != pushed.node.node_id:
            return Refusal(400, "a node speaks for another node")
        if not meta.reply_to_message_id or meta.dst_node_id != SUPERLINK_NODE:
            return Refusal(400, "a node sends a message that is no reply to the server")
    return None


def first_look(scope: Scope, now: float) -> Refusal | None:
    """What can be said without reading a body."""
    return closed(scope) or wrong_clock(scope, now)


RULES = Rules(first_look, requests={PUSH: not_a_reply})


def main() -> None:
    """``python -m fedskew.deploy.gate``: listen for members, speak to the SuperLink on
    loopback.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--host", "--superlink"):
        parser.add_argument(name, required=True)
    parser.add_argument("--port", type=int, required=True)
    for name in ("--certificate", "--key", "--authority"):
        parser.add_argument(name, type=Path, required=True)
    given = parser.parse_args()
    place = (given.host, given.port)
    server(RULES, place, given.superlink, given.authority, given.certificate, given.key).run()


if __name__ == "__main__":
    main()
