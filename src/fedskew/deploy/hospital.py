"""At a hospital: make a key and a policy, then run a SuperNode with them.

The private key, the policy and the ledger are made here and stay here; what leaves is the public
key.
"""

from __future__ import annotations

import http.client
import os
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from importlib import resources
from pathlib import Path

from fedskew.deploy.addresses import LOOPBACK, free_port
from fedskew.deploy.flower_cli import check_reachable, environment, program
from fedskew.deploy.keys import make_node_key, private_folder
from fedskew.errors import RunError
from fedskew.runtime.flower.ledger import new_ledger
from fedskew.runtime.flower.policy import KEY, Policy, read_policy

AHEAD_SECONDS, BEHIND_SECONDS = 5.0, 300.0  # what Flower accepts
GRAIN_SECONDS = 1.0  # of the time a server tells


@dataclass(frozen=True)
class Papers:
    """The files of one node."""

    key: Path
    public: Path
    policy: Path
    ledger: Path


def prepare(folder: Path, name: str) -> Papers:
    """A key pair, a policy that gives nothing of the labels, and an empty ledger; what exists is
    kept.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
        raise RunError(f"name '{name}'", "becomes a file name", "Use letters, digits, - and _")
    folder.mkdir(parents=True, exist_ok=True)
    policy = folder / f"{name}.toml"
    key, public = make_node_key(folder, name)
    if not policy.exists():
        template = resources.files("fedskew.deploy") / "template" / "policy.toml.in"
        policy.write_text(template.read_text(encoding="utf8").replace("@NAME@", name))
    return Papers(key, public, policy, new_ledger(folder / f"{name}.ledger"))


def describe(policy: Policy) -> str:
    """A policy in one line.

    >>> describe(Policy(signals=("private",), epsilon=1.0, max_epochs=5)).split("; ")[:2]
    ['label counts: private up to epsilon 1 in total', 'sizes: exact']
    """
    kinds = [f"private up to epsilon {policy.epsilon:g} in total" if kind == "private" else kind
             for kind in policy.signals]  # fmt: skip
    step = policy.round_examples_to
    return "; ".join(
        (
            f"label counts: {', '.join(kinds) or 'none'}",
            f"sizes: {'exact' if step == 1 else f'in multiples of {step}'}",
            f"scores: {'yes' if policy.scores else 'no'}",
            f"epochs a round: {policy.max_epochs or 'any'}",
            f"rounds: {policy.max_rounds or 'any'}",
        )
    )


def check(papers: Papers, superlink: str, authority: Path) -> Policy:
    """Whether a node can be started: its policy reads, the server proves to be who it says, and
    the clocks agree.
    """
    policy = read_policy(papers.policy)
    check_reachable(superlink, authority)
    ahead = clock_ahead(superlink, authority)
    if not -BEHIND_SECONDS < ahead < AHEAD_SECONDS:
        way = "ahead of" if ahead > 0 else "behind"
        raise RunError(
            "clock",
            f"this machine's is {abs(ahead):.0f} s {way} the server's, which would refuse the node",
            "Set both by NTP: timedatectl set-ntp true",
        )
    return policy


def clock_ahead(superlink: str, authority: Path) -> float:
    """By how many seconds, at least, this machine's clock is ahead of the server's."""
    context = ssl.create_default_context(cafile=str(authority))
    connection = http.client.HTTPSConnection(superlink, timeout=30, context=context)
    try:
        asked = time.time()
        connection.request("GET", "/")
        told = parsedate_to_datetime(connection.getresponse().getheader("date") or "")
    except (OSError, http.client.HTTPException, ValueError, TypeError):
        return 0.0  # no time told, nothing to compare
    finally:
        connection.close()
    ahead = asked - told.timestamp()
    return max(0.0, ahead - GRAIN_SECONDS) if ahead > 0 else ahead


def node_command(
    papers: Papers, superlink: str, authority: Path, client: int, port: int = 0
) -> list[str]:
    """How the SuperNode is started: on a free port of its own, with its key and its policy."""
    policy = str(papers.policy.resolve())
    if '"' in policy or "\\" in policy:
        raise RunError(f"policy {policy}", "has a name Flower cannot read", "Choose another folder")
    who = f'partition-id={client} {KEY}="{policy}"'
    secure = ["--root-certificates", str(authority), "--auth-supernode-private-key"]
    place = ["--host", LOOPBACK, "--port", str(port or free_port(LOOPBACK))]
    return [program("flower-supernode"), "--superlink", superlink, *secure, str(papers.key), *place,
            "--node-config", who]  # fmt: skip


def become(command: list[str], home: Path) -> None:
    """Turn this process into the SuperNode."""
    env: Mapping[str, str] = environment(private_folder(home))
    os.execve(command[0], command, dict(env))
