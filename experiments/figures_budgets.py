"""What a budget costs: answer quality over the length that the evidence really had, one panel a family.

An abstractive compressor writes what it writes, whatever it was allowed: the axis is the achieved length, never the
requested one.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from experiments.panels import COLOURS, explain, numbers, panels
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


def draw_budgets(results: Sequence[Result]) -> "Figure | None":
    """F1 over the achieved share of the documents' tokens; None where no method has two budgets."""
    swept = {name: of for name, of in by_dataset(results).items() if find_families(of)}
    if not swept:
        return None
    families = [name for name in FAMILIES if any(name in find_families(of) for of in swept.values())]
    figure, axes = panels(len(swept), families, sharey="row")
    for row, (name, of) in zip(axes, swept.items(), strict=True):
        row[0].set_ylabel(f"{name}\nF1, 0 to 100", fontsize=8)
        for axis, family in zip(row, families, strict=True):
            draw_levels(axis, of)
            for n, line in enumerate(find_families(of).get(family, {}).items()):
                draw_method(axis, *line, COLOURS[n])
            axis.legend(fontsize=6.5, frameon=False, loc="best")
            axis.set_xscale("log", base=2)
            axis.set_xticks([2, 5, 10, 25, 50, 100], ["2", "5", "10", "25", "50", "100"])
        top = max(row[0].get_ylim()[1], 1)
        row[0].set_ylim(-0.03 * top, top)
    for axis in axes[-1]:
        axis.set_xlabel("achieved, % of the documents", fontsize=8)
    explain(figure, [], "error bars")
    return figure


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


def draw_method(axis: "Axes", title: str, results: Sequence[Result], colour: str) -> None:
    """One method over its achieved lengths, with its intervals; evidence of no length has no place on the axis."""
    found = [(result.summary["budget"]["achieved"]["value"], result.summary["all"][METRIC]) for result in results]
    found = sorted((pair for pair in found if pair[0] and pair[1]["value"] is not None), key=lambda pair: pair[0])
    value, low, high = (numbers([one[name] for _, one in found]) * 100 for name in ("value", "low", "high"))
    axis.errorbar(
        [100 * achieved for achieved, _ in found],
        value,
        yerr=[value - low, high - value],
        color=colour,
        label=title,
        marker="o",
        markersize=3.5,
        linewidth=1.2,
        elinewidth=0.7,
        capsize=2,
    )
