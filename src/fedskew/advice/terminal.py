"""What ``fedskew advise`` prints."""

from __future__ import annotations

import math

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedskew.advice.adviser import Advice, Choice
from fedskew.advice.bank import BASE
from fedskew.advice.wording import budget_text
from fedskew.compare.amounts import amount


def show_advice(advice: Advice, console: Console) -> None:
    """The answer, the ranking, other answers, the nearest federations, what was assumed."""
    _say(console, advice.paragraph, "bold")
    console.print()
    console.print(_ranking(advice))
    console.print()
    for line in advice.changes:
        _say(console, f"another answer, {line}")
    if not advice.changes:
        _say(console, "no other budget (an eighth to eight times) or permission changes the answer")
    console.print()
    console.print(_nearest(advice))
    for method, why in advice.left_out.items():
        _say(console, f"left out: {method}: {why}", "dim")
    for text in advice.subject.assumed:
        _say(console, f"assumed: {text}", "dim")
    for note in advice.subject.counts.notes:
        _say(console, f"note: {note}", "dim")


def _ranking(advice: Advice) -> Table:
    within = f"within {budget_text(advice.budget)}; allowed: {advice.allowed.text}"
    heads = (
        *("method", "accuracy (90 %)", "against FedAvg (90 %)", "rounds", "bytes", "time"),
        *("energy", "each client discloses"),
    )
    table = Table(
        *heads, title=escape(within), title_justify="left", show_edge=False, pad_edge=False
    )
    for choice in advice.choices:
        table.add_row(*(escape(text) for text in _row(choice)))
    return table


def _row(choice: Choice) -> tuple[str, ...]:
    mark = " †" if "personal" in choice.wanted else ""
    gain = f"{100 * choice.gain:+.1f} [{100 * choice.gain_low:+.1f}, {100 * choice.gain_high:+.1f}]"
    none = choice.method == BASE or math.isnan(choice.gain)
    return (
        f"{choice.method}{mark}",
        f"{choice.accuracy:.3f} [{choice.low:.3f}, {choice.high:.3f}]",
        "–" if none else gain,
        str(choice.rounds),
        amount(choice.spent["bytes"], "bytes"),
        amount(choice.spent["time"], "seconds"),
        amount(choice.spent["energy"], "joules"),
        "; ".join([*choice.discloses, *([choice.note] if choice.note else [])]),
    )


def _nearest(advice: Advice) -> Table:
    table = Table(
        *("nearest in the bank", "distance", "best within the same budget"),
        show_edge=False,
        pad_edge=False,
    )
    for one in advice.nearest:
        best = ", ".join(f"{name} {value:.3f}" for name, value in one.best.items())
        table.add_row(escape(one.federation.text), f"{one.distance:.2f}", escape(best))
    return table


def _say(console: Console, text: str, style: str = "") -> None:
    """A line of text, names in it taken literally; not broken up in a file or a pipe."""
    console.print(
        text, style=style, markup=False, highlight=False, soft_wrap=not console.is_terminal
    )
