"""All figures of a measurement into one folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fedskew.measure.measurement import Measurement
from fedskew.report.figures.client_map import draw_map
from fedskew.report.figures.heatmap import draw_heatmap
from fedskew.report.figures.psi_bars import draw_psi
from fedskew.report.figures.silhouette_curve import draw_silhouette
from fedskew.report.figures.sizes import draw_sizes
from fedskew.report.figures.style import drawing, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES: dict[str, Callable[[Measurement], Figure]] = {
    "labels": draw_heatmap,
    "silhouette": draw_silhouette,
    "map": draw_map,
    "psi": draw_psi,
    "sizes": draw_sizes,
}


def save_figures(
    measurement: Measurement, folder: Path, *, on_step: Callable[[str], None] = lambda text: None
) -> list[Path]:
    """Draw every figure of :data:`FIGURES` as PNG and SVG; returns the files."""
    paths = []
    with drawing():
        for name, draw in FIGURES.items():
            on_step(f"figure: {name}")
            paths += save(draw(measurement), folder, name)
    return paths
