"""The figures of choosing among candidates: how scores go with answers, and what each setting of the choice does.

`draw_correlation` shows the mean quality of each rank (`correlation.json`), one row of panels a set of candidates, one
column a score. `draw_ablation` shows the quality over a setting of xCompress, for each setting that was varied with
all others held: one row of panels a dataset, one column a setting.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.correlation import QUALITY_TITLES, SCORERS, name_of
from experiments.panels import COLOURS, explain, numbers, panels
from experiments.results import Result, by_dataset
from ragjax.evals.parts import digest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ABLATED = {
    "pooling": "pooling over tokens",
    "layer": "layer (index of hidden states)",
    "first_token": "first token",
    "energy": "energy of the subspace",
    "candidates": "candidates a question",
}
METRICS = {"em": "EM", "f1": "F1", "acc": "Acc"}
_DODGE = 0.14
Panel = list[Result]


def draw_correlation(studies: Sequence[Mapping[str, Any]]) -> "Figure | None":
    """Mean EM and F1 a rank, with r in each panel's legend; None without a study.

    `studies` are those of `correlation.json`.
    """
    scorers = list(dict.fromkeys(scorer for study in studies for scorer in study["scorers"]))
    if not scorers:
        return None
    figure, axes = panels(len(studies), [SCORERS.get(scorer, scorer) for scorer in scorers], sharex=False, sharey="row")
    figure.set_figheight(figure.get_figheight() + 0.45 * len(studies))  # The legends below the panels.
    for row, study in zip(axes, studies, strict=True):
        named = name_of(study).replace(", ", "\n", 1)
        row[0].set_ylabel(f"{named}\nmean quality, 0 to 100", fontsize=8)
        for axis, scorer in zip(row, scorers, strict=True):
            if scorer in study["scorers"]:
                draw_bins(axis, study["scorers"][scorer])
            else:
                axis.set_axis_off()
    figure.supxlabel(
        "bands, and r in brackets: 95 % bootstrap intervals over questions; n: questions used; "
        "r: Pearson's, of rank with mean quality",
        fontsize=7,
        color="#444444",
    )
    return figure


def draw_bins(axis: "Axes", found: Mapping[str, Any]) -> None:
    """One score: a line a quality over the ranks."""
    for colour, (quality, title) in zip(COLOURS, QUALITY_TITLES.items(), strict=False):
        bins = found["bins"][quality]
        value, low, high = (numbers([one[name] for one in bins]) * 100 for name in ("value", "low", "high"))
        ranks, label = np.arange(1, len(bins) + 1), f"{title}: {describe_r(found['pearson'][quality])}"
        axis.fill_between(ranks, low, high, color=colour, alpha=0.15, linewidth=0)
        axis.plot(ranks, value, color=colour, marker="o", markersize=3.5, linewidth=1.4, label=label)
    axis.set_xticks(ranks)
    axis.set_xlabel(f"rank ({len(bins)} = best score), n = {found['questions']:,}", fontsize=8)
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), frameon=False, fontsize=7.5)


def describe_r(interval: Mapping[str, Any]) -> str:
    """Pearson's r with its interval."""
    if interval["value"] is None:
        return "no r"
    shown = f"r = {interval['value']:.2f}"
    return shown if interval["low"] is None else f"{shown} [{interval['low']:.2f}, {interval['high']:.2f}]"


def find_ablations(results: Sequence[Result]) -> dict[str, list[Panel]]:
    """For each setting that was varied, the groups of points that differ in nothing else, each in order of values."""
    chosen = [result for result in results if result.settings["method"] == "xcompress"]
    found: dict[str, list[Panel]] = {}
    for field in ABLATED:
        groups: dict[str, Panel] = {}
        for result in chosen:
            if result.settings.get(field) is not None:
                groups.setdefault(digest({**result.settings, field: None}), []).append(result)
        varied = [sorted(of, key=lambda one, field=field: place_of(one.settings[field])) for of in groups.values()]
        varied = [of for of in varied if len(of) > 1]
        if varied:
            found[field] = varied
    return found


def place_of(value: Any) -> tuple[bool, float]:
    """Where a value stands on the axis: numbers by size, layers from the end last, words in the order of the study."""
    return (value < 0, value) if isinstance(value, int | float) else (False, 0.0)


def draw_ablation(results: Sequence[Result]) -> "Figure | None":
    """Quality over each varied setting of xCompress; None where no points differ in one setting alone."""
    grids = {name: of for name, results_ in by_dataset(results).items() if (of := list_panels(results_))}
    if not grids:
        return None
    width = max(map(len, grids.values()))
    figure, axes = panels(len(grids), [""] * width, sharex=False, sharey="row")
    for row, (name, grid) in zip(axes, grids.items(), strict=True):
        row[0].set_ylabel(f"{name}\nquality, 0 to 100", fontsize=8)
        for axis, (field, held, of) in zip(row, grid, strict=False):
            draw_setting(axis, field, of)
            axis.set_title(held, fontsize=7.5)
        top = max(row[0].get_ylim()[1], 1)
        row[0].set_ylim(-0.03 * top, top)  # Of the whole row. Nothing lies below 0; room for the markers there.
        for axis in row[len(grid) :]:
            axis.set_axis_off()
    explain(figure, axes[0], "error bars")
    return figure


def list_panels(results: Sequence[Result]) -> list[tuple[str, str, Panel]]:
    """The panels of a dataset: the setting, what else tells it from the setting's other panels, and its points."""
    return [
        (field, describe_held(group, groups), group)
        for field, groups in find_ablations(results).items()
        for group in groups
    ]


def describe_held(group: Panel, groups: Sequence[Panel]) -> str:
    """The settings of a panel that differ among the panels of one varied setting."""
    firsts = [of[0].settings for of in groups]
    own = group[0].settings
    held = [name for name in own if len({json_key(one.get(name)) for one in firsts}) > 1]
    varied = {name for name in held if len({json_key(one.settings.get(name)) for one in group}) > 1}
    return ", ".join(f"{name} {own[name]}" for name in held if name not in varied)


def json_key(value: Any) -> str:
    """A JSON value as something that can be compared."""
    return digest(value)


def draw_setting(axis: "Axes", field: str, group: Panel) -> None:
    """Quality at each value of one setting, the values evenly spaced; a line joins values that have an order."""
    places = np.arange(len(group))
    values = [result.settings[field] for result in group]
    ordered = all(isinstance(value, int | float) for value in values)
    for n, (metric, title) in enumerate(METRICS.items()):
        found = [result.summary["all"][metric] for result in group]
        value, low, high = (numbers([one[name] for one in found]) * 100 for name in ("value", "low", "high"))
        axis.errorbar(
            places + (n - 1) * _DODGE,
            value,
            yerr=[value - low, high - value],
            color=COLOURS[n],
            label=title,
            marker="o",
            markersize=3.5,
            linewidth=1.2 if ordered else 0,
            elinewidth=0.9,
            capsize=2,
        )
    axis.set_xticks(places, [f"{value:g}" if ordered else str(value) for value in values])
    axis.set_xlim(-0.5, len(group) - 0.5)
    axis.set_xlabel(f"{ABLATED[field]}, n = {describe_n(group)}", fontsize=8)


def describe_n(group: Panel) -> str:
    """How many questions the points rest on."""
    counts = sorted({result.summary["all"]["em"]["n"] for result in group})
    return f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
