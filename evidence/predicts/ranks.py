"""Rank correlations of the figures with the level of skew and with FedAvg's accuracy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scipy.stats import spearmanr

from fedskew.compare.estimates import mean_interval
from fedskew.evidence.observations import Observation, select

FIGURES = {"wpsi": "WPSI", "hd": "HD", "jsd": "JSD", "emd": "EMD", "omega": "omega"}
PROTOCOLS = {"Dirichlet": "α", "similarity": "S", "both": ""}
Truth = Callable[[Observation], float]  # of a row of figures


def with_level(rows: Sequence[Observation]) -> str:
    """How well figures rank the levels of skew, by protocol and number of clients."""
    mine = select(rows, {"grid": "figures"})
    clients = list(dict.fromkeys(row.labels["clients"] for row in mine))
    lines = [
        (f"{protocol}, {number} clients", _line(select(some, {"clients": number}), _unevenness))
        for protocol, some in _by_protocol(mine).items()
        if protocol != "both"
        for number in clients
    ]
    return _table("Rank correlation with the level", lines)


def with_accuracy(rows: Sequence[Observation]) -> str:
    """How well figures rank what FedAvg loses, by protocol."""
    reached = {
        (row.labels["level"], row.seed): row.number("final")
        for row in select(rows, {"grid": "accuracy"})
    }
    mine = [
        row for row in select(rows, {"grid": "figures"}) if row.labels["clients"] == _most(rows)
    ]

    def lost(row: Observation) -> float:
        return -reached[row.labels["level"], row.seed]

    lines = [(protocol, _line(some, lost)) for protocol, some in _by_protocol(mine).items()]
    return _table("Rank correlation with the accuracy that FedAvg loses", lines)


def _most(rows: Sequence[Observation]) -> str:
    """The number of clients that models were trained with: the largest."""
    mine = select(rows, {"grid": "figures"})
    return max((row.labels["clients"] for row in mine), key=int)


def _by_protocol(rows: Sequence[Observation]) -> dict[str, list[Observation]]:
    return {
        protocol: [row for row in rows if row.labels["level"].startswith(letter)]
        for protocol, letter in PROTOCOLS.items()
    }


def _unevenness(row: Observation) -> float:
    return -float(row.labels["level"].split()[1])


def _line(rows: Sequence[Observation], truth: Truth) -> list[str]:
    """A correlation per figure, over the levels of each seed."""
    fields = []
    for figure in FIGURES:
        found = []
        for seed in sorted({row.seed for row in rows}):
            some = [row for row in rows if row.seed == seed]
            ranked = spearmanr([row.number(figure) for row in some], [truth(row) for row in some])
            found.append(float(ranked.statistic))
        one = mean_interval(found)
        spread = f" ± {one.high - one.mean:.2f}" if one.n > 1 else ""
        fields.append(f"{one.mean:.2f}{spread}")
    return fields


def _table(title: str, lines: Sequence[tuple[str, list[str]]]) -> str:
    heads = ["", *FIGURES.values()]
    rows = [[name, *fields] for name, fields in lines]
    text = [heads, ["---", *["---:"] * len(FIGURES)], *rows]
    table = "\n".join("| " + " | ".join(fields) + " |" for fields in text)
    note = "Spearman's, over the levels of one seed; mean over seeds with a 95 % t interval."
    return f"## {title}\n\n{note}\n\n{table}"
