"""Processes that outlive the command that starts them, and are stopped by exactly that identity: number and time of birth.

A process number alone is not enough: after a reboot, or when numbers wrap around, it may be somebody else's.
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


@dataclass(frozen=True)
class Started:
    """One process: what it is called here, its number and group, when it was born, where its output goes."""

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
        return "" if fields[0] == "Z" else f"{fields[19]}@{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return ""
    except ProcessLookupError:
        return ""
    done = subprocess.run(["ps", "-p", str(pid), "-o", "lstart="], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def start(name: str, command: Sequence[str], log: Path, env: Mapping[str, str]) -> Started:
    """Start a process in a session of its own, output into ``log`` (readable by its owner only)."""
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as output:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=dict(env), start_new_session=True
        )
    return Started(name, child.pid, birth_of(child.pid), str(log))


def stop(processes: Sequence[Started], grace_seconds: float = GRACE_SECONDS) -> list[str]:
    """End these processes and the groups they lead, politely first; returns the names of those that were still running."""
    running = [process for process in processes if process.alive]
    groups = {process.pid for process in running}
    for group in groups:
        _signal(group, signal.SIGTERM)
    until = time.monotonic() + grace_seconds
    while time.monotonic() < until and any(process.alive for process in running):
        _reap(running)
        time.sleep(0.05)
    for group in groups:
        _signal(group, signal.SIGKILL)  # also children that stayed behind: they are in the group of the one we started
    _reap(running)
    return [process.name for process in running]


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _reap(processes: Sequence[Started]) -> None:
    """Collect those that are children of this very process, or they would stay behind as zombies."""
    for process in processes:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)


def last_lines(log: str, count: int = 3) -> str:
    """The end of a log, in one line."""
    with contextlib.suppress(OSError):
        lines = [line.strip() for line in Path(log).read_text(errors="replace").splitlines() if line.strip()]
        return " | ".join(lines[-count:])[-500:]
    return ""
