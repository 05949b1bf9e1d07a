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
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

PREFIX = "/v1/fleet/"
PUSH = "push-messages"
ROUTES = frozenset(
    PREFIX + name
    for name in (
        "activate-node",
        "deactivate-node",
        "send-node-heartbeat",
        "pull-messages",
        PUSH,
        "get-run",
        "get-fab",
        "push-object",
        "pull-object",
        "confirm-message-received",
    )
)
KEYLESS = PREFIX + "register-node"  # what a SuperNode without a key calls first
DROPPED = frozenset(
    {b"host", b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade",
     b"proxy-authorization", b"authorization", b"forwarded"}
)  # fmt: skip
SUPERLINK_NODE = 1  # Flower's number for the SuperLink itself
MAX_PUSH_BYTES = 64 << 20  # names and hashes of a reply's arrays; the arrays come one by one
AHEAD_SECONDS, BEHIND_SECONDS = 5.0, 305.0  # what Flower accepts
QUIET_SECONDS = 60.0  # the same refusal of the same peer is logged once in this time
CODE = 90_001  # an error number of ours, apart from Flower's

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]


@dataclass(frozen=True)
class Refusal:
    """Why a request goes no further.

    Never with status 401 or 403: on the first a SuperNode stops without a word, the second it takes
    for the end of a run.
    """

    status: int
    why: str
    remedy: str = ""


@dataclass
class Gate:
    """An ASGI application. ``client`` is an httpx.AsyncClient whose base is the SuperLink."""

    client: Any
    say: Callable[[str], None] = lambda text: print(text, flush=True)
    clock: Callable[[], float] = time.time
    _logged: dict[tuple[str, str], float] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        refusal = closed(scope) or wrong_clock(scope, self.clock())
        body: AsyncIterator[bytes] = _stream(receive)
        if refusal is None and scope["path"] == PREFIX + PUSH:
            content = await _read(body, MAX_PUSH_BYTES)
            refusal = not_a_reply(content)
            body = _again(content or b"")
        if refusal is not None:
            self._log(scope, refusal)
            return await _answer(send, refusal)
        await self._pass_on(scope, body, send)

    async def _pass_on(self, scope: Scope, body: AsyncIterator[bytes], send: Send) -> None:
        import httpx

        headers = [(name, value) for name, value in scope["headers"] if name not in DROPPED]
        request = self.client.build_request("POST", scope["path"], headers=headers, content=body)
        try:
            response = await self.client.send(request, stream=True)
        except httpx.TransportError as error:
            why = f"the SuperLink does not answer ({type(error).__name__})"
            self._log(scope, Refusal(503, why))
            return await _answer(send, Refusal(503, why))  # SuperNodes try again on this
        try:
            kept = [(n.lower(), v) for n, v in response.headers.raw if n.lower() not in DROPPED]
            await send(
                {"type": "http.response.start", "status": response.status_code, "headers": kept}
            )
            async for part in response.aiter_raw():
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await response.aclose()

    def _log(self, scope: Scope, refusal: Refusal) -> None:
        peer = (scope.get("client") or ("?",))[0]
        now, key = self.clock(), (str(peer), refusal.why)
        if now - self._logged.get(key, -QUIET_SECONDS) < QUIET_SECONDS:
            return
        if len(self._logged) > 1000:  # a peer must not fill the memory
            self._logged.clear()
        self._logged[key] = now
        stamp = datetime.now(UTC).isoformat(timespec="seconds")
        self.say(f"{stamp} {peer} {scope['method']} {scope['path'][:80]!r}: {refusal.why}")


# ---------------------------------------------------------------- what is refused


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
    if scope["method"] == "POST" and path in ROUTES and plain:
        return None
    return Refusal(404, "members of the fleet cannot reach this", "")


def wrong_clock(scope: Scope, now: float) -> Refusal | None:
    """Whether the time a node has signed is one that Flower would refuse; then it is told by how
    much.
    """
    signed = next((v for n, v in scope["headers"] if n == b"flwr-timestamp"), b"")
    try:
        ahead = datetime.fromisoformat(signed.decode("ascii")).timestamp() - now
    except (ValueError, OverflowError):
        return None  # Flower refuses what it cannot read
    if -BEHIND_SECONDS < ahead < AHEAD_SECONDS:
        return None
    way = "ahead of" if ahead > 0 else "behind"
    why = f"the clock of this node is {abs(ahead):.0f} s {way} the server's"
    return Refusal(400, why, "Set both by NTP (timedatectl set-ntp true), then start it again")


def not_a_reply(content: bytes | None) -> Refusal | None:
    """Whether a node pushes anything but replies to the server in its own name."""
    from flwr.proto.fleet_pb2 import PushMessagesRequest
    from google.protobuf.message import DecodeError

    if content is None:
        return Refusal(413, f"a reply's description of more than {MAX_PUSH_BYTES >> 20} MiB")
    try:
        pushed = PushMessagesRequest.FromString(content)
    except DecodeError:
        return Refusal(400, "what was pushed cannot be read")
    for message in pushed.messages_list:
        meta = message.metadata
        if meta.src_node_id != pushed.node.node_id:
            return Refusal(400, "a node speaks for another node")
        if not meta.reply_to_message_id or meta.dst_node_id != SUPERLINK_NODE:
            return Refusal(400, "a node sends a message that is no reply to the server")
    return None


# ---------------------------------------------------------------- ASGI


async def _stream(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        event = await receive()
        if event["type"] != "http.request":
            raise ConnectionResetError("the node has hung up")
        if event.get("body"):
            yield event["body"]
        if not event.get("more_body"):
            return


async def _read(body: AsyncIterator[bytes], limit: int) -> bytes | None:
    parts, size = [], 0
    async for part in body:
        size += len(part)
        if size > limit:
            return None
        parts.append(part)
    return b"".join(parts)


async def _again(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def _answer(send: Send, refusal: Refusal) -> None:
    """An error in the form Flower's SuperNode prints."""
    error: dict[str, Any] = {"code": CODE, "detail": refusal.why}
    if refusal.remedy:
        error["extra"] = refusal.remedy
    body = json.dumps(error).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


# ---------------------------------------------------------------- the process


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
    serve(given.host, given.port, given.superlink, given.certificate, given.key, given.authority)


def serve(
    host: str, port: int, superlink: str, certificate: Path, key: Path, authority: Path
) -> None:
    """Until the process is stopped."""
    import httpx
    import uvicorn

    # given up before the SuperLink does (5 s): a connection it has just closed is not used again
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=2.0)
    client = httpx.AsyncClient(
        base_url=f"https://{superlink}",
        verify=ssl.create_default_context(cafile=str(authority)),
        timeout=httpx.Timeout(None, connect=5.0),
        limits=limits,
        trust_env=False,  # no proxy of the environment on the way to loopback
    )
    uvicorn.run(
        Gate(client),
        host=host,
        port=port,
        ssl_certfile=str(certificate),
        ssl_keyfile=str(key),
        lifespan="off",
        ws="none",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
