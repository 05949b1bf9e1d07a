"""What the gate lets through, without processes: requests from a member, and what arrives at the
SuperLink behind it.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower has it")
import httpx
from flwr.cli.build import build_fab_from_disk
from flwr.proto.fab_pb2 import Fab, GetFabResponse
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import Message, Metadata
from flwr.proto.node_pb2 import Node

from fedskew.deploy.app import write_app
from fedskew.deploy.approval import approve, approved_only, read_list
from fedskew.deploy.forwarding import MAX_READ_BYTES, Forwarder, Rules
from fedskew.deploy.gate import RULES
from fedskew.deploy.hospital import prepare
from fedskew.errors import RunError
from fedskew.recipe import load, resolve
from fedskew.runtime.flower.undocumented import FLEET_API, NODE_CALLS

NOW = datetime(2026, 11, 17, 12, 0, 0, tzinfo=UTC).timestamp()
ME, OTHER, SUPERLINK = 11, 22, 1


async def in_two_parts(content: bytes):
    yield content[:3]
    yield content[3:]


@dataclass
class Behind:
    """A SuperLink that notes down what arrives, and a gate before it."""

    rules: Rules = RULES
    arrived: list[httpx.Request] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    down: bool = False
    content: bytes = b"answer"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        async def answer(request: httpx.Request) -> httpx.Response:
            if self.down:
                raise httpx.ConnectError("refused")
            await request.aread()
            self.arrived.append(request)
            parts = in_two_parts(self.content)
            headers = {"x-flower": "1", **self.headers}
            return httpx.Response(self.status, content=parts, headers=headers)

        behind = httpx.AsyncClient(base_url="https://behind", transport=httpx.MockTransport(answer))
        self.gate = Forwarder(behind, self.rules, say=self.log.append, clock=lambda: NOW)

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
    for path in sorted(NODE_CALLS):
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
    ("status", "headers"),
    [
        (201, {}),
        (206, {}),
        (307, {"location": "http://192.0.2.1/v1/fleet/get-fab"}),
        (308, {"location": "/v1/fleet/pull-object"}),
        (200, {"content-encoding": "deflate"}),
        (200, {"content-encoding": "identity, gzip"}),
    ],
)
def test_a_server_cannot_slip_an_app_past_the_list(status, headers, tmp_path):
    """A SuperNode takes every 2xx for an answer, follows redirects and unpacks what says that it is
    packed. What was not looked at does not reach it, by any of its calls.
    """
    papers = prepare(tmp_path, "hospital")
    content = GetFabResponse(fab=Fab(content=b"evil")).SerializeToString()
    behind = Behind(approved_only(papers.policy), content=content, status=status, headers=headers)
    for path in sorted(NODE_CALLS):
        reply = behind.post(path)
        assert reply.status_code in (403, 502), (path, status)
        assert b"evil" not in reply.content
        assert not {"location", "content-encoding"} & set(reply.headers)


def test_errors_of_the_server_are_passed_back():
    for status in (400, 401, 403, 404, 500, 503):
        reply = Behind(status=status, content=b"why").post(FLEET_API + "get-fab")
        assert (reply.status_code, reply.content) == (status, b"why")


def test_nothing_packed_is_asked_for():
    behind = Behind()
    behind.post(FLEET_API + "get-run", **{"accept-encoding": "gzip, br"})
    assert behind.arrived[0].headers["accept-encoding"] == "identity"


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
    reply = Behind().post(FLEET_API + "register-node")
    assert reply.status_code == 400
    assert reply.json()["extra"] == "Make one: fedskew flower join NAME"


@pytest.mark.parametrize(("content", "why"), [
    (pushed(source=OTHER), "a node speaks for another node"),
    (pushed(source=SUPERLINK), "a node speaks for another node"),
    (pushed(source=SUPERLINK, target=OTHER, reply_to=""), "a node speaks for another node"),
    (pushed(target=OTHER), "a node sends a message that is no reply to the server"),
    (pushed(reply_to=""), "a node sends a message that is no reply to the server"),
    (b"\xff\xff", "what was pushed cannot be read"),
    (b"\0" * (MAX_READ_BYTES + 1), "more than 64 MiB"),
])  # fmt: skip
def test_a_node_can_answer_and_nothing_else(content, why):
    """Not order another node about, not answer for it."""
    behind = Behind()
    reply = behind.post(FLEET_API + "push-messages", content)
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
    reply = behind.post(FLEET_API + "pull-messages", **{"flwr-timestamp": stamp})
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


# ---------------------------------------------------------------- the gate at a hospital


def hospital(folder: Path, *apps: bytes) -> Behind:
    """A gate that lets these apps in, before a server that sends ``b"app"``."""
    (folder / "policy.toml").write_text("apps = 'mine.apps'")
    lines = [f"{hashlib.sha256(app).hexdigest()}  some app\n" for app in apps]
    (folder / "mine.apps").write_text("# read by me\n\n" + "".join(lines))
    sent = GetFabResponse(fab=Fab(hash_str="whatever", content=b"app")).SerializeToString()
    return Behind(approved_only(folder / "policy.toml"), content=sent)


def test_an_approved_app_comes_in_unchanged(tmp_path):
    behind = hospital(tmp_path, b"other", b"app")
    reply = behind.post(FLEET_API + "get-fab")
    assert (reply.status_code, reply.content) == (200, behind.content)
    assert behind.post(FLEET_API + "pull-messages").status_code == 200


def test_another_app_is_not_run(tmp_path):
    """The bytes that come in count, whatever hash the server says they have."""
    behind = hospital(tmp_path, b"whatever")
    reply = behind.post(FLEET_API + "get-fab")
    assert reply.status_code == 403
    found = hashlib.sha256(b"app").hexdigest()
    assert f"the app {found} is not on the list mine.apps: it is not run" in behind.log[0]


@pytest.mark.parametrize("damage", ["missing", "no hash", "no policy", "no answer"])
def test_what_cannot_be_checked_is_not_run(damage, tmp_path):
    behind = hospital(tmp_path, b"app")
    if damage == "missing":
        (tmp_path / "mine.apps").unlink()
    elif damage == "no hash":
        (tmp_path / "mine.apps").write_text("*\n")
    elif damage == "no policy":
        (tmp_path / "policy.toml").write_text("apps = 1")
    else:
        behind.content = b"\xff\xff"
    assert behind.post(FLEET_API + "get-fab").status_code == 403


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Flower's own
def test_an_app_is_approved_by_what_flower_makes_of_it(tmp_path):
    """The hash is that of the bundle a server sends, whatever else lies in the folder."""
    papers = prepare(tmp_path, "hospital")
    write_app(tmp_path / "app", resolve(load("fedavg")))
    sent = hashlib.sha256(build_fab_from_disk(tmp_path / "app")).hexdigest()
    (tmp_path / "app" / "run").mkdir()
    (tmp_path / "app" / "run" / "rounds.jsonl").touch()
    assert approve(papers.policy, tmp_path / "app") == (sent, papers.apps)
    approve(papers.policy, tmp_path / "app")
    assert read_list(papers.apps) == [sent]
    (tmp_path / "app" / "task.py").write_text("import os")
    assert approve(papers.policy, tmp_path / "app")[0] != sent
    with pytest.raises(RunError, match="is not a Flower app"):
        approve(papers.policy, tmp_path)


def test_a_node_tries_again_when_the_superlink_is_away():
    behind = Behind(down=True)
    assert behind.post(FLEET_API + "pull-messages").status_code == 503
    behind.down = False
    assert behind.post(FLEET_API + "pull-messages").status_code == 200
