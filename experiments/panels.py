"""What all figures share: panels of one look, colours, one legend above them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 3.1, 2.5
_CHARACTER, _HANDLE = 0.065, 0.55
"""Inches of a letter and of a coloured handle in a legend."""
COLOURS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"),
    *("#444444", "#f0e442", "#882255", "#999933", "#aaaaaa", "#332288"),
    *("#117733", "#661100", "#6699cc", "#ddcc77"),
)


def panels(
    rows: int, titles: Sequence[str], *, sharex: str | bool = "col", sharey: str | bool = False
) -> "tuple[Figure, list[list[Axes]]]":
    """A figure of one column a title, and its axes [row][column]."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH * len(titles) + 0.6, HEIGHT * rows + 0.5), layout="constrained", dpi=160)
    axes = figure.subplots(rows, len(titles), squeeze=False, sharex=sharex, sharey=sharey)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", color="#dddddd", linewidth=0.6)
        axis.set_axisbelow(True)
        axis.tick_params(labelsize=8)
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=9)
    return figure, [list(row) for row in axes]


def explain(figure: "Figure", axes: "Sequence[Axes]", note: str = "bands and error bars") -> None:
    """One legend above all panels, where it covers nothing, and below them what the intervals are."""
    shown = [axis.get_legend_handles_labels() for axis in axes]
    handles = {label: handle for found in shown for handle, label in zip(*found, strict=True)}
    if handles:
        widest = max(map(len, handles)) * _CHARACTER + _HANDLE
        columns = max(1, min(len(handles), int(figure.get_figwidth() / widest)))
        figure.set_figheight(figure.get_figheight() + 0.2 * -(-len(handles) // columns))
        figure.legend(handles.values(), handles, loc="outside upper center", ncols=columns, frameon=False, fontsize=8)
    figure.supxlabel(f"{note}: 95 % bootstrap intervals over questions", fontsize=7, color="#444444")


def draw_intervals(
    axis: "Axes", places: Sequence[float], bounds: Sequence[Sequence[float | None]], *, scale: float = 100, **style: Any
) -> None:
    """A line through values at some places, with error bars; `bounds`: value, low and high of each."""
    value, low, high = (numbers(side) * scale for side in (zip(*bounds, strict=True) if bounds else ([], [], [])))
    # A percentile interval need not hold its value.
    below, above = np.clip(value - low, 0, None), np.clip(high - value, 0, None)
    looks = {"marker": "o", "markersize": 3.5, "linewidth": 1.2, "elinewidth": 0.7, "capsize": 2, **style}
    axis.errorbar(places, value, yerr=[below, above], **looks)


def label_lengths(axis: "Axes", ticks: Sequence[float] = (2, 5, 10, 25, 50, 100)) -> None:
    """The horizontal axis of achieved lengths, logarithmic, in percent of the documents' tokens."""
    axis.set_xscale("log", base=2)
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_xlabel("achieved, % of the documents' tokens", fontsize=8)


def numbers(values: Sequence[float | None]) -> np.ndarray:
    """Values as floats, NaN for None."""
    return np.array([np.nan if value is None else value for value in values], float)
