"""What a budget costs: answer quality over the length that the evidence really had, one panel a family.

An abstractive compressor writes what it writes, whatever it was allowed: the axis is the achieved length, never the
requested one.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from experiments.panels import COLOURS, draw_intervals, explain, label_lengths, panels
from experiments.results import Result, by_dataset

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "floor baselines": ("prefix", "random_sentences"),
    "reranking": ("rerank",),
    "extractive": ("extract", "sentence_bert", "recomp_extractive"),
    "clustering": ("ecr",),
    "token pruning": ("llmlingua2", "longllmlingua"),
    "abstractive": ("recomp_abstractive", "zero_shot", "favicomp", "compact", "xcompress"),
}
LEVELS = {"raw": ("raw documents", "--"), "no_context": ("no context", ":")}
"""Methods without a budget, drawn as levels that the others lie between."""

METRIC = "f1"
COLUMNS = 3
_DODGE = 0.04


def draw_budgets(results: Sequence[Result]) -> "Figure | None":
    """F1 over the achieved share of the documents' tokens; None where no method has two budgets."""
    swept = {name: of for name, of in by_dataset(results).items() if find_families(of)}
    if not swept:
        return None
    families = [name for name in FAMILIES if any(name in find_families(of) for of in swept.values())]
    lines = -(-len(families) // COLUMNS)
    figure, axes = panels(lines * len(swept), [""] * min(len(families), COLUMNS), sharex=False, sharey=True)
    for n, (name, of) in enumerate(swept.items()):
        own = [axis for row in axes[n * lines : (n + 1) * lines] for axis in row]
        for axis, family in zip(own, families, strict=False):
            draw_family(axis, of, find_families(of).get(family, {}))
            axis.set_title(family, fontsize=9)
        for axis in own[len(families) :]:
            axis.set_axis_off()
        for row in axes[n * lines : (n + 1) * lines]:
            row[0].set_ylabel(f"{name}\nF1, 0 to 100", fontsize=8)
    top = max(axes[0][0].get_ylim()[1], 1)
    axes[0][0].set_ylim(-0.03 * top, top)
    explain(figure, [], "error bars")
    return figure


def draw_family(axis: "Axes", results: Sequence[Result], methods: Mapping[str, Sequence[Result]]) -> None:
    """The methods of a family over their achieved lengths, a little apart where they meet, between the levels."""
    draw_levels(axis, results)
    for n, (title, of) in enumerate(methods.items()):
        draw_method(axis, title, of, COLOURS[n], 1 + _DODGE * (n - (len(methods) - 1) / 2))
    axis.legend(fontsize=6.5, framealpha=0.75, edgecolor="none", loc="best")
    label_lengths(axis)


def find_families(results: Sequence[Result]) -> dict[str, dict[str, list[Result]]]:
    """The results of each method that has two budgets or more, by family and title."""
    found: dict[str, dict[str, list[Result]]] = {}
    for family, methods in FAMILIES.items():
        lines: dict[str, list[Result]] = {}
        for result in results:
            if result.settings["method"] in methods and result.budget is not None:
                lines.setdefault(result.title, []).append(result)
        lines = {title: of for title, of in lines.items() if len(of) > 1}
        if lines:
            found[family] = lines
    return found


def draw_levels(axis: "Axes", results: Sequence[Result]) -> None:
    """The quality of the methods without a budget, as lines across the panel."""
    for result in results:
        title, style = LEVELS.get(result.settings["method"], (None, None))
        value = result.summary["all"][METRIC]["value"]
        if title is not None and value is not None:
            axis.axhline(100 * value, color="#888888", linestyle=style, linewidth=0.9, label=title)


def draw_method(axis: "Axes", title: str, results: Sequence[Result], colour: str, shift: float) -> None:
    """One method over its achieved lengths times `shift`, with its intervals; what has no length has no place."""
    found = [(result.summary["budget"]["achieved"]["value"], result.summary["all"][METRIC]) for result in results]
    found = sorted((pair for pair in found if pair[0] and pair[1]["value"] is not None), key=lambda pair: pair[0])
    places = [100 * achieved * shift for achieved, _ in found]
    bounds = [[one[name] for name in ("value", "low", "high")] for _, one in found]
    draw_intervals(axis, places, bounds, color=colour, label=title)
