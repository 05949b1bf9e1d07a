"""What the gate lets through, without processes: requests from a member, and what arrives at the
SuperLink behind it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower has it")
import httpx
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import Message, Metadata
from flwr.proto.node_pb2 import Node

from fedskew.deploy.gate import MAX_PUSH_BYTES, PREFIX, ROUTES, Gate

NOW = datetime(2026, 11, 17, 12, 0, 0, tzinfo=UTC).timestamp()
ME, OTHER, SUPERLINK = 11, 22, 1


async def in_two_parts():
    yield b"ans"
    yield b"wer"


@dataclass
class Behind:
    """A SuperLink that notes down what arrives, and a gate before it."""

    arrived: list[httpx.Request] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    down: bool = False

    def __post_init__(self) -> None:
        async def answer(request: httpx.Request) -> httpx.Response:
            if self.down:
                raise httpx.ConnectError("refused")
            await request.aread()
            self.arrived.append(request)
            return httpx.Response(200, content=in_two_parts(), headers={"x-flower": "1"})

        behind = httpx.AsyncClient(base_url="https://behind", transport=httpx.MockTransport(answer))
        self.gate = Gate(behind, say=self.log.append, clock=lambda: NOW)

    def post(self, path: str, content: bytes = b"", method: str = "POST", **headers: str):
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.gate)
            async with httpx.AsyncClient(base_url="https://gate", transport=transport) as client:
                return await client.request(method, path, content=content, headers=headers)

        return asyncio.run(ask())


def pushed(source: int = ME, target: int = SUPERLINK, reply_to: str = "question") -> bytes:
    meta = Metadata(run_id=7, message_id="m", src_node_id=source, dst_node_id=target)
    meta.reply_to_message_id = reply_to
    honest = Metadata(src_node_id=ME, dst_node_id=SUPERLINK, reply_to_message_id="question")
    messages = [Message(metadata=honest), Message(metadata=meta)]
    return PushMessagesRequest(node=Node(node_id=ME), messages_list=messages).SerializeToString()


def test_a_nodes_own_calls_go_through_unchanged():
    behind = Behind()
    for path in sorted(ROUTES):
        content = pushed() if path.endswith("push-messages") else b"body of " + path.encode()
        reply = behind.post(path, content, **{"flwr-public-key": "k", "Authorization": "Bearer x"})
        assert (reply.status_code, reply.content, reply.headers["x-flower"]) == (
            200,
            b"answer",
            "1",
        )
        request = behind.arrived[-1]
        assert (request.url.path, request.content) == (path, content)
        assert request.headers["flwr-public-key"] == "k"
        assert "authorization" not in request.headers
    assert behind.log == []


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/start-run",
        "/v1/runtime/acquire-task",
        "/",
        "/v1/fleet",
        "/v1/fleet/unregister-node",
        "/v1/fleet/get-fab?a=b",
        "/v1/fleet/%67et-fab",
    ],
)
def test_everything_else_is_refused(path):
    behind = Behind()
    assert behind.post(path).status_code == 404
    assert behind.post("/v1/fleet/get-fab", method="GET").status_code == 404
    assert behind.arrived == []


def test_a_node_without_a_key_is_told_how_to_get_one():
    reply = Behind().post(PREFIX + "register-node")
    assert reply.status_code == 400
    assert reply.json()["extra"] == "Make one: fedskew flower join NAME"


@pytest.mark.parametrize(("content", "why"), [
    (pushed(source=OTHER), "a node speaks for another node"),
    (pushed(source=SUPERLINK), "a node speaks for another node"),
    (pushed(source=SUPERLINK, target=OTHER, reply_to=""), "a node speaks for another node"),
    (pushed(target=OTHER), "a node sends a message that is no reply to the server"),
    (pushed(reply_to=""), "a node sends a message that is no reply to the server"),
    (b"\xff\xff", "what was pushed cannot be read"),
    (b"\0" * (MAX_PUSH_BYTES + 1), "a reply's description of more than 64 MiB"),
])  # fmt: skip
def test_a_node_can_answer_and_nothing_else(content, why):
    """Not order another node about, not answer for it."""
    behind = Behind()
    reply = behind.post(PREFIX + "push-messages", content)
    assert reply.json()["detail"] == why
    assert reply.status_code in (400, 413)
    assert behind.arrived == []


@pytest.mark.parametrize(
    ("seconds", "said"), [(62, "62 s ahead of"), (-400, "400 s behind"), (4, ""), (-290, "")]
)
def test_a_wrong_clock_is_named(seconds, said):
    """Flower answers with a bare 401, on which a SuperNode stops without a word."""
    behind = Behind()
    stamp = datetime.fromtimestamp(NOW + seconds, UTC).isoformat()
    reply = behind.post(PREFIX + "pull-messages", **{"flwr-timestamp": stamp})
    assert (reply.status_code == 400) == bool(said)
    if said:
        assert reply.json()["detail"] == f"the clock of this node is {said} the server's"
        assert "NTP" in reply.json()["extra"]
        assert said in behind.log[0]


def test_a_refusal_is_logged_once_a_minute():
    behind = Behind()
    for _ in range(50):
        behind.post("/v1/control/start-run")
    assert len(behind.log) == 1
    assert "'/v1/control/start-run': members of the fleet cannot reach this" in behind.log[0]


def test_a_node_tries_again_when_the_superlink_is_away():
    behind = Behind(down=True)
    assert behind.post(PREFIX + "pull-messages").status_code == 503
    behind.down = False
    assert behind.post(PREFIX + "pull-messages").status_code == 200
