"""One look for every figure: light, few lines, colours that colour-blind readers tell apart.

Colours are Paul Tol's "muted" set. Nine colours cannot name fifty clusters, so clusters also carry
their number, and beyond the 18 largest (twice round the colours) they are grey.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedskew.errors import DataError
from fedskew.foreign import printable
from fedskew.measure.measurement import MOST_DRAWN
from fedskew.types import Ints

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

COLOURS = (
    "#332288",
    "#DDCC77",
    "#117733",
    "#CC6677",
    "#88CCEE",
    "#882255",
    "#44AA99",
    "#999933",
    "#AA4499",
)
# of methods, on the page and in papers alike: the same, darker where thin lines would be too pale
METHOD_COLOURS = (
    "#332288",
    "#b8860b",
    "#117733",
    "#c44a5e",
    "#2b8fc4",
    "#882255",
    "#2b8a7c",
    "#7d7d22",
    "#aa4499",
)
GREY = "#BBBBBB"
INK = "#222222"
SOFT = "#666666"
DPI = 150

RC: Any = {
    "font.size": 9,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "fedskew",  # the same figure gives the same bytes
    "svg.fonttype": "path",
    "text.parse_math": False,  # a label called "$5" is not a formula
}


@contextmanager
def drawing() -> Iterator[None]:
    """Draw in this look; a missing matplotlib is one clear line."""
    try:
        import matplotlib
    except ImportError as error:
        raise DataError(
            "--figures", "matplotlib is not installed", "pip install 'fedskew[report]'"
        ) from error
    with matplotlib.rc_context(RC), warnings.catch_warnings():
        # a label in a script the font lacks: a box
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure in inches, with no window and no global state behind it."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write PNG and SVG."""
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _save_png(figure, paths[0])
        figure.savefig(paths[1], dpi=DPI, metadata={"Date": None})
    except OSError as error:
        raise DataError(
            str(folder), error.strerror or str(error), "Choose another folder for the figures"
        ) from None
    return paths


def _save_png(figure: Figure, path: Path) -> None:
    """256 colours are enough and make a file a third as large; Pillow comes with matplotlib."""
    from PIL import Image

    drawn = BytesIO()
    figure.savefig(drawn, dpi=DPI)
    with Image.open(drawn) as image:
        reduced = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        reduced.save(path, optimize=True, dpi=(DPI, DPI))


def title(axes: Axes, text: str, under: str = "") -> None:
    """A title, and what is shown in small print below it."""
    lines = under.count("\n") + 1 if under else 0
    axes.set_title(text, pad=7 + 11 * lines)
    small: Any = {"fontsize": 8, "color": SOFT, "va": "bottom", "linespacing": 1.2}
    axes.annotate(
        under, (0, 1), xytext=(0, 5), xycoords="axes fraction", textcoords="offset points", **small
    )


def whole_numbers(axis: Axis) -> None:
    """Ticks at whole numbers only, with commas."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axis.set_major_formatter(FuncFormatter(with_commas))


def with_commas(value: float, _: object = None) -> str:
    """A tick's text.

    >>> with_commas(12000.0)
    '12,000'
    """
    return f"{value:,.0f}"


def short(name: str) -> str:
    """A name that fits beside an axis."""
    return printable(name, 18).replace("$", r"\$")  # two of them would be a formula


def cluster_colours(labels: Ints) -> tuple[list[str], list[int]]:
    """(a colour per cluster, the clusters that are named: the largest ones, ascending).

    >>> cluster_colours(np.array([0, 0, 1, -1]))
    (['#332288', '#DDCC77'], [0, 1])
    """
    sizes = np.bincount(labels[labels >= 0])
    named = sorted(np.argsort(-sizes, kind="stable")[:MOST_DRAWN].tolist())
    colours = [GREY] * len(sizes)
    for position, cluster in enumerate(named):
        colours[cluster] = COLOURS[position % len(COLOURS)]
    return colours, named


def is_dark(colour: str) -> bool:
    """Whether white reads better on it than black (weighted brightness below 0.5).

    >>> is_dark("#332288"), is_dark("#DDCC77")
    (True, False)
    """
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.5
