"""Which labels make the skew: their parts of WPSI, from clients that have or lack them.

PSI is mostly about absent classes (docs/methods.md 2.11), and the two halves of a bar show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedskew.distance.psi import psi_terms
from fedskew.measure.measurement import Measurement
from fedskew.report.figures.style import COLOURS, SOFT, new_figure, short, title
from fedskew.types import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_BARS = 40


def halves(measurement: Measurement) -> tuple[Floats, Floats]:
    """(C,) parts of WPSI from clients that have the label, and from those that lack it.

    Together they are WPSI.
    """
    table = measurement.counts.table[measurement.counts.table.sum(axis=1) > 0]
    sizes = table.sum(axis=1).astype(np.float64)
    rows = table / sizes[:, None]
    terms = psi_terms(rows, sizes, eps=measurement.figures.eps)
    present = sizes @ np.where(table > 0, terms, 0.0) / sizes.sum()
    return present, measurement.figures.psi_per_class - present


def draw_psi(measurement: Measurement) -> Figure:
    """A bar per label; the 40 longest if there are more."""
    present, absent = halves(measurement)
    total = present + absent
    shown = np.sort(np.argsort(-total, kind="stable")[:MOST_BARS])
    names = [short(measurement.counts.labels[i]) for i in shown.tolist()]
    figure = new_figure(7.0, 1.5 + 0.22 * max(4, len(shown)))
    axes = figure.subplots()
    places = np.arange(len(shown))
    absent = np.maximum(absent[shown], 0)
    axes.barh(
        places, absent, color=COLOURS[3], height=0.72, label="from clients without this label"
    )
    axes.barh(
        places,
        present[shown],
        left=absent,
        color=COLOURS[0],
        height=0.72,
        label="from clients with it",
    )
    axes.set_yticks(places, names)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"part of WPSI (nats, absent classes at {measurement.figures.eps:g})")
    axes.set_ylabel("label")
    axes.set_xlim(0, max(float(total.max()) * 1.05, 0.01))
    axes.grid(axis="x", color=SOFT, alpha=0.2, linewidth=0.6)
    axes.set_axisbelow(True)
    figure.legend(loc="outside lower center", ncols=2)
    more = f", the {MOST_BARS} largest of {len(total)}" if len(total) > MOST_BARS else ""
    title(
        axes,
        f"Which labels make the skew: WPSI {measurement.figures.wpsi:.3f} by label{more}",
        measurement.counts.source,
    )
    return figure
