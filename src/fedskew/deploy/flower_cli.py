"""Calls Flower's own programs: where they are, with which environment, and what they answer."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedskew.errors import RunError
from fedskew.runtime.flower.undocumented import POLL_VARIABLE
from fedskew.runtime.local.nursery import ONE_THREAD

CONNECTION = "fedskew"  # the name of our SuperLink in Flower's configuration
# how long one of Flower's commands may take: they start slowly on a busy machine
DEFAULT_SECONDS, SECONDS_VARIABLE = 120.0, "FEDSKEW_FLWR_SECONDS"
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def program(name: str) -> str:
    """One of Flower's programs, beside the Python that runs this."""
    path = Path(sys.executable).parent / name
    if not path.is_file():
        raise RunError(
            "fedskew flower", f"{name} is not installed", "Run: pip install 'fedskew[flower]'"
        )
    return str(path)


def environment(flower_home: Path) -> dict[str, str]:
    """Telemetry off unless the caller has switched it on, one thread per process, Flower's files
    in a folder of ours.
    """
    defaults = {**QUIET, **ONE_THREAD, POLL_VARIABLE: "0.5"}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {
        **defaults,
        **os.environ,
        "FLWR_HOME": str(flower_home),
        "PATH": path,
        "PYTHONUNBUFFERED": "1",
    }


def write_connection(flower_home: Path, address: str, authority: Path | None) -> None:
    """Tell Flower's command line where the SuperLink is."""
    secure = (
        "insecure = true"
        if authority is None
        else f"root-certificates = {json.dumps(str(authority))}"
    )
    flower_home.mkdir(parents=True, exist_ok=True)
    text = (
        f'[superlink]\ndefault = "{CONNECTION}"\n\n'
        f'[superlink.{CONNECTION}]\naddress = "{address}"\n{secure}\n'
    )
    (flower_home / "config.toml").write_text(text)


def call(flower_home: Path, *arguments: str) -> dict[str, Any]:
    """A ``flwr ... --format json`` command and its answer; what it complains about becomes one
    line.
    """
    seconds = float(os.environ.get(SECONDS_VARIABLE) or DEFAULT_SECONDS)
    command = [program("flwr"), *arguments, "--format", "json"]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            env=environment(flower_home),
        )
    except subprocess.TimeoutExpired:
        raise RunError(
            "flwr",
            f"'flwr {arguments[0]}' did not answer within {seconds:g} s",
            f"If the SuperLink is up but busy, give it longer: {SECONDS_VARIABLE}=600",
        ) from None
    answer = _json(done.stdout)
    if answer is None or not answer.get("success", True):
        said = _plain((answer or {}).get("error-message") or done.stderr or done.stdout)
        raise RunError(
            "flwr", f"'flwr {arguments[0]}' failed: {said}", "See: fedskew flower status"
        )
    return answer


def _json(text: str) -> dict[str, Any] | None:
    start = text.find("{")
    try:
        found = json.loads(text[start:]) if start >= 0 else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _plain(text: str) -> str:
    """Without frames, colours and line breaks."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯─]", " ", text).split())[-300:]


def check_reachable(address: str, authority: Path | None, seconds: float = 20.0) -> None:
    """Whether somebody answers at this address and, with a certificate, proves to be who it
    says.
    """
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=seconds) as raw:
            if authority is not None:
                context = ssl.create_default_context(cafile=str(authority))
                with context.wrap_socket(raw, server_hostname=host):
                    pass
    except ssl.SSLCertVerificationError as error:
        what = f"its certificate is not accepted ({error.verify_message})"
        raise RunError(
            f"SuperLink {address}", what, "Use the ca.crt that was made with it"
        ) from None
    except ssl.SSLError:
        raise RunError(
            f"SuperLink {address}",
            "it does not speak TLS",
            "Start it with --tls, or connect without",
        ) from None
    except FileNotFoundError:
        raise RunError(
            f"SuperLink {address}", f"there is no file {authority}", "Give the ca.crt made with it"
        ) from None
    except (OSError, ValueError) as error:
        raise RunError(
            f"SuperLink {address}", f"nobody answers ({error})", "Start one: fedskew flower up"
        ) from None


def status_of(address: str, authority: Path | None, method: str, path: str) -> int:
    """The HTTP status with which somebody at this address answers an empty request."""
    context = None if authority is None else ssl.create_default_context(cafile=str(authority))
    connection = (
        http.client.HTTPConnection(address, timeout=30)
        if context is None
        else http.client.HTTPSConnection(address, timeout=30, context=context)
    )
    try:
        connection.request(method, path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise RunError(
            f"SuperLink {address}", f"does not answer ({error})", "See its log"
        ) from None
    finally:
        connection.close()


def run_config(values: Mapping[str, Any]) -> list[str]:
    """``--run-config`` with these values, in TOML's spelling.

    >>> run_config({"seed": 3, "resume": True, "out": "a b"})
    ['--run-config', 'seed=3 resume=true out="a b"']
    """
    return ["--run-config", " ".join(f"{key}={json.dumps(value)}" for key, value in values.items())]


def list_runs(flower_home: Path, run_id: str | None = None) -> Sequence[Mapping[str, Any]]:
    """What Flower knows of its runs."""
    runs: list[Mapping[str, Any]] = call(
        flower_home, "ls", CONNECTION, *(["--run-id", run_id] if run_id else [])
    )["runs"]
    return runs


def log_lines(flower_home: Path, run_id: str, *, follow: bool) -> Iterator[str]:
    """What the ServerApp of a run has printed so far; with ``follow`` also what it prints from now
    on, until Flower ends the stream.
    """
    way = "--stream" if follow else "--show"
    with subprocess.Popen(
        [program("flwr"), "log", run_id, CONNECTION, way],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(flower_home),
    ) as log:
        try:
            for line in log.stdout or ():
                yield line.rstrip()
        finally:
            log.terminate()
