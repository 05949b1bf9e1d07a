"""Which apps a node runs: those that somebody at the hospital has read, known by their SHA-256.

An app is code that the server sends and a SuperNode runs. A second gate, at the hospital between
SuperNode and server, reads every app that comes in and lets through those on the node's own list.
Flower has ``--trusted-entities`` for that, but signatures reach a SuperNode only for apps from
Flower's own hub.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from fedskew.deploy.flower_cli import environment, program
from fedskew.deploy.forwarding import Refusal, Rules, Scope
from fedskew.deploy.gate import closed
from fedskew.errors import FedskewError, RunError
from fedskew.runtime.flower.policy import read_policy
from fedskew.runtime.flower.undocumented import GET_APP, app_in

HASH = re.compile(r"[0-9a-f]{64}")
END_OF_RUN = 403  # a SuperNode passes such a run over and stays for the others


def read_list(path: Path) -> list[str]:
    """The hashes of a list: one a line, the rest of the line is for people."""
    try:
        lines = path.read_text(encoding="utf8").splitlines()
    except (OSError, ValueError) as error:
        raise RunError(str(path), f"cannot be read ({error})", "No app runs without it") from None
    words = [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]
    wrong = next((word for word in words if not HASH.fullmatch(word)), None)
    if wrong is not None:
        raise RunError(
            str(path), f"'{wrong[:70]}' is no SHA-256", "fedskew flower approve adds apps"
        )
    return words


def hash_of(app: Path) -> str:
    """The SHA-256 of an app as Flower sends it."""
    if not (app / "pyproject.toml").is_file():
        raise RunError(str(app), "is not a Flower app", "Give the folder with its pyproject.toml")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [program("flwr"), "build", "--app", str(app.resolve())],
            cwd=folder,
            env=environment(Path(folder) / "home"),
            capture_output=True,
            text=True,
            check=False,
        )
        bundles = list(Path(folder).glob("*.fab"))
        if done.returncode != 0 or len(bundles) != 1:
            said = " ".join((done.stdout + done.stderr).split())[-300:]
            raise RunError(str(app), f"cannot be bundled: {said}", "Ask who wrote it")
        return hashlib.sha256(bundles[0].read_bytes()).hexdigest()


def approve(policy: Path, app: Path) -> tuple[str, Path]:
    """Put an app on the list of a policy: (its hash, the list)."""
    path = read_policy(policy).apps
    if path is None:
        remedy = f"Write into it: apps = '{policy.stem}.apps'"
        raise RunError(str(policy), "lets every app run that the server sends", remedy)
    known, new = read_list(path), hash_of(app)
    if new not in known:
        with open(path, "a", encoding="utf8") as file:
            today = datetime.now(UTC).date().isoformat()
            file.write(f"{new}  {app.resolve().name}, approved {today}\n")
    return new, path


def approved_only(policy: Path) -> Rules:
    """What the gate at a hospital lets through; the policy is read anew for every app."""
    return Rules(_own_node, replies={GET_APP: lambda reply: not_approved(reply, policy)})


def _own_node(scope: Scope, now: float) -> Refusal | None:
    return closed(scope)


def not_approved(reply: bytes, policy: Path) -> Refusal | None:
    """Whether an app that comes in is on nobody's list here. Its bytes count, not what is said of
    them.
    """
    from google.protobuf.message import DecodeError

    try:
        found = hashlib.sha256(app_in(reply)).hexdigest()
        path = read_policy(policy).apps
        if path is None or found in read_list(path):
            return None
        why = f"the app {found} is not on the list {path.name}: it is not run"
    except (DecodeError, FedskewError) as error:
        why = f"no app is run: {error}"
    return Refusal(END_OF_RUN, why, "fedskew flower approve")
