"""What a run that has ended says: how good its models are, and its bytes against Flower's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from fedskew.cli.flower.group import out_console, say
from fedskew.deploy.traffic import FLEET, Direction, compare
from fedskew.records import RESULT, read_json


def report(folder: Path, run: Mapping[str, Any], *, simulated: bool) -> None:
    """The end of a run, in some lines."""
    if not (folder / FLEET).is_file() or not (folder / RESULT).is_file():
        say(f"records are on the SuperLink's machine in {folder}")
        return
    result = read_json(folder / RESULT)
    say(f"{accuracy_text(result)}, {result['rounds']} rounds, records in {folder}")
    if str(read_json(folder / FLEET)["runs"][-1]["flower_run"]) != str(run["run-id"]):
        say("all rounds were there already: nothing was left to do")
    elif simulated:
        say("Flower counts no bytes in a simulation")
    else:
        out_console.print(traffic_table(compare(folder, [run])))


def accuracy_text(result: Mapping[str, Any]) -> str:
    """How good the models are: the one global model, or else the clients' own."""
    if result["final_accuracy"] is not None:
        return f"final accuracy {result['final_accuracy']:.4f}"
    at_clients = (result["client_accuracy"] or {}).get("weighted")
    return "not tested" if at_clients is None else f"accuracy at clients {at_clients:.4f}"


def traffic_table(found: Mapping[str, Direction]) -> Table:
    """Our bytes and Flower's, side by side."""
    table = Table("bytes", show_edge=False, pad_edge=False, box=None)
    columns = {
        "ledger": "ledger",
        "uncharged": "tests + d2d",
        "unsent": "not sent",
        "messages": "messages",
        "overhead": "stated overhead",
        "flower": "Flower",
    }
    if not any(row.unsent for row in found.values()):
        del columns["unsent"]
    for title in (*columns.values(), "difference"):
        table.add_column(title)
    for way, row in found.items():
        cells = [f"{getattr(row, name):,}" for name in columns]
        table.add_row(way, *cells, f"{100 * row.difference:+.1f} %")
    return table
