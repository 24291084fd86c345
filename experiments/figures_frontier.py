"""The frontier of a study of citations: one number over the length that the evidence really had, a panel a family.

The methods of a family have colours and markers of their own; what has no budget (the identity, no context) is a level
across every panel, with its interval as a band.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from experiments.figures_budgets import COLUMNS
from experiments.panels import COLOURS, draw_intervals, explain, label_lengths, panels
from experiments.report_data import IDENTITY, VIEWS, Point, by_family

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WORDS = {
    "generated_precision": "generated precision",
    "generated_recall": "generated recall",
    "grounded_precision": "grounded precision",
    "grounded_recall": "grounded recall",
    "laundering": "laundering gap",
    "verification_recovered_unsupported": "unsupported claims, recovered check",
    "str_em": "STR-EM",
    "str_hit": "STR-hit",
    "rouge_l": "ROUGE-L",
    "answer_f1": "answer F1",
    "evidence_f1": "evidence F1",
}
SHARES = (*VIEWS, "verification_recovered_unsupported")
"""Drawn from 0 to 100 whatever their values, so that figures can be held against each other."""

MARKERS, LEVELS = "os^DvPX*<>", ("--", ":", "-.")
TICKS = (0.2, 0.5, 1, 2, 5, 10, 25, 50, 100, 200, 400, 800)
_DODGE = 0.04
_LEGEND_LINE = 0.15
_PAD = 6


def name_of(key: str) -> str:
    """A number's name in words."""
    return WORDS.get(key, key.replace("_", " "))


def draw_frontier(points: Sequence[Point], key: str, columns: int = COLUMNS) -> "Figure | None":
    """A number of the points of one dataset, over the achieved share of the documents' tokens, in percent.

    Returns None where no point with a budget has both.
    """
    families = {name: drawable(lines, key) for name, lines in by_family(points).items()}
    families = {name: lines for name, lines in families.items() if lines}
    if not families:
        return None
    rows = -(-len(families) // columns)
    figure, axes = panels(rows, [""] * min(columns, len(families)), sharex=True, sharey=True)
    lines = max(map(len, families.values())) + len(references(points, key))
    figure.set_figheight(figure.get_figheight() + rows * lines * _LEGEND_LINE)
    flat = [axis for row in axes for axis in row]
    for axis, (family, methods) in zip(flat, families.items(), strict=False):
        draw_family(axis, points, methods, key)
        axis.set_title(family, fontsize=9)
    for axis in flat[len(families) :]:
        axis.set_axis_off()
    figure.supylabel(f"{name_of(key)}, 0 to 100", fontsize=9)
    limit(flat[0], key)
    explain(figure, [], "error bars and bands")
    return figure


def drawable(methods: dict[str, list[Point]], key: str) -> dict[str, list[Point]]:
    """The methods' points that have a place: an achieved length above 0, and a value."""
    found = {title: [point for point in of if is_placed(point, key)] for title, of in methods.items()}
    return {title: sorted(of, key=lambda one: one.number("achieved").value) for title, of in found.items() if of}


def is_placed(point: Point, key: str) -> bool:
    """Whether a point can be drawn."""
    return bool(point.number("achieved").value) and point.number(key).value is not None


def references(points: Sequence[Point], key: str) -> list[Point]:
    """The points without a budget that have a value: of citations the identity's alone, of quality all."""
    unlimited = [point for point in points if point.budget is None and point.number(key).value is not None]
    return [point for point in unlimited if point.family == IDENTITY or key in point.quality]


def draw_family(axis: "Axes", points: Sequence[Point], methods: dict[str, list[Point]], key: str) -> None:
    """The methods of a family, a little apart where they meet, and the references."""
    for n, reference in enumerate(references(points, key)):
        draw_level(axis, reference, key, n)
    for n, (title, of) in enumerate(methods.items()):
        shift = 1 + _DODGE * (n - (len(methods) - 1) / 2)
        places = [100 * point.number("achieved").value * shift for point in of]
        found = [point.number(key) for point in of]
        style = {"color": COLOURS[n % len(COLOURS)], "marker": MARKERS[n % len(MARKERS)], "label": title}
        draw_intervals(axis, places, [(one.value, one.low, one.high) for one in found], **style)
    label_lengths(axis, ticks_around(points))
    axis.tick_params(labelbottom=True, labelleft=True)
    axis.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(-0.06, -0.24), borderaxespad=0)


def draw_level(axis: "Axes", point: Point, key: str, n: int) -> None:
    """A method without a budget: a level, and its interval as a band."""
    number = point.number(key)
    style = LEVELS[n % len(LEVELS)]
    axis.axhline(100 * number.value, color="#666666", linestyle=style, linewidth=0.9, label=point.title)
    if number.low is not None and number.high is not None:
        axis.axhspan(100 * number.low, 100 * number.high, color="#666666", alpha=0.10, linewidth=0)


def ticks_around(points: Sequence[Point]) -> list[float]:
    """The ticks from just below the shortest achieved length to just above the longest."""
    lengths = [100 * point.number("achieved").value for point in points if point.number("achieved").value]
    first = max((n for n, tick in enumerate(TICKS) if tick <= min(lengths)), default=0)
    last = min((n for n, tick in enumerate(TICKS) if tick >= max(lengths)), default=len(TICKS) - 1)
    return list(TICKS[first : last + 1])


@dataclass(frozen=True)
class Drawn:
    """A figure as PNG files: the whole, and each panel with its title, all of one width."""

    whole: bytes
    panels: tuple[tuple[str, bytes], ...]


def render(figure: "Figure") -> Drawn:
    """Draw a figure once, whole and cut into its panels, which a narrow page shows below each other."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    shown = [axis for axis in figure.axes if axis.axison]
    boxes = [(axis.get_window_extent(), axis.get_tightbbox(canvas.get_renderer())) for axis in shown]
    left = max(axis.x0 - whole.x0 for axis, whole in boxes) + _PAD
    right = max(whole.x1 - axis.x1 for axis, whole in boxes) + _PAD
    pixels = np.asarray(canvas.buffer_rgba())[:, :, :3]
    images = []
    for axis, whole in boxes:
        top, bottom = (len(pixels) - edge for edge in (whole.y1 + _PAD, whole.y0 - _PAD))
        rows, columns = slice(max(0, int(top)), int(bottom)), slice(max(0, int(axis.x0 - left)), int(axis.x1 + right))
        images.append(encode_png(pixels[rows, columns]))
    titles = [axis.get_title() for axis in shown]
    return Drawn(encode_png(pixels), tuple(zip(titles, images, strict=True)))


def encode_png(pixels: np.ndarray) -> bytes:
    """Pixels [rows, columns, 3] as a PNG file of at most 128 colours, a quarter of the size."""
    from PIL import Image

    file = io.BytesIO()
    image = Image.fromarray(np.ascontiguousarray(pixels)).quantize(128, dither=Image.Dither.NONE)
    image.save(file, format="PNG", optimize=True)
    return file.getvalue()


def limit(axis: "Axes", key: str) -> None:
    """The vertical range: all of 0 to 100 for a share, 0 and more for quality, both sides of 0 for a difference."""
    low, high = axis.get_ylim()
    if key in SHARES:
        axis.set_ylim(-4, 104)
    elif key == "laundering":
        axis.set_ylim(min(low, -5), max(high, 5))
        for one in axis.figure.axes:
            one.axhline(0, color="#000000", linewidth=0.6, zorder=1)
    else:
        axis.set_ylim(-0.03 * high, max(high, 1))
