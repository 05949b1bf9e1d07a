"""What a round costs in joules: modelled from simulated times, or measured on this machine.

docs/methods.md 9.3, after paper 002: e_i = P_i T_i, added up over clients and rounds. Modelled: P_i
is ``watts`` (30 W where nothing is known) while a client computes and ``transmit_watts`` (1 W)
while its radio sends; receiving and waiting cost nothing. Measured: clients train alone, one at a
time, and a meter is read before and after each: the processor's own counter (RAPL) where it can be
read, wall time x watts where not, or CodeCarbon.

Differs from paper 002: it read CodeCarbon around a whole server with two GPUs, so its figures hold
idle power and scheduling; only ratios at the same number of clients can be compared with ours.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from fedskew.errors import RunError
from fedskew.types import Population

WATTS, TRANSMIT_WATTS = 30.0, 1.0  # where a population does not say
RAPL = Path("/sys/class/powercap")
JOULES_PER_WH, JOULES_PER_KWH = 3600.0, 3.6e6


def modelled_joules(
    population: Population, computing: Mapping[int, float], sending: Mapping[int, float]
) -> float:
    """Energy of clients that compute and send for so many seconds.

    >>> import numpy as np
    >>> modelled_joules(Population(np.array([5])), {0: 2.0}, {0: 3.0})
    63.0
    """
    watts, radio = population.watts, population.transmit_watts
    compute = sum((WATTS if watts is None else float(watts[c])) * s for c, s in computing.items())
    transmit = sum(
        (TRANSMIT_WATTS if radio is None else float(radio[c])) * s for c, s in sending.items()
    )
    return compute + transmit


def watt_hours(joules: float) -> float:
    """Joules in the unit of papers and bills.

    >>> watt_hours(7200.0)
    2.0
    """
    return joules / JOULES_PER_WH


class Meter(Protocol):
    """Something that knows how much energy went by between two moments."""

    name: str

    def start(self) -> None:
        """The first moment."""

    def stop(self, watts: float) -> float:
        """Joules since then; ``watts`` is what this client draws if the meter cannot know."""


class WallMeter:
    """Wall time x configured watts: for machines whose processor does not tell."""

    name = "wall time x watts"

    def start(self) -> None:
        """Look at the clock."""
        self._began = time.perf_counter()

    def stop(self, watts: float) -> float:
        """Seconds since then x watts."""
        return watts * (time.perf_counter() - self._began)


class RaplMeter:
    """The energy counters of the processor packages (Linux powercap): of all that runs on them."""

    name = "RAPL"

    def __init__(self, folder: Path = RAPL) -> None:
        self._counters = [
            p / "energy_uj" for p in sorted(folder.glob("intel-rapl:*")) if p.name.count(":") == 1
        ]
        self._ranges = [
            _microjoules(counter.with_name("max_energy_range_uj")) for counter in self._counters
        ]
        self.start()

    def start(self) -> None:
        """Read every package."""
        self._before = [_microjoules(counter) for counter in self._counters]

    def stop(self, watts: float) -> float:
        """Joules of all packages since then; a counter that restarted from zero is made good."""
        after = [_microjoules(counter) for counter in self._counters]
        spent = [
            a - b if a >= b else a - b + full
            for a, b, full in zip(after, self._before, self._ranges, strict=True)
        ]
        return sum(spent) / 1e6

    @property
    def works(self) -> bool:
        """Whether there is a package to read."""
        return bool(self._counters)


def _microjoules(path: Path) -> int:
    return int(path.read_text())


class CodeCarbonMeter:
    """CodeCarbon's estimate for processor, memory and graphics cards of the whole machine."""

    name = "CodeCarbon"

    def __init__(self) -> None:
        try:
            module: Any = importlib.import_module("codecarbon")
        except ImportError:
            raise RunError(
                "run.energy", "CodeCarbon is not installed", "Run: pip install 'fedskew[energy]'"
            ) from None
        # Offline: the energy does not depend on the country, and nothing is sent or looked up.
        self._tracker = module.OfflineEmissionsTracker(
            country_iso_code="USA", save_to_file=False, log_level="error"
        )

    def start(self) -> None:
        """Begin a task."""
        self._tracker.start_task()

    def stop(self, watts: float) -> float:
        """Joules of the task."""
        return float(self._tracker.stop_task().energy_consumed) * JOULES_PER_KWH


def meter_for(energy: str, *, folder: Path = RAPL) -> Meter | None:
    """The best meter for ``run.energy``: none if modelled, the processor's if it can be read."""
    if energy == "modelled":
        return None
    if energy == "codecarbon":
        return CodeCarbonMeter()
    try:
        rapl = RaplMeter(folder)
        return rapl if rapl.works else WallMeter()
    except (OSError, ValueError):  # the counters are there, but only the superuser may read them
        return WallMeter()
