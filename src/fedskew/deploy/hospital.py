"""At a hospital: make a key and a policy, then run a SuperNode with them.

The private key, the policy and the ledger are made here and stay here; what leaves is the public
key.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from importlib import resources
from pathlib import Path

from fedskew.deploy import warm
from fedskew.deploy.addresses import LOOPBACK, free_port
from fedskew.deploy.approval import approved_only
from fedskew.deploy.flower_cli import check_reachable, environment, program
from fedskew.deploy.forwarding import server
from fedskew.deploy.keys import make_certificates, make_node_key, private_folder
from fedskew.deploy.warm import CAN_WARM, warm_environment
from fedskew.errors import RunError
from fedskew.runtime.flower.ledger import new_ledger
from fedskew.runtime.flower.policy import KEY, Policy, read_policy

AHEAD_SECONDS, BEHIND_SECONDS = 5.0, 300.0  # what Flower accepts
GRAIN_SECONDS = 1.0  # of the time a server tells
ASKED, PAUSE_SECONDS = 8, 0.7  # times, for the server's clock, and between them
PR_SET_PDEATHSIG = 1  # of prctl


@dataclass(frozen=True)
class Papers:
    """The files of one node."""

    key: Path
    public: Path
    policy: Path
    ledger: Path
    apps: Path


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
    apps = folder / f"{name}.apps"
    apps.touch()
    return Papers(key, public, policy, new_ledger(folder / f"{name}.ledger"), apps)


def describe(policy: Policy) -> str:
    """A policy in one line.

    >>> describe(Policy(signals=("private",), epsilon=1.0, max_epochs=5)).split("; ")[:2]
    ['apps: any the server sends', 'label counts: private up to epsilon 1 in total']
    """
    kinds = [f"private up to epsilon {policy.epsilon:g} in total" if kind == "private" else kind
             for kind in policy.signals]  # fmt: skip
    step = policy.round_examples_to
    apps = "any the server sends" if policy.apps is None else f"those of {policy.apps.name}"
    return "; ".join(
        (
            f"apps: {apps}",
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
    if not _agrees(ahead):
        way = "ahead of" if ahead > 0 else "behind"
        raise RunError(
            "clock",
            f"this machine's is {abs(ahead):.0f} s {way} the server's, which would refuse the node",
            "Set both by NTP: timedatectl set-ntp true",
        )
    return policy


def clock_ahead(superlink: str, authority: Path) -> float:
    """By how many seconds, at least, this machine's clock is ahead of the server's.

    A server writes the time down once a second, when it comes to it: a busy one tells a time that
    is some seconds old. So it is asked again, over some seconds, if the clocks seem to differ, and
    the nearest counts.
    """
    ahead = _clock_ahead(superlink, authority)
    for _ in range(ASKED):
        if _agrees(ahead):
            break
        time.sleep(PAUSE_SECONDS)
        ahead = min(ahead, _clock_ahead(superlink, authority), key=abs)
    return ahead


def _agrees(ahead: float) -> bool:
    return -BEHIND_SECONDS < ahead < AHEAD_SECONDS


def _clock_ahead(superlink: str, authority: Path) -> float:
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


def run_behind_gate(
    papers: Papers, superlink: str, authority: Path, client: int, port: int, home: Path
) -> int:
    """Run the SuperNode behind a gate of its own, which lets approved apps in; its exit code."""
    files = make_certificates(private_folder(home) / "gate", [LOOPBACK])
    place = (LOOPBACK, free_port(LOOPBACK))
    gate = server(
        approved_only(papers.policy), place, superlink, authority, files.certificate, files.key
    )
    command = node_command(papers, f"{LOOPBACK}:{place[1]}", files.authority, client, port)
    # in a session of its own: Ctrl-C reaches it once, through us
    with (
        _warm(home) as env,
        subprocess.Popen(
            command, env=env, start_new_session=True, preexec_fn=_end_with_parent
        ) as node,
    ):
        threading.Thread(target=gate.run, daemon=True).start()  # the node tries until it is there
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda got, _: node.send_signal(got))
        return node.wait()


@contextlib.contextmanager
def _warm(home: Path) -> Iterator[dict[str, str]]:
    """A process that answers the node's messages, as long as the node runs; the node's
    environment.
    """
    env = environment(home)
    if not CAN_WARM:
        yield env
        return
    folder = private_folder(home / "warm")
    command = [sys.executable, "-P", "-m", warm.__name__, str(folder)]
    with subprocess.Popen(
        command, env=env, start_new_session=True, preexec_fn=_end_with_parent
    ) as process:
        try:
            yield warm_environment(folder, env)
        finally:
            process.terminate()


def _end_with_parent() -> None:
    """Without its gate a node reaches nobody: it ends when this process does (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
