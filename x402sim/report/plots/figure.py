"""The style of every plot: sizes, colours, time axes, legends, and reproducible PNG and SVG.

The colours are Okabe and Ito's, which colour-blind readers can tell apart. Lines also differ in
dashes or marks, so that a print in grey is readable. Figures are made without pyplot: the global
state of pyplot stays unchanged.
"""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from itertools import pairwise
from typing import Any, ParamSpec, cast

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

from x402sim.text.words import unknown

P = ParamSpec("P")

BLACK, GREY, LIGHT = "#000000", "#6b6b6b", "#d9d9d9"
BLUE, ORANGE, GREEN, VERMILLION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE = "#CC79A7"
LINES = ((BLUE, "-"), (VERMILLION, "--"), (GREEN, "-."), (BLACK, ":"), (PURPLE, (0, (6, 1, 1, 1))))
"""Colours dark enough for text, each with its own dashes."""
MARKS = ("o", "s", "D", "^", "v")
"""Marks of points, one for each of `LINES`."""

DPI = 200
"""The resolution of a PNG."""
LEFT_IN = 0.72
"""Width of the numbers and the label left of the axes."""
_NARROW_IN = 4.0
_ON_SCREEN_DPI = 110
_COLOURS, _NEARLY_WHITE = 64, 252
_STYLE: Any = {
    "text.parse_math": False,
    "axes.linewidth": 0.6,
    "figure.autolayout": False,
    "figure.constrained_layout.use": False,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "x402sim",
    "pdf.fonttype": 42,
}
_UNITS = ((2 * 86_400, 86_400, "d"), (2 * 3600, 3600, "h"), (300, 60, "min"), (0, 1, "s"))


_SERIF = ["STIXGeneral", "DejaVu Serif", "DejaVu Sans"]
"""Fonts that come with matplotlib; the later fonts have letters that STIXGeneral lacks."""
STYLES: dict[str, Any] = {
    "screen": {},
    "print": {
        "font.family": _SERIF, "font.size": 7.5, "figure.figsize": (3.5, 2.3),
        "axes.labelsize": 7.5, "axes.titlesize": 7.5, "legend.fontsize": 7, "lines.linewidth": 1.1,
        "xtick.labelsize": 7, "ytick.labelsize": 7,
    },
}  # fmt: skip
"""Settings of matplotlib, by name of the style."""
_settings: ContextVar[Any] = ContextVar("settings of plots", default=STYLES["screen"])
Labels = Mapping[str, str]
"""Words for names: `{"k 0": "not confirmed", "block_s": "block interval"}`."""
_labels: ContextVar[Labels] = ContextVar("words for names", default={})  # noqa: B039


@contextmanager
def style(name: str) -> Iterator[None]:
    """Draw in another style within a `with` block: "screen" or "print".

    "print" is one column of a journal: 3.5 inches wide, with serif letters. It also applies to
    matplotlib's own figures. Only a sequence diagram may be as wide as two columns.
    """
    if name not in STYLES:
        raise ValueError(unknown("style", name, STYLES))
    token = _settings.set(STYLES[name])
    try:
        with mpl.rc_context(STYLES[name]):
            yield
    finally:
        _settings.reset(token)


class NotebookFigure(Figure):
    """A figure that a notebook displays, whether or not pyplot is loaded."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        return png(self), {"width": round(self.get_figwidth() * _ON_SCREEN_DPI)}


class NotebookAxes(Axes):
    """Axes that a notebook displays as a figure: a plot may end a cell.

    pyplot does not know the figure; else Jupyter's inline backend would show the figure again.
    """

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        return cast("NotebookFigure", self.figure)._repr_png_()


def styled(draw: Callable[P, Axes]) -> Callable[P, Axes]:
    """Decorate a plot: it draws in the current style, whatever the user's matplotlib settings.

    The plot's argument `labels` gives words for names; `plain` looks them up.
    """

    @wraps(draw)
    def drawn(*args: P.args, **options: P.kwargs) -> Axes:
        token = _labels.set(cast("Labels", options.get("labels")) or {})
        try:
            with mpl.rc_context(_STYLE | _settings.get()):
                return draw(*args, **options)
        finally:
            _labels.reset(token)

    return drawn


def default_mm() -> tuple[float, float]:
    """Return width and height of a figure in the current style; "screen" is two columns wide."""
    width_in, height_in = _settings.get().get("figure.figsize", (160 / 25.4, 80 / 25.4))
    return width_in * 25.4, height_in * 25.4


def new_axes(width_mm: float | None = None, height_mm: float | None = None) -> Axes:
    """Return the axes of a new figure; by default, of the current style's size."""
    width_mm, height_mm = width_mm or default_mm()[0], height_mm or default_mm()[1]
    figure = NotebookFigure(figsize=(width_mm / 25.4, height_mm / 25.4), layout="constrained")
    FigureCanvasAgg(figure)
    return figure.add_subplot(axes_class=NotebookAxes)


def prepare(ax: Axes | None, height_mm: float | None = None, width_mm: float | None = None) -> Axes:
    """Return the given or new axes, without a frame and with a font that fits the size."""
    ax = ax or new_axes(width_mm, height_mm)
    ax.spines[["top", "right"]].set_visible(False)
    family = mpl.rcParams["font.family"]
    ax.tick_params(labelsize=font_size(ax), width=0.6, length=3, labelfontfamily=family)
    return ax


def width_in(ax: Axes) -> float:
    """Return the width of the axes in inches."""
    return float(ax.get_window_extent().width / ax.figure.dpi)


def room_right_in(ax: Axes) -> float:
    """Return the width from the axes' left end to the figure's right end, after the layout."""
    figure = ax.figure
    if isinstance(figure, NotebookFigure) and len(figure.axes) == 1:
        return float(figure.get_figwidth()) - LEFT_IN
    return width_in(ax)


def height_in(ax: Axes) -> float:
    """Return the height of the axes in inches."""
    return float(ax.get_window_extent().height / ax.figure.dpi)


def font_size(ax: Axes) -> float:
    """Return the font size in points: 8, or 6.5 on narrow axes."""
    return 6.5 if width_in(ax) < _NARROW_IN else 8.0


def label_axes(ax: Axes, x: str, y: str) -> None:
    """Label both axes; the texts include the units."""
    ax.set_xlabel(plain(x), size=font_size(ax) + 0.5, parse_math=False)
    ax.set_ylabel(plain(y), size=font_size(ax) + 0.5, parse_math=False)


def time_axis(ax: Axes, last_s: float, texts: Sequence[str] = (), y: str = "") -> float:
    """Make x the time axis of a run of `last_s` seconds; return its unit in seconds.

    Leaves room on the right for `texts` at the ends of lines.
    """
    seconds, unit = next((s, unit) for least, s, unit in _UNITS if last_s >= least)
    last = last_s / seconds or 1.0
    room_in = max(map(len, texts), default=0) * 0.62 * font_size(ax) / 72
    share = min(0.4, room_in / width_in(ax))
    ax.set_xlim(-0.01 * last, last / (1 - share) * 1.01)
    ax.set_xticks([x for x in ax.get_xticks() if 0 <= x <= last * 1.001])
    ax.spines["bottom"].set_bounds(0, last)
    label_axes(ax, f"virtual time ({unit})", y)
    return seconds


def empty_axes(ax: Axes, text: str) -> Axes:
    """Write a text in the middle of empty axes: the reason why they are empty."""
    ax.set_axis_off()
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center",
            color=GREY, size=font_size(ax))  # fmt: skip
    return ax


def plain(text: object) -> str:
    """Return a text, or the caller's `labels` for it, without control characters."""
    shown = _labels.get().get(str(text), str(text))
    return "".join(c if c.isprintable() else " " for c in shown)


def label_ends(
    ax: Axes, x: float, ys: Sequence[float], texts: Sequence[str], colours: Sequence[str]
) -> None:
    """Write each text at the end of its line, without overlaps."""
    low, high = ax.get_ylim()
    gap = (high - low) * font_size(ax) * 1.25 / 72 / height_in(ax)
    at = _apart(ys, gap, low, high)
    for y, text, colour in zip(at, texts, colours, strict=True):
        ax.annotate(
            plain(text), (x, y), xytext=(4, 0), textcoords="offset points", va="center",
            color=colour, size=font_size(ax), annotation_clip=False,
        )  # fmt: skip


def _apart(ys: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return positions near `ys`, at least `gap` apart, and within the limits if possible."""
    order = sorted(range(len(ys)), key=lambda n: ys[n])
    at = list(ys)
    for below, above in pairwise(order):
        at[above] = max(at[above], at[below] + gap)
    if order and at[order[-1]] > high:
        at[order[-1]] = high
        for above, below in pairwise(order[::-1]):
            at[below] = min(at[below], at[above] - gap)
    return at


def line_sample(name: str, colour: str, dashes: Any, width: float = 1.4) -> Line2D:
    """Return a legend's entry for a line."""
    return Line2D([], [], color=colour, ls=dashes, lw=width, label=plain(name)[:40])


def mark_sample(name: str, marker: str, face: str, edge: str = GREY, size: float = 4.5) -> Line2D:
    """Return a legend's entry for a marker."""
    return Line2D([], [], ls="", marker=marker, ms=size, mec=edge, mfc=face, label=plain(name))


def area_sample(name: str, colour: str, alpha: float = 1.0) -> PolyCollection:
    """Return a legend's entry for an area."""
    return PolyCollection([], fc=colour, ec="none", alpha=alpha, label=plain(name))


def legend(ax: Axes, samples: Sequence[Line2D | PolyCollection] = (), **options: Any) -> None:
    """Put everything with a label into a legend above the axes, as many entries in a row as fit.

    After `axes.plot(…, label="theory")`, call `plots.legend(axes)` to add your own lines. `samples`
    are entries for things that the axes already show.
    """
    for each in samples:
        ax.add_artist(each).set_in_layout(False)  # without data, without a place in the layout
    handles, names = ax.get_legend_handles_labels()
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1)} | options
    drawn = ax.legend(
        handles, names, frameon=False, fontsize=font_size(ax), handlelength=2.2,
        handletextpad=0.4, columnspacing=1.2, borderaxespad=0.2, ncols=_columns(ax, names), **place,
    )  # fmt: skip
    for text in drawn.get_texts():
        text.set_parse_math(False)


def _columns(ax: Axes, names: Sequence[str]) -> int:
    widths_in = [len(name) * 0.58 * font_size(ax) / 72 + 0.5 for name in names]
    for columns in range(len(names), 1, -1):
        chunks = np.array_split(widths_in, columns)  # as matplotlib fills them
        if sum(float(chunk.max()) for chunk in chunks) <= room_right_in(ax):
            return columns
    return 1


def png(figure: Any, dpi: int = DPI) -> bytes:
    """Return a figure as PNG; the same figure gives the same bytes.

    With a palette of 64 colours, the file is a third of matplotlib's, at no visible loss.
    """
    image = Image.open(io.BytesIO(_bytes(figure, "png", dpi=dpi))).convert("RGB")
    few = image.quantize(_COLOURS, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    few.putpalette([255 if part > _NEARLY_WHITE else part for part in few.getpalette() or ()])
    file = io.BytesIO()
    few.save(file, "png", dpi=(dpi, dpi))
    return file.getvalue()


def transparent(image: bytes) -> bytes:
    """Return a PNG of `png` with white made transparent; on white it looks the same."""
    drawn = Image.open(io.BytesIO(image))
    colours = np.array(drawn.getpalette()).reshape(-1, 3)
    alpha = 255 - colours.min(axis=1, keepdims=True)
    drawn.putpalette([*(255 - 255 * (255 - colours) // np.maximum(alpha, 1)).ravel().tolist()])
    file = io.BytesIO()
    drawn.save(file, "png", transparency=bytes(alpha.ravel().tolist()), dpi=(DPI, DPI))
    return file.getvalue()


def keep_layout(figure: Any) -> None:
    """Keep the layout of a drawn figure: the next drawing does not compute a layout."""
    with mpl.rc_context(_STYLE):
        figure.set_layout_engine(None)


def vectors(figure: Any, form: str) -> bytes:
    """Return a figure as SVG or PDF; the same figure gives the same bytes."""
    left_out = ("Date", "Creator") if form == "svg" else ("CreationDate", "Creator", "Producer")
    return _bytes(figure, form, metadata=dict.fromkeys(left_out))


def _bytes(figure: Any, form: str, **options: Any) -> bytes:
    file = io.BytesIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(file, format=form, **options)
    return file.getvalue()
