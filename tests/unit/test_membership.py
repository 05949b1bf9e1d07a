"""Revoking: exactly the member that is meant, and the list says what has happened."""

from __future__ import annotations

import json

import pytest

from fedskew.deploy import membership
from fedskew.deploy.fleet_sheet import Fleet, write_fleet
from fedskew.errors import RunError
from fedskew.runtime.flower.members import read_members, read_revoked

ROWS = [(0, "1", "SHA256:a", 10), (1, "ward", "SHA256:b", 11), (2, "ward", "SHA256:c", 12)]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A fleet with three members; what Flower was asked is in ``asked``."""
    write_fleet(Fleet(str(tmp_path), "127.0.0.1:1", True, control="127.0.0.1:2"))
    rows = [dict(zip(("client", "name", "key", "node"), row, strict=True)) for row in ROWS]
    (tmp_path / "members.json").write_text(json.dumps({"members": rows}))
    monkeypatch.setattr(membership, "check_reachable", lambda *where: None)
    return tmp_path


@pytest.fixture
def asked(monkeypatch):
    words = []
    monkeypatch.setattr(membership, "call", lambda home, *given: words.append(given))
    return words


def test_the_one_that_is_meant_is_out(home, asked):
    assert membership.revoke(home, "SHA256:c").client == 2
    assert asked == [("supernode", "unregister", "12", "fedskew")]
    assert [one.client for one in read_members(home / "members.json")] == [0, 1]
    assert membership.revoke(home, "ward").client == 1
    gone = read_revoked(home / "members.json")
    assert [row["key"] for row in gone] == ["SHA256:c", "SHA256:b"]
    assert all(row["at"].startswith("20") for row in gone)


@pytest.mark.parametrize("who", ["ward", "1"])
def test_nobody_is_revoked_for_somebody_else(who, home, asked):
    """Two keys may have one name, and a name may be the number of another one."""
    before = (home / "members.json").read_text()
    with pytest.raises(RunError, match=r"may be .*SHA256:.*SHA256:.*Give the key"):
        membership.revoke(home, who)
    assert asked == []
    assert (home / "members.json").read_text() == before


def test_a_stranger(home, asked):
    with pytest.raises(RunError, match=r"'x': was not admitted\. Members: 1 \(client 0, SHA256:a"):
        membership.revoke(home, "x")


def test_nothing_is_said_to_be_done_that_the_superlink_did_not_do(home, monkeypatch):
    def fails(home, *words):
        raise RunError("flwr", "'flwr supernode' failed: no connection", "")

    monkeypatch.setattr(membership, "call", fails)
    with pytest.raises(RunError, match="no connection"):
        membership.revoke(home, "0")
    assert len(read_members(home / "members.json")) == 3
    assert read_revoked(home / "members.json") == []


def test_a_node_that_the_superlink_has_forgotten_is_revoked_all_the_same(home, monkeypatch):
    def unknown(home, *words):
        raise RunError("flwr", "'flwr supernode' failed: Node ID not found for account.", "")

    monkeypatch.setattr(membership, "call", unknown)
    assert membership.revoke(home, "0").name == "1"
    assert len(read_members(home / "members.json")) == 2
