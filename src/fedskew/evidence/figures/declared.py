"""A figure as ``study.toml`` declares it, and how a mean over seeds is drawn in all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fedskew.compare.estimates import Estimate
from fedskew.evidence.observations import Observation, Where
from fedskew.types import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Rows = Sequence[Observation]


@dataclass(frozen=True)
class Figure:
    """A figure of the page."""

    file: str
    kind: str
    title: str = ""
    under: str = ""  # small print in the figure
    caption: str = ""  # below it on the page
    where: Where = field(default_factory=dict)
    figure: str = "final"
    lines: str = ""  # axis: a line, colour or row per label
    panels: str = ""  # axis: a panel per label
    x: Sequence[str] = ("rounds",)  # of curves: a row of panels each
    x_axis: str = ""  # of lines and heat maps: the axis whose labels stand below
    log: Sequence[str] = ()  # of x, or the x_axis: on a logarithmic scale
    x_title: str = ""
    y_title: str = ""
    format: str = ".3f"  # of numbers in a heat map
    band: bool = True  # the interval over seeds
    smooth: int = 1  # running mean over so many evaluations
    thick: Mapping[str, Any] = field(default_factory=dict)  # {figure, where}: which lines
    beside: Sequence[str] = ()  # lines that are shown in grey
    order: str = ""  # of bars: by which list
    unit: str = ""  # of that list
    level: float | None = None  # a grey line
    level_of: str = ""  # a grey line at this label's mean
    seed: int = 0  # of bars: which
    width: float = 8.0
    height: float = 3.6


def draw_line(
    axes: Axes,
    figure: Figure,
    places: Floats,
    found: Sequence[Estimate],
    colour: str,
    label: str,
    thick: bool = False,
) -> None:
    """A mean, with its interval where there is one."""
    width = 2.6 if thick else 1.3
    axes.plot(places, [e.mean for e in found], color=colour, linewidth=width, label=label)
    if figure.band:
        low = [e.mean if np.isnan(e.low) else e.low for e in found]
        high = [e.mean if np.isnan(e.high) else e.high for e in found]
        axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
