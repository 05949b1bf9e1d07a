"""Measurements as tables in the terminal.

Names from files are shown as text, never read as markup.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from rich.table import Table
from rich.text import Text

from fedskew.foreign import printable
from fedskew.measure.counts import plural
from fedskew.measure.groups import Grouping
from fedskew.measure.measurement import Measurement
from fedskew.measure.privacy import NoiseRow, PrivacyTable, Spread
from fedskew.measure.wording import skew_share, skew_word

FARTHEST = 3  # clients whose labels differ most from everybody's together


def facts_table(measurement: Measurement) -> Table:
    """Who and how much."""
    f = measurement.figures
    sizes = f"{f.size_min:,.0f} / {f.size_median:,.0f} / {f.size_max:,.0f}"
    classes = f"{f.classes_min} / {f.classes_mean:.2f} / {f.classes_max}"
    table = Table(show_header=False, show_edge=False, pad_edge=False, box=None)
    rows = {
        "source": printable(measurement.counts.source, 200),
        "clients": f"{measurement.num_active:,}"
        + (f" and {len(f.empty_clients):,} without examples" if len(f.empty_clients) else ""),
        "examples": f"{f.num_examples:,.0f}",
        "classes": f"{f.num_classes:,}",
        "examples per client": f"{sizes} (min / median / max), Gini {f.size_gini:.3f}",
        "classes per client": f"{classes} (min / mean / max)",
        "farthest from the rest": _farthest(measurement),
    }
    for name, value in rows.items():
        table.add_row(Text(name, style="cyan"), Text(value))
    return table


def _farthest(measurement: Measurement) -> str:
    psi = np.nan_to_num(measurement.figures.psi_per_client, nan=-1.0)
    top = np.argsort(-psi, kind="stable")[: min(FARTHEST, measurement.num_active)]
    return ", ".join(
        f"{printable(measurement.counts.clients[i], 24)} (PSI {psi[i]:.2f})" for i in top.tolist()
    )


def federations_table(measured: Sequence[Measurement]) -> Table:
    """Several federations, a line each: where they are from, and how skewed they are."""
    table = Table(show_edge=False, pad_edge=False, box=None, header_style="bold")
    table.add_column("source", style="cyan", overflow="fold")
    for name in ("clients", "HD", "JSD", "WPSI", "omega"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("skewed", no_wrap=True)
    for one in measured:
        f = one.figures
        word = skew_word(skew_share(f.hd, one.hd_ceiling, one.hd_chance)).split()[0]
        numbers = (f"{value:.3f}" for value in (f.hd, f.jsd, f.wpsi, f.omega))
        source = Text(printable(one.counts.source.removeprefix("run ").partition(": ")[0], 200))
        table.add_row(source, f"{one.num_active:,}", *numbers, word)
    return table


def skew_table(measurement: Measurement) -> Table:
    """The skew figures; with a private signal also what the server sees of them."""
    f, seen = measurement.figures, measurement.seen
    table = Table(show_edge=False, pad_edge=False, box=None, header_style="bold")
    table.add_column("skew", style="cyan")
    table.add_column("value", justify="right")
    if measurement.private:
        table.add_column(f"seen at ε = {measurement.signal.epsilon:g}", justify="right")
    table.add_column("to compare with")
    classes = plural(measurement.omega_classes, "class")
    afls = (
        f"AFLS: sequential from {measurement.omega_threshold:.3f} ({classes} each); ε = {f.eps:g}"
    )
    rows: Sequence[tuple[str, float, float, str]] = (
        (
            "HD",
            f.hd,
            seen.hd,
            f"ceiling {measurement.hd_ceiling:.3f}, dealt at random {measurement.hd_chance:.3f}",
        ),
        ("JSD", f.jsd, seen.jsd, f"ceiling {measurement.jsd_ceiling:.3f}"),
        ("EMD (FedArtML)", f.emd_values, seen.emd_values, "blind to which class is which"),
        ("WPSI", f.wpsi, seen.wpsi, f"0 = all alike; ε = {f.eps:g}"),
        ("omega", f.omega, seen.omega, afls),
        (
            "omega reverse",
            f.omega_reverse,
            seen.omega_reverse,
            f"at most ln C = {math.log(f.num_classes):.3f}",
        ),
    )
    for name, value, shown, text in rows:
        table.add_row(
            name, f"{value:.3f}", *([f"{shown:.3f}"] if measurement.private else []), text
        )
    return table


def groups_table(measurement: Measurement) -> Table:
    """What each rule groups."""
    table = Table(show_edge=False, pad_edge=False, box=None, header_style="bold")
    for name in ("groups by", "how"):
        table.add_column(name, style="cyan" if name == "groups by" else None)
    for name in ("groups", "silhouette", "noise"):
        table.add_column(name, justify="right")
    table.add_column("")
    for grouping in measurement.groupings:
        table.add_row(*_group_cells(grouping))
    return table


def _group_cells(grouping: Grouping) -> list[str]:
    clustering = grouping.clustering
    score = "–" if clustering.silhouette is None else f"{clustering.silhouette:.3f}"
    kind = "exact" if clustering.exact else "approx."
    fallback = " *" if grouping.fallback else ""
    number = f"{grouping.rule.symbol} = {clustering.k:,}"
    noise = f"{grouping.num_noise:,}"
    return [grouping.rule.title, grouping.rule.how, number, score, noise, kind + fallback]


def group_notes(measurement: Measurement) -> list[str]:
    """What to know before trusting a row of :func:`groups_table`."""
    replaced = [grouping for grouping in measurement.groupings if grouping.fallback]
    notes = [
        f"* {g.rule.clustering} found nothing acceptable: {g.fallback} in its place"
        for g in replaced
    ]
    edges = ", ".join(
        f"{g.rule.symbol} = {g.clustering.k}" for g in measurement.groupings if g.at_edge
    )
    return [
        *notes,
        *(
            [f"largest number of groups that was tried: {edges}; more might score higher"]
            if edges
            else []
        ),
    ]


def noise_table(table: PrivacyTable) -> Table:
    """Total variation, presence of classes and surviving groups by epsilon; for 80 columns."""
    out = Table(show_edge=False, pad_edge=False, box=None, header_style="bold")
    for head in ("ε", "total variation", "recall", "precision", "HD\nseen"):
        out.add_column(head, justify="right", min_width=11 if head == "total variation" else None)
    for rule in table.rules:
        out.add_column(f"ARI\n{rule.clustering}\n{rule.distance}", justify="right")
    for row in table.rows:
        out.add_row(*_noise_cells(row, [rule.key for rule in table.rules]))
    return out


def _noise_cells(row: NoiseRow, keys: Sequence[str]) -> list[str]:
    plain = (row.presence_recall, row.presence_precision, row.hd)
    name = "none" if row.epsilon is None else f"{row.epsilon:g}"
    ari = (_spread(row.ari[key], 2) for key in keys)
    return [name, _spread(row.total_variation, 3), *(f"{value.mean:.3f}" for value in plain), *ari]


def _spread(value: Spread, digits: int) -> str:
    return f"{value.mean:.{digits}f}±{value.sd:.{digits}f}" if math.isfinite(value.mean) else "–"
