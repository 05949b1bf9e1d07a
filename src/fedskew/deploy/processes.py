"""Processes that outlive the command that starts them, and are stopped by exactly that identity:
number and time of birth.

A process number alone is not enough: after a reboot, or when numbers wrap around, it may be
somebody else's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GRACE_SECONDS = 10.0
END_BYTES = 1 << 20  # of a log
# started by this very process: it has to collect them when they end
_CHILDREN: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True)
class Started:
    """One process: what it is called here, its number, when it was born, where its output goes."""

    name: str
    pid: int
    born: str
    log: str

    @property
    def alive(self) -> bool:
        """Whether exactly this process still runs."""
        return birth_of(self.pid) == self.born != ""


def birth_of(pid: int) -> str:
    """When a process was started, as the kernel tells it; "" if there is none, or only its remains.

    >>> birth_of(os.getpid()) == birth_of(os.getpid()) != ""
    True
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (
            ""
            if fields[0] == "Z"
            else f"{fields[19]}@{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"
        )
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return ""
    except ProcessLookupError:
        return ""
    done = subprocess.run(
        ["ps", "-p", str(pid), "-o", "lstart="], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def start(name: str, command: Sequence[str], log: Path, env: Mapping[str, str]) -> Started:
    """Start a process in a session of its own, output into ``log`` (readable by its owner only)."""
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(env),
            start_new_session=True,
        )
    _CHILDREN[child.pid] = child
    return Started(name, child.pid, birth_of(child.pid), str(log))


def stop(processes: Sequence[Started], grace_seconds: float = GRACE_SECONDS) -> list[str]:
    """End these processes and all that they have started, politely first; returns the names of
    those that were running.
    """
    running = [process for process in processes if process.alive]
    family = [*running, *(child for process in running for child in descendants(process.pid))]
    for process in running:
        # Flower's parts end with their parent; given a moment they do it in order
        _signal(process, signal.SIGTERM)
    until = time.monotonic() + grace_seconds
    while time.monotonic() < until and any(process.alive for process in family):
        reap()
        time.sleep(0.05)
    for process in family:
        _signal(process, signal.SIGKILL)
    time.sleep(0.05)
    reap()
    return [process.name for process in running]


def descendants(pid: int) -> list[Started]:
    """Children of a process, their children and so on, each with its birth (Linux; elsewhere
    nobody).

    >>> child = subprocess.Popen(["sleep", "60"])
    >>> child.pid in [found.pid for found in descendants(os.getpid())]
    True
    >>> child.kill(); child.wait()
    -9
    """
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents.setdefault(int(entry.read_text().rpartition(")")[2].split()[1]), []).append(
                int(entry.parent.name)
            )
    found, waiting = [], [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += [Started(f"child {child}", child, birth_of(child), "") for child in children]
        waiting += children
    return found


def _signal(process: Started, number: signal.Signals) -> None:
    if process.alive:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, number)


def reap() -> None:
    """Collect children of this very process that have ended; until then others believe that they
    are still there.
    """
    for pid in [pid for pid, child in _CHILDREN.items() if child.poll() is not None]:
        del _CHILDREN[pid]


def last_lines(log: str, count: int = 3) -> str:
    """The end of a log, in one line."""
    return " | ".join(log_end(log, count))[-500:]


def log_end(log: str, count: int) -> list[str]:
    """The last lines of a log that say something; of a long one only the end is read."""
    with contextlib.suppress(OSError), open(log, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - END_BYTES))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
        return [line for line in lines if line][-count:]
    return []
