"""The report while runs go on: the same page on the loopback address, read from run folders.

Nothing is computed unless a browser asks, and then at most a tenth of the time, so that watching
does not slow the runs down.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fedskew.compare.comparison import Comparison
from fedskew.errors import FedskewError
from fedskew.experiment.figures import Resource
from fedskew.experiment.run import Run
from fedskew.measure.payload import plain
from fedskew.records import RECIPE, RUN, read_references
from fedskew.report.page import page_html, payload_of
from fedskew.report.page.federation import Groups

SHARE = 0.1  # of the time may go into making the page
SLOWEST_SECONDS = 4.0  # a newer state at least this often, whatever it costs
LINGER_SECONDS = 3.0  # after the runs: for a browser that is watching to fetch the last state


class Watched:
    """The newest payload of some run folders; made again only when enough time has passed."""

    def __init__(
        self,
        folders: Sequence[Path],
        labels: Mapping[str, str] | None = None,
        *,
        budget: Resource = "rounds",
        target: float | None = None,
        commands: Sequence[str] = (),
        references: bool | None = None,
    ) -> None:
        self._folders = folders
        self._labels = labels
        self._references = references
        self._options: Mapping[str, Any] = {
            "budget": budget,
            "target": target,
            "commands": commands,
        }
        self._done: dict[Path, Run] = {}
        self._groups = Groups()
        self._lock = threading.Lock()
        self._payload: dict[str, Any] | None = None
        self._version, self._next = 0, 0.0
        self.over = False  # the runs have ended: the next payload is the last
        self.sent_last = False
        self.asked = 0.0  # when a browser last asked

    def newest(self) -> tuple[int, dict[str, Any] | None]:
        """(version, payload); None before the first round of any run."""
        with self._lock:
            began = self.asked = time.monotonic()
            if began >= self._next or (self.over and not self.sent_last):
                self._make()
                self._next = time.monotonic() + min(
                    SLOWEST_SECONDS, max(0.5, (time.monotonic() - began) / SHARE)
                )
            return self._version, self._payload

    def _make(self) -> None:
        last = self.over
        runs = [run for folder in self._folders if (run := self._read(folder)) is not None]
        if runs:
            try:
                comparison = Comparison.of(runs, self._labels, references=self._references)
                self._payload = payload_of(
                    comparison,
                    live=not last,
                    groups=self._groups,
                    planned=len(self._folders),
                    **self._options,
                )
                self._version += 1
            except FedskewError as error:
                self._payload = (
                    (self._payload or {}) | {"notes": [str(error)]} if self._payload else None
                )
        self.sent_last = last

    def _read(self, folder: Path) -> Run | None:
        if folder in self._done:
            return replace(self._done[folder], references=read_references(folder))
        if not (folder / RUN).is_file() or not (folder / RECIPE).is_file():
            return None
        try:
            run = Run.read(folder)
        except FedskewError:  # a file that is being written just now
            return None
        if run.finished:
            self._done[folder] = run
        return run if run.rounds else None


WAITING = (
    "<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=1>"
    "<title>fedskew</title><p>Waiting for the first round"
)


def _handler(watched: Watched) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host = self.headers.get("Host", "").rpartition(":")[0]
            # another site's name that points here must not read the runs
            if host not in ("127.0.0.1", "localhost"):
                return self._send(403, "text/plain", b"wrong host")
            version, payload = watched.newest()
            if self.path == "/":
                page = WAITING if payload is None else page_html(payload)
                return self._send(200, "text/html; charset=utf-8", page.encode())
            if self.path != "/data.json" or payload is None:
                return self._send(404, "text/plain", b"not here")
            tag = f'"{version}"'
            if self.headers.get("If-None-Match") == tag:
                return self._send(304, "application/json", b"", tag)
            return self._send(
                200,
                "application/json",
                json.dumps(plain(payload), separators=(",", ":")).encode(),
                tag,
            )

        def _send(self, status: int, kind: str, body: bytes, tag: str = "") -> None:
            self.send_response(status)
            for name, value in {
                "Content-Type": kind,
                "Content-Length": str(len(body)),
                "Cache-Control": "no-store",
            }.items():
                self.send_header(name, value)
            if tag:
                self.send_header("ETag", tag)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Silence: the terminal belongs to the progress display."""

    return Handler


@contextmanager
def live_page(watched: Watched, say: Callable[[str], None]) -> Iterator[str]:
    """Serve the page on a free loopback port during the block; ``say`` gets the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(watched))
    server.daemon_threads = True
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True
    )
    thread.start()
    address = f"http://127.0.0.1:{server.server_address[1]}/"
    say(address)
    try:
        yield address
    finally:
        watched.over = True
        deadline = time.monotonic() + LINGER_SECONDS
        while (
            time.monotonic() < deadline
            and not watched.sent_last
            and time.monotonic() - watched.asked < LINGER_SECONDS
        ):
            time.sleep(0.05)
        time.sleep(0.2 if watched.asked else 0.0)  # the last answer is still on its way
        server.shutdown()
        server.server_close()
        thread.join()
