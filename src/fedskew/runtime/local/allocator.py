"""Memory that is freed now and needed again in the next step should stay with the process."""

from __future__ import annotations

import ctypes
import os


def tune_allocator() -> None:
    """Let glibc keep freed blocks (the next batch's activations, the next round's models) instead
    of giving them back.

    Otherwise every block above 128 kB is mapped and zeroed by the kernel anew: 335-656 page faults
    a step on a small CNN.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        mallopt(-3, 32 << 20)  # M_MMAP_THRESHOLD: its largest legal value
        mallopt(-1, 512 << 20)  # M_TRIM_THRESHOLD
