"""``/metrics`` for Prometheus and ``/health`` for whoever restarts things, over HTTP.

A process of its own that reads what runs leave on disk (:mod:`run_watch`) and whether the processes
of a fleet are there. Nothing is read unless somebody asks, and at most once a second.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fedskew.deploy.addresses import LOOPBACK
from fedskew.deploy.fleet_sheet import SHEET, read_fleet
from fedskew.deploy.metrics import CONTENT_TYPE, exposition, names_of
from fedskew.deploy.run_list import run_folders
from fedskew.deploy.run_watch import RunWatch, find_runs
from fedskew.errors import FedskewError, RunError

FRESH_SECONDS = 1.0
SLOWEST_SECONDS = 10.0  # for somebody to say what he wants


@dataclass
class Monitor:
    """What there is to say of some runs, and of the fleet of a folder if there is one."""

    home: Path
    places: Sequence[Path] = ()  # where runs are; none: those submitted to this fleet
    stale_seconds: float = 0.0  # an unfinished run without a round for so long is ill; 0: never
    watches: dict[Path, RunWatch] = field(default_factory=dict)
    processes: dict[str, bool] = field(default_factory=dict)
    looked: float = float("-inf")
    lock: threading.Lock = field(default_factory=threading.Lock)

    def look(self) -> None:
        """Read what is new."""
        with self.lock:
            now = time.monotonic()
            if now - self.looked < FRESH_SECONDS:
                return
            self.looked = now
            folders = find_runs(self.places or run_folders(self.home).values())
            self.watches = {f: self.watches.get(f) or RunWatch(f) for f in folders}
            for watch in self.watches.values():
                watch.look()
            self.processes = _processes(self.home)

    @property
    def runs(self) -> Mapping[str, RunWatch]:
        """By a name short enough for a label."""
        return dict(zip(names_of(list(self.watches)), self.watches.values(), strict=True))

    def metrics(self) -> str:
        """For Prometheus."""
        self.look()
        return exposition(self.runs, self.processes)

    def health(self) -> dict[str, Any]:
        """What is ill, and how far every run is."""
        self.look()
        problems = [f"{name} is not running" for name, up in self.processes.items() if not up]
        for name, watch in self.runs.items():
            problems += self._ills(name, watch)
        return {
            "status": "failing" if problems else "ok",
            "problems": problems,
            "processes": self.processes,
            "runs": {name: _state(watch) for name, watch in self.runs.items()},
        }

    def _ills(self, name: str, watch: RunWatch) -> list[str]:
        ills = [f"{name}: a record is damaged"] if watch.damaged else []
        quiet = time.time() - watch.last_change
        if self.stale_seconds and not watch.finished and quiet > self.stale_seconds:
            since = "yet" if not watch.last_change else f"for {quiet:.0f} s"
            ills.append(f"{name}: no round {since}")
        return ills


def _processes(home: Path) -> dict[str, bool]:
    if not (home / SHEET).is_file():
        return {}
    try:
        return {process.name: process.alive for process in read_fleet(home).processes}
    except FedskewError:  # it is being written just now
        return {}


def _state(watch: RunWatch) -> dict[str, Any]:
    found = watch.figures
    return {
        "round": found.round,
        "planned": watch.planned,
        "finished": watch.finished,
        "accuracy": None if found.accuracy != found.accuracy else found.accuracy,
        "seconds_since_round": round(time.time() - watch.last_change)
        if watch.last_change
        else None,
    }


# ---------------------------------------------------------------- over HTTP


def server(monitor: Monitor, host: str = LOOPBACK, port: int = 0) -> ThreadingHTTPServer:
    """Listens when this returns; ``serve_forever`` answers."""
    try:
        return ThreadingHTTPServer((host, port), _handler(monitor, host))
    except OSError as error:
        what = f"cannot be listened on ({error.strerror})"
        raise RunError(f"{host}:{port}", what, "Give another --port") from None


def _handler(monitor: Monitor, bound: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = SLOWEST_SECONDS

        def do_GET(self) -> None:
            """Two pages."""
            host = self.headers.get("Host", "").rpartition(":")[0]
            # another site's name that points here must not read the runs through a browser
            if bound == LOOPBACK and host not in (LOOPBACK, "localhost"):
                return self._send(403, "text/plain", "wrong host\n")
            if self.path == "/metrics":
                return self._send(200, CONTENT_TYPE, monitor.metrics())
            if self.path == "/health":
                found = monitor.health()
                status = 200 if found["status"] == "ok" else 503
                return self._send(status, "application/json", json.dumps(found) + "\n")
            return self._send(404, "text/plain", "there are /metrics and /health\n")

        def _send(self, status: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Being asked is no news."""

    return Handler
