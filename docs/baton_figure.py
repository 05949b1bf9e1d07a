"""The figure of docs/baton.md: a round of FedAvg, of Baton, and of Baton in haste.

.venv/bin/python docs/baton_figure.py        writes docs/figures/baton.png
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

OUT = Path(__file__).parent / "figures" / "baton.png"
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44")
DOWN, UP, HOP = "#666666", "#666666", "#aa3377"
CLIENTS, WIDTH, HEIGHT = 6, 0.62, 0.5
PLANS = (
    ("FedAvg: everybody at once\n12 models sent, 1 turn long", [[i] for i in range(CLIENTS)]),
    ("baton: one chain\n7 models sent, 6 turns long", [list(range(CLIENTS))]),
    ("baton, some haste: short chains\n9 models sent, 2 turns long", [[0, 1], [2, 3], [4, 5]]),
)


def client(axes: Axes, x: float, y: float, shares: np.ndarray) -> None:
    """A client: a bar of its label shares."""
    left = x - WIDTH / 2
    for share, colour in zip(shares, COLOURS, strict=True):
        axes.add_patch(Rectangle((left, y), WIDTH * share, HEIGHT, color=colour, lw=0))
        left += WIDTH * share
    axes.add_patch(Rectangle((x - WIDTH / 2, y), WIDTH, HEIGHT, fill=False, ec="#333333", lw=0.8))


def arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str, bend: float = 0.0
) -> None:
    """A model on its way."""
    style = {"arrowstyle": "-|>", "color": colour, "lw": 1.2, "shrinkA": 2, "shrinkB": 2}
    style["connectionstyle"] = f"arc3,rad={bend}"
    axes.annotate("", xy=end, xytext=start, arrowprops=style)


def draw(axes: Axes, title: str, chains: list[list[int]], labels: np.ndarray) -> None:
    """The server above, chains below, from left to right."""
    axes.set_title(title, fontsize=9)
    middle, top = (CLIENTS - 1) / 2, 2.6
    axes.text(
        middle, top, "server", ha="center", va="bottom", fontsize=9,
        bbox={"boxstyle": "round", "fc": "#f4f4f4", "ec": "#333333"},
    )  # fmt: skip
    for chain in chains:
        for number, member in enumerate(chain):
            client(axes, member, 0.3, labels[member])
            if number:
                arrow(axes, (member - 1 + WIDTH / 2, 0.55), (member - WIDTH / 2, 0.55), HOP)
        first, last = chain[0], chain[-1]
        arrow(axes, (middle - 0.15, top - 0.1), (first - 0.1, 0.85), DOWN, 0.06)
        arrow(axes, (last + 0.1, 0.85), (middle + 0.15, top - 0.1), UP, 0.06)
    axes.set_xlim(-0.6, CLIENTS - 0.4)
    axes.set_ylim(-0.1, 3.2)
    axes.axis("off")


def main() -> None:
    """Three rounds side by side."""
    labels = np.random.default_rng(4).dirichlet(np.full(len(COLOURS), 0.25), CLIENTS)
    figure, panels = plt.subplots(1, 3, figsize=(10.5, 2.7))
    for axes, (title, chains) in zip(panels, PLANS, strict=True):
        draw(axes, title, chains, labels)
    figure.text(
        0.5, 0.02, "bars: label shares of a client; grey: to and from the "
        "server; purple: from device to device", ha="center", fontsize=8, color="#444444",
    )  # fmt: skip
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.savefig(OUT, dpi=130)


if __name__ == "__main__":
    main()
