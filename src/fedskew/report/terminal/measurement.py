"""What ``fedskew measure`` and ``fedskew privacy`` print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from fedskew.measure.measurement import Measurement
from fedskew.measure.privacy import PrivacyTable
from fedskew.measure.wording import thresholds_text, verdict
from fedskew.report.terminal.measurement_tables import (
    facts_table,
    federations_table,
    group_notes,
    groups_table,
    noise_table,
    skew_table,
)

PRIVACY_NOTES = (
    "recall, precision: of 'this client has this class', said from a share of 0.5 / C up, "
    "so below 1 for small shares anyway",
    "ARI: agreement with the groups found on exact counts; "
    "the last row has no noise but other random draws in the clustering",
    "mean ± standard deviation; the noise cannot be seeded, another run differs within the spread",
)


def show_measurement(measurement: Measurement, saved: Sequence[Path], console: Console) -> None:
    """Three tables, what to know about them, where the figures are, and the verdict."""
    for table in (facts_table(measurement), skew_table(measurement), groups_table(measurement)):
        console.print(table)
        console.print()
    for note in (*group_notes(measurement), *measurement.counts.notes):
        _say(console, f"note: {note}", style="dim")
    _say(console, thresholds_text(), style="dim")
    if saved:
        names = ", ".join(path.name for path in saved)
        _say(
            console,
            f"figures, sorted by {measurement.chosen_grouping.how}: {names} in {saved[0].parent}",
            style="dim",
        )
    console.print()
    _say(console, verdict(measurement), style="bold")


def show_measurements(measured: Sequence[Measurement], console: Console) -> None:
    """A line per federation, what to know about them, and how to see more of one."""
    console.print(federations_table(measured))
    console.print()
    notes = dict.fromkeys(note for one in measured for note in one.counts.notes)
    for note in notes:
        _say(console, f"note: {note}", style="dim")
    _say(console, thresholds_text(), style="dim")
    _say(console, "all about one of them: fedskew measure, with the folder of its run")


def show_privacy(table: PrivacyTable, console: Console) -> None:
    """The table of noise, and how to read it."""
    noise = f"{table.mechanism} noise, {table.neighbours}, {table.repeats} releases each"
    _say(console, f"{table.counts.source}; {noise}")
    console.print()
    console.print(noise_table(table))
    console.print()
    for note in table.counts.notes:
        _say(console, f"note: {note}", style="dim")
    for line in PRIVACY_NOTES:
        _say(console, line, style="dim")


def _say(console: Console, text: str, style: str = "") -> None:
    """A line of text, names in it taken literally; not broken up in a file or a pipe."""
    console.print(
        text, style=style, markup=False, highlight=False, soft_wrap=not console.is_terminal
    )
