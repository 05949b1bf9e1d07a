"""A ServerApp ends with its SuperLink.

Flower starts it from a SuperExec, and that from the SuperLink. When the SuperLink is killed, the
SuperExec may sleep for 20 s between two attempts to reach it, and the ServerApp tries again for
ever: started anew meanwhile, the SuperLink would find a run that it calls failed and that still
plays, in the very folder where ``--resume`` is to go on. Every finished round is on disk, so the
ServerApp can end at any moment.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from fedskew.runtime.flower.undocumented import SUPERLINK

NAMES = (SUPERLINK, b"guarded_superlink")  # Flower's, and ours around it
LOOK_SECONDS = 0.25


def end_with_superlink() -> None:
    """Watch the SuperExec and the SuperLink above this process from now on, and end with either
    of them.
    """
    born = lineage()

    def watch() -> None:
        while lineage() == born:
            time.sleep(LOOK_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def lineage() -> tuple[int, int]:
    """(parent, the SuperLink above it or 0); a child gets another parent in the moment its own one
    dies.

    >>> lineage() == lineage(), lineage()[0] == os.getppid()
    (True, True)
    """
    parent = os.getppid()
    above = parent_of(parent)
    return parent, above if is_superlink(above) else 0


def parent_of(pid: int) -> int:
    """The parent of a process; 0 where the kernel does not tell.

    >>> parent_of(os.getpid()) in (os.getppid(), 0)
    True
    """
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def is_superlink(pid: int) -> bool:
    """Whether a process is a SuperLink. A SuperExec started by hand has a shell above it, which
    may well end before it.
    """
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return any(name in command for name in NAMES)
    except OSError:
        return False
