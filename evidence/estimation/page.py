"""Turns ``results.json`` and the words of ``reading.md`` into the page ``README.md``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
COLUMNS = {
    "eq7_raw": "eq7 raw",
    "sqrt_raw": "√ raw",
    "eq7_delta": "eq7 Δ",
    "sqrt_delta": "√ Δ",
    "bias_linear": "bias-linear",
    "rlu": "RLU",
    "bias_start": "bias-linear s₀",
    "uniform": "uniform",
}
# what tells the cells of one table apart
CELL = ("dataset", "split", "epochs", "lr", "init", "pixels")
# METHODS 8.3: (split, E, lr, start) -> eq7 raw, √ raw, eq7 Δ, √ Δ, bias-linear, RLU
METHODS: dict[tuple[str, int, float, str], tuple[float, ...]] = {
    ("Dir .5", 1, 0.01, "bacsa"): (0.258, 0.359, 0.366, 0.206, 0.055, 0.056),
    ("Dir .5", 5, 0.01, "bacsa"): (0.223, 0.163, 0.350, 0.171, 0.063, 0.028),
    ("Dir .5", 5, 0.01, "glorot"): (0.437, 0.444, 0.343, 0.192, 0.101, 0.037),
    ("Dir .1", 5, 0.01, "bacsa"): (0.193, 0.327, 0.203, 0.080, 0.074, 0.017),
    ("Dir .1", 5, 0.01, "glorot"): (0.671, 0.685, 0.205, 0.096, 0.130, 0.027),
    ("Dir .5", 5, 0.1, "bacsa"): (0.171, 0.105, 0.186, 0.112, 0.299, 0.118),
    ("Dir .5", 20, 0.1, "bacsa"): (0.110, 0.172, 0.111, 0.164, 0.416, 0.231),
    ("CCDD 2", 5, 0.01, "bacsa"): (0.067, 0.338, 0.030, 0.016, 0.070, 0.002),
    ("CCDD 2", 5, 0.01, "glorot"): (0.770, 0.785, 0.081, 0.041, 0.103, 0.007),
}
NOTES = {
    "methods": "METHODS 8.3 beside ours, and by how much they differ.",
    "digits": "The same federations with the starts and the smaller learning rate that METHODS does not list.",
    "open": (
        "What METHODS does not say about its digits: how pixels were scaled, how the body of the network started, and "
        "whether Dirichlet clients are capped at n / K examples."
    ),
    "larger": "All training rows but the 100 auxiliary ones. Seeds are few where an epoch is slow.",
    "step": "A probe of one step, lr 0.01, on everything a client has, in one batch.",
    "presence": (
        "BACSA start. In each field: κ on the support in percent / false mass / precision / recall of “has this class” at "
        "0.5 / C (METHODS 8.4)."
    ),
}


def write_page(folder: Path, reading: Path | None) -> Path:
    """Write ``folder/README.md`` from ``folder/results.json`` and the hand-written reading of
    these very results.
    """
    stored = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    grouped = group(stored["rows"])
    words = "" if reading is None else reading.read_text(encoding="utf-8").strip()
    sections = [
        "# How well a probe reveals label mixes",
        words,
        section("Digits: METHODS 8.3 and ours", "methods", compare(grouped)),
        section("Digits: other starts, smaller learning rate", "digits", besides(grouped)),
        section(
            "Digits: what METHODS leaves open",
            "open",
            plain(grouped, "open", ("split", "epochs", "pixels", "init")),
        ),
        section("Fashion-MNIST and CIFAR-10", "larger", larger(grouped)),
        section(
            "One step on the whole client",
            "step",
            plain(grouped, "step", ("dataset", "split", "init", "seeds")),
        ),
        section("Which classes are there", "presence", presence(grouped)),
        "## How these numbers were made\n\n"
        + "\n".join(f"- {name}: {value}" for name, value in stored["facts"].items()),
    ]
    page = folder / "README.md"
    page.write_text("\n\n".join(part for part in sections if part) + "\n", encoding="utf-8")
    return page


Grouped = dict[tuple[Any, ...], dict[str, Row]]


def group(rows: Iterable[Row]) -> Grouped:
    """(table, cell) -> estimator -> row."""
    grouped: Grouped = {}
    for row in rows:
        grouped.setdefault((row["table"], *(row[name] for name in CELL)), {})[row["estimator"]] = (
            row
        )
    return grouped


def section(title: str, note: str, lines: Sequence[str]) -> str:
    """A table under its title; nothing if there are no lines."""
    return f"## {title}\n\n{NOTES[note]}\n\n" + "\n".join(lines) if len(lines) > 2 else ""


def table(names: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    """Markdown."""
    return [
        f"| {' | '.join(names)} |",
        "|" + "---|" * len(names),
        *(f"| {' | '.join(line)} |" for line in lines),
    ]


def short(value: float) -> str:
    """.258, as METHODS prints it."""
    return f"{value:.3f}".replace("0.", ".", 1)


def measured(row: Row) -> str:
    """Mean ± standard deviation."""
    spread = row["total_variation_std"]
    return short(row["total_variation"]) + (f" ± {short(spread)}" if spread is not None else "")


def values(cell: dict[str, Row]) -> list[str]:
    """Every estimator; the best one that needs no auxiliary input in bold."""
    alone = [name for name in COLUMNS if name not in ("rlu", "bias_start")]
    best = min(alone, key=lambda name: cell[name]["total_variation"])
    return [
        f"**{measured(cell[name])}**" if name == best else measured(cell[name]) for name in COLUMNS
    ]


def compare(grouped: Grouped) -> list[str]:
    """Three lines for every line of METHODS: theirs, ours, the difference; with the torch start
    where METHODS says Glorot.
    """
    lines = []
    for (split, epochs, lr, init), theirs in METHODS.items():
        probe = f"{split}, E={epochs}, η={lr:g}"
        lines.append(
            [
                probe,
                "BACSA" if init == "bacsa" else "Glorot",
                "METHODS",
                *map(short, theirs),
                "",
                "",
            ]
        )
        for start in ("glorot", "torch") if init == "glorot" else ("bacsa",):
            cell = grouped[("methods", "digits", split, epochs, lr, start, "standardised")]
            lines.append(["", start, "ours", *values(cell)])
            gaps = [
                cell[name]["total_variation"] - number
                for name, number in zip(COLUMNS, theirs, strict=False)
            ]
            lines.append(["", "", "ours − METHODS", *(f"{gap:+.3f}" for gap in gaps), "", ""])
    return table(["digits", "start", "", *COLUMNS.values()], lines)


def besides(grouped: Grouped) -> list[str]:
    """The digits cells that METHODS has no numbers for."""
    shown = {
        (split, epochs, lr, start)
        for split, epochs, lr, init in METHODS
        for start in (init, {"glorot": "torch"}.get(init))
    }
    lines = [
        [split, str(epochs), f"{lr:g}", init, *values(cell)]
        for (name, _, split, epochs, lr, init, _), cell in grouped.items()
        if name == "methods" and (split, epochs, lr, init) not in shown
    ]
    return table(["split", "E", "η", "start", *COLUMNS.values()], lines)


def plain(grouped: Grouped, name: str, keys: Sequence[str]) -> list[str]:
    """One line per cell."""
    lines = [
        [str(cell["rlu"][key]) for key in keys] + values(cell)
        for key, cell in grouped.items()
        if key[0] == name
    ]
    return table([*keys, *COLUMNS.values()], lines)


def larger(grouped: Grouped) -> list[str]:
    """Fashion-MNIST and CIFAR-10."""
    lines = [
        [
            f"{dataset}, {cell['rlu']['model']}",
            split,
            str(epochs),
            f"{lr:g}",
            init,
            str(cell["rlu"]["seeds"]),
            *values(cell),
        ]
        for (name, dataset, split, epochs, lr, init, _), cell in grouped.items()
        if name == "larger"
    ]
    return table(["data, model", "split", "E", "η", "start", "seeds", *COLUMNS.values()], lines)


def presence(grouped: Grouped) -> list[str]:
    """The other figures of METHODS 8.4, for the estimators worth using."""
    chosen = ("eq7_raw", "sqrt_delta", "bias_linear", "rlu")
    lines = []
    for (name, dataset, split, epochs, lr, init, _), cell in grouped.items():
        if name in ("methods", "larger") and init == "bacsa":
            fields = [
                f"{cell[e]['kappa_support']:.0f} / {short(cell[e]['false_mass'])} / "
                f"{cell[e]['presence_precision']:.2f} / {cell[e]['presence_recall']:.2f}"
                for e in chosen
            ]
            lines.append([dataset, split, str(epochs), f"{lr:g}", *fields])
    return table(["data", "split", "E", "η", *(COLUMNS[e] for e in chosen)], lines)
