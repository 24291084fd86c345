"""What all figures share: panels of one look, colours, one legend above them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

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


def numbers(values: Sequence[float | None]) -> np.ndarray:
    """Values as floats, NaN for None."""
    return np.array([np.nan if value is None else value for value in values], float)
