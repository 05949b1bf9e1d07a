"""HTTP passed on to somebody else, after a look at it: what the gates at both ends have in common.

A request is taken apart and made anew, so none hides behind another one. Bodies go through in
pieces; only those that a rule wants to read are held back until it has. Of what comes back, a plain
200 and errors go through: Flower's programs take every 2xx for an answer, follow redirects anywhere
and unpack what is packed, so that a rule would have read something else than they do.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

DROPPED = frozenset(
    {
        b"host",
        b"connection",
        b"keep-alive",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"proxy-authorization",
        b"authorization",
        b"forwarded",
        b"accept-encoding",
    }
)
PLAIN = (b"accept-encoding", b"identity")
MAX_READ_BYTES = 64 << 20  # of a body that a rule reads
QUIET_SECONDS = 60.0  # the same refusal of the same peer is logged once in this time
CODE = 90_001  # an error number of ours, apart from Flower's

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]


@dataclass(frozen=True)
class Refusal:
    """Why a request goes no further.

    On status 401 a SuperNode stops without a word; 403 it takes for the end of a run, and goes on
    with others.
    """

    status: int
    why: str
    remedy: str = ""


Reader = Callable[[bytes], Refusal | None]


@dataclass(frozen=True)
class Rules:
    """What is let through."""

    first: Callable[[Scope, float], Refusal | None]  # by the look of it, and the time
    requests: Mapping[str, Reader] = field(default_factory=dict)  # path -> who reads the body
    replies: Mapping[str, Reader] = field(default_factory=dict)


@dataclass
class Forwarder:
    """An ASGI application. ``client`` is an httpx.AsyncClient whose base is where to."""

    client: Any
    rules: Rules
    say: Callable[[str], None] = lambda text: print(text, flush=True)
    clock: Callable[[], float] = time.time
    _logged: dict[tuple[str, str], float] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        refusal = self.rules.first(scope, self.clock())
        body: AsyncIterator[bytes] = _stream(receive)
        reader = self.rules.requests.get(scope["path"])
        if refusal is None and reader is not None:
            content = await _read(body)
            refusal = _too_long() if content is None else reader(content)
            body = _again(content or b"")
        if refusal is not None:
            return await self._refuse(scope, send, refusal)
        await self._pass_on(scope, body, send)

    async def _pass_on(self, scope: Scope, body: AsyncIterator[bytes], send: Send) -> None:
        import httpx

        headers = [(name, value) for name, value in scope["headers"] if name not in DROPPED]
        headers.append(PLAIN)
        request = self.client.build_request("POST", scope["path"], headers=headers, content=body)
        try:
            response = await self.client.send(request, stream=True)
        except httpx.TransportError as error:
            why = f"the SuperLink does not answer ({type(error).__name__})"
            return await self._refuse(scope, send, Refusal(503, why))  # nodes try again on this
        try:
            await self._pass_back(scope, response, send)
        finally:
            await response.aclose()

    async def _pass_back(self, scope: Scope, response: Any, send: Send) -> None:
        odd = _odd_answer(response)
        if odd is not None:
            return await self._refuse(scope, send, odd)
        reader = self.rules.replies.get(scope["path"])
        parts: AsyncIterator[bytes] = response.aiter_raw()
        if reader is not None and response.status_code == 200:
            content = await _read(parts)
            refusal = _too_long() if content is None else reader(content)
            if refusal is not None:
                return await self._refuse(scope, send, refusal)
            parts = _again(content or b"")
        kept = [(n.lower(), v) for n, v in response.headers.raw if n.lower() not in DROPPED]
        await send({"type": "http.response.start", "status": response.status_code, "headers": kept})
        async for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _refuse(self, scope: Scope, send: Send, refusal: Refusal) -> None:
        """An error in the form Flower's SuperNode prints."""
        self._log(scope, refusal)
        error: dict[str, Any] = {"code": CODE, "detail": refusal.why}
        if refusal.remedy:
            error["extra"] = refusal.remedy
        body = json.dumps(error).encode()
        size = str(len(body)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", size)]
        await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

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


# ---------------------------------------------------------------- bodies


async def _stream(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        event = await receive()
        if event["type"] != "http.request":
            raise ConnectionResetError("the other end has hung up")
        if event.get("body"):
            yield event["body"]
        if not event.get("more_body"):
            return


async def _read(body: AsyncIterator[bytes]) -> bytes | None:
    """A whole body; None if it is too long."""
    parts, size = [], 0
    async for part in body:
        size += len(part)
        if size > MAX_READ_BYTES:
            return None
        parts.append(part)
    return b"".join(parts)


async def _again(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _odd_answer(response: Any) -> Refusal | None:
    """Whether an answer could mean something else to its reader than to a rule."""
    status, packed = response.status_code, response.headers.get("content-encoding", "identity")
    if status != 200 and status < 400:
        return Refusal(502, f"the server answers with status {status}, which no SuperLink does")
    if packed != "identity":
        return Refusal(502, "the server's answer is packed, which was not asked for")
    return None


def _too_long() -> Refusal:
    return Refusal(413, f"more than {MAX_READ_BYTES >> 20} MiB")


# ---------------------------------------------------------------- servers


def server(
    rules: Rules, place: tuple[str, int], target: str, authority: Path, certificate: Path, key: Path
) -> Any:
    """A uvicorn.Server at this place that passes on to ``target``, whose certificate is checked."""
    import httpx
    import uvicorn

    # given up before the SuperLink does (5 s): a connection it has just closed is not used again
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=2.0)
    client = httpx.AsyncClient(
        base_url=f"https://{target}",
        verify=ssl.create_default_context(cafile=str(authority)),
        timeout=httpx.Timeout(None, connect=5.0),
        limits=limits,
        trust_env=False,  # no proxy of the environment on the way
    )
    config = uvicorn.Config(
        Forwarder(client, rules),
        host=place[0],
        port=place[1],
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
    return uvicorn.Server(config)
