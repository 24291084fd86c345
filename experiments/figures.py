"""`python -m experiments.figures RESULTS`: what a run's numbers look like, from its summary alone.

Drawn where the run has the points for it: quality and perplexity over the target's weight (FaviComp, figures 2 and 6),
accuracy by Hits for each method (figure 3), accuracy by Hits over the target's weight (figure 4), those of
`experiments.figures_xcompress`, and quality over the achieved length (`experiments.figures_budgets`). One panel a
dataset, or a setting, or a family; bands and bars are 95 % bootstrap intervals over questions.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from etils import epath

from experiments.correlation import METHOD, write_correlation
from experiments.figures_budgets import draw_budgets, find_families
from experiments.figures_xcompress import draw_ablation, draw_correlation, find_ablations
from experiments.panels import COLOURS, explain, numbers, panels
from experiments.results import Result, by_dataset, read_results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SPLITS = {"hits_0": "Hits 0", "hits_1": "Hits 1"}
ALPHA = "alpha, the target's weight"


def over_alpha(results: Sequence[Result]) -> list[Result]:
    """The results of one decoded text each, by weight; empty where fewer than three weights were run.

    Raises ValueError where two of them have the same weight: a line would mix what else tells them apart.
    """
    decoded = sorted((result for result in results if result.alpha is not None), key=lambda result: result.alpha)
    alphas = {result.alpha for result in decoded}
    if len(alphas) > 2 and len(alphas) < len(decoded):
        raise ValueError(f"{decoded[0].dataset} has several points at one alpha: draw runs with one point a weight")
    return decoded if len(alphas) > 2 else []


def draw_alphas(results: Sequence[Result]) -> "Figure | None":
    """Quality above, perplexity below, over the target's weight; None where no dataset has three weights."""
    swept = {name: of for name, results_ in by_dataset(results).items() if (of := over_alpha(results_))}
    if not swept:
        return None
    figure, axes = panels(2, list(swept))
    for column, of in enumerate(swept.values()):
        quality, perplexity = axes[0][column], axes[1][column]
        for n, metric in enumerate(("acc", "f1")):
            draw_line(quality, of, lambda one, metric=metric: one["all"][metric], metric.capitalize(), COLOURS[n], 100)
        draw_line(perplexity, of, lambda one: one["all"]["perplexity"]["interquartile_mean"], "", COLOURS[2])
        perplexity.set_xlabel(ALPHA)
    axes[0][0].set_ylabel("quality, 0 to 100")
    axes[1][0].set_ylabel("perplexity\n(interquartile mean)")
    explain(figure, axes[0])
    return figure


def draw_hits(results: Sequence[Result]) -> "Figure | None":
    """Accuracy of each method on questions whose documents lack the answer, and on those whose documents hold it.

    Over the target's weight where three or more were run, two of them inside (0, 1); else the methods side by side,
    the rivals too. None where no question has a value. What `to_compare` leaves out has figures of its own.
    """
    results = to_compare(results)
    grouped = {name: of for name, of in by_dataset(results).items() if any(has_hits(one) for one in of)}
    if not grouped:
        return None
    figure, axes = panels(1, [f"{name}\n{describe_hits(of)}" for name, of in grouped.items()])
    titles = list(dict.fromkeys(result.title for result in results))  # One colour a method, whatever a dataset lacks.
    for axis, of in zip(axes[0], grouped.values(), strict=True):
        if is_sweep(of):
            draw_hits_lines(axis, of)
        else:
            draw_hits_bars(axis, of, titles)
    axes[0][0].set_ylabel("Acc, 0 to 100")
    explain(figure, axes[0])
    return figure


FIGURES: dict[str, Callable[[Sequence[Result]], "Figure | None"]] = {
    "alphas.png": draw_alphas,
    "hits.png": draw_hits,
    "ablation.png": draw_ablation,
    "budgets.png": draw_budgets,
}


def to_compare(results: Sequence[Result]) -> list[Result]:
    """The results without single candidates, and the first only of points that differ in a setting or a budget."""
    places = {id(one): n for n, one in enumerate(results)}
    varied = [of for found in find_ablations(results).values() for of in found]
    families = [lines for of in by_dataset(results).values() for lines in find_families(of).values()]
    varied += [of for lines in families for of in lines.values()]
    groups = [sorted(places[id(one)] for one in of) for of in varied]
    others = {place for group in groups for place in group[1:]}
    return [one for n, one in enumerate(results) if n not in others and one.settings["method"] != METHOD]


def has_hits(result: Result) -> bool:
    """Whether a result has an accuracy on either side."""
    return any(result.summary[split]["acc"]["value"] is not None for split in SPLITS)


def is_sweep(results: Sequence[Result]) -> bool:
    """Whether three weights or more were run, FaviComp's own at two: the ends alone are methods of their own."""
    return sum(0 < result.alpha < 1 for result in over_alpha(results)) > 1


def describe_hits(results: Sequence[Result]) -> str:
    """The questions on either side."""
    counts = {words: max(one.summary[split]["acc"]["n"] for one in results) for split, words in SPLITS.items()}
    return ", ".join(f"{words}: n = {n:,}" for words, n in counts.items())


def draw_line(
    axis: "Axes",
    results: Sequence[Result],
    find: Callable[[Mapping], Mapping],
    label: str,
    colour: str,
    scale: float = 1,
) -> None:
    """One metric over alpha, in its interval."""
    found = [(result.alpha, find(result.summary)) for result in results]
    found = [(alpha, interval) for alpha, interval in found if interval["value"] is not None]
    alphas = [alpha for alpha, _ in found]
    value, low, high = (numbers([interval[name] for _, interval in found]) * scale for name in ("value", "low", "high"))
    axis.fill_between(alphas, low, high, color=colour, alpha=0.15, linewidth=0)
    axis.plot(alphas, value, color=colour, marker="o", markersize=3.5, linewidth=1.4, label=label)
    axis.set_xticks(alphas)


def draw_hits_lines(axis: "Axes", results: Sequence[Result]) -> None:
    """Accuracy on either side over alpha."""
    for n, (split, words) in enumerate(SPLITS.items()):
        draw_line(axis, over_alpha(results), lambda one, split=split: one[split]["acc"], words, COLOURS[n], 100)
    axis.set_xlabel(ALPHA)


def draw_hits_bars(axis: "Axes", results: Sequence[Result], titles: Sequence[str]) -> None:
    """The methods side by side at Hits 0 and at Hits 1, coloured by their place in `titles`; no value, no bar."""
    width = 0.8 / len(results)
    for n, result in enumerate(results):
        intervals = [result.summary[split]["acc"] for split in SPLITS]
        value, low, high = (numbers([one[name] for one in intervals]) * 100 for name in ("value", "low", "high"))
        places = np.arange(len(SPLITS)) + (n - (len(results) - 1) / 2) * width
        colour = COLOURS[titles.index(result.title) % len(COLOURS)]
        limit = "" if result.budget is None else f", budget {result.budget:g}"
        bars = {"width": width * 0.92, "color": colour, "label": result.title + limit}
        axis.bar(places, value, yerr=[value - low, high - value], error_kw={"elinewidth": 0.8, "capsize": 2}, **bars)
    axis.set_xticks(range(len(SPLITS)), SPLITS.values())


def write_figures(folder: str | os.PathLike) -> list[epath.Path]:
    """Draw what the results in a folder allow, into that folder; the files written.

    Raises:
      FileNotFoundError: the folder holds no finished run.
      ValueError: a dataset has several points at one alpha.
    """
    results = read_results(folder)
    drawn = {name: draw(results) for name, draw in FIGURES.items()}
    drawn["correlation.png"] = draw_correlation(read_correlation(epath.Path(folder)))
    written = []
    for name, figure in drawn.items():
        if figure is not None:
            path = epath.Path(folder) / name
            with path.open("wb") as file:
                figure.savefig(file, format="png")
            written.append(path)
    return written


def read_correlation(folder: epath.Path) -> list[Mapping]:
    """The correlation studies that a folder holds, made now where it has the rows alone."""
    path = folder / "correlation.json"
    return json.loads(path.read_bytes())["studies"] if path.exists() else write_correlation(folder)


def main(argv: Sequence[str] | None = None) -> int:
    """The program."""
    parser = argparse.ArgumentParser(prog="python -m experiments.figures", description="Draw a run's figures.")
    parser.add_argument("results", help="a folder of results")
    folder = parser.parse_args(argv).results
    try:
        written = write_figures(folder)
    except ModuleNotFoundError as error:
        print(f"error: {error}; figures need the extra: pip install ragjax[plots]", file=sys.stderr)
        return 2
    except (FileNotFoundError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join(map(str, written)) or f"nothing to draw: {folder} has no sweep, no hits and no candidates")
    return 0


if __name__ == "__main__":
    sys.exit(main())
