"""The tables that ``fedskew run`` and ``fedskew show`` print."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rich.markup import escape
from rich.table import Table

SEVERAL = ("recipe", "seed", "final accuracy", "at clients", "rounds", "MB down", "MB up")
"""What a table of several runs always says; all the rest is in --json."""
IF_ROOM = ("failures", "Wh", "sim. s")
WIDTH = 80


def summary_table(summaries: Sequence[Mapping[str, Any]]) -> Table:
    """The results of one run, a fact per line, or of several, a run per line."""
    facts = [_facts(summary) for summary in summaries]
    if len(facts) == 1:
        table = Table(show_header=False, show_edge=False, pad_edge=False, box=None)
        for name, value in facts[0].items():
            table.add_row(name, value, style="bold" if name == "final accuracy" else None)
        return table
    table = Table(show_edge=False, pad_edge=False, box=None)
    shown = _fitting(facts)
    for name in shown:
        justify: Literal["left", "right"] = "left" if name == "recipe" else "right"
        table.add_column(_heading(name), justify=justify, no_wrap=True)
    for row in facts:
        table.add_row(*(row[name] for name in shown))
    return table


def _heading(name: str) -> str:
    return name.removeprefix("final ").removeprefix("rounds ")


def _fitting(facts: Sequence[Mapping[str, str]]) -> list[str]:
    """The columns that 80 characters have room for, names of recipes uncut."""
    targets = [name for name in facts[0] if name.startswith("rounds to ")]
    wide = {name: max(len(_heading(name)), *(len(f[name]) for f in facts)) for name in facts[0]}
    shown = [*SEVERAL, *targets]
    for name in IF_ROOM:
        if sum(wide[one] + 2 for one in (*shown, name)) - 2 <= WIDTH:
            shown.append(name)
    return [name for name in facts[0] if name in shown]


def _facts(s: Mapping[str, Any]) -> dict[str, str]:
    return {
        "recipe": escape(s["name"]),
        "seed": str(s["seed"]),
        "final accuracy": _share(s["final_accuracy"]),
        "last round": _share(s["last_accuracy"]),
        "best": _share(s["best_accuracy"]),
        **_client_facts(s.get("client_accuracy")),
        "rounds": str(s["rounds"]),
        "MB down": f"{s['bytes_down'] / 1e6:.2f}",
        "MB up": f"{s['bytes_up'] / 1e6:.2f}",
        "seconds": f"{s['seconds']:.1f}",
        "sim. s": f"{s['simulated_seconds']:.1f}",
        "Wh": f"{s['wh']:.3f}",
        "failures": str(s["failures"]),
        "counted for less": str(s.get("notes", 0)),
        **(target_row(s["to_target"]) if "to_target" in s else {}),
        "records": escape(s["out"] or ""),
    }


def target_row(reached: Mapping[str, Any]) -> dict[str, str]:
    """What reaching a target took, from :meth:`ToTarget.as_dict`; ``-`` for a censored number."""

    def shown(key: str, scale: float, digits: int) -> str:
        return "-" if reached[key] is None else f"{reached[key] / scale:.{digits}f}"

    return {
        f"rounds to {reached['target']:g}": reached["text"],
        "MB to target": shown("bytes", 1e6, 2),
        "simulated s to target": shown("seconds", 1, 1),
        "Wh to target": shown("joules", 3600, 3),
    }


def _share(value: float | None) -> str:
    """A dash where there is no such figure: several models have no global accuracy."""
    return "-" if value is None or math.isnan(value) else f"{value:.4f}"


def _client_facts(figures: Mapping[str, Any] | None) -> dict[str, str]:
    """What clients have of it on their own test sets."""
    if figures is None:
        return {"at clients": "-", "AD ± SDAD": "-", "worst 10 %": "-"}
    return {
        "at clients": _share(figures["weighted"]) + _of_clients(figures),
        "AD ± SDAD": f"{_share(figures['ad'])} ± {_share(figures['sdad'])}",
        "worst 10 %": _share(figures["worst10"]),
    }


def _of_clients(figures: Mapping[str, Any]) -> str:
    """How many clients a figure covers, where it is not all of them."""
    excluded = figures.get("excluded", 0)
    tested = figures.get("clients", 0)
    return f" ({tested} of {tested + excluded} clients)" if excluded else ""
