"""The table at the end of a run: one row a point, one column a metric, each with its interval."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from experiments.experiment import Experiment
from experiments.published import Published, row_of
from ragjax.data.files import LoadedExamples
from ragjax.evals.run import Row

_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")


@dataclass(frozen=True)
class Column:
    """A heading, where a point's summary holds the interval, and the factor it is shown at."""

    heading: str
    find: Callable[[Row], Mapping[str, Any]]
    scale: float = 1.0


COLUMNS = (
    Column("Acc", lambda point: point["all"]["acc"], 100),
    Column("Acc\n(tokens)", lambda point: point["all"]["acc_tokens"], 100),
    Column("EM", lambda point: point["all"]["em"], 100),
    Column("F1", lambda point: point["all"]["f1"], 100),
    Column("Rate", lambda point: point["all"]["compression_rate"]),
    Column("Perplexity", lambda point: point["all"]["perplexity"]["interquartile_mean"]),
    Column("Tokens/s", lambda point: point["speed"]["tokens_per_second"]),
)

BUDGETS = (
    Column("Budget", lambda point: point["budget"]["requested"], 100),
    Column("Achieved", lambda point: point["budget"]["achieved"], 100),
)
"""Shown where some point has a budget: percent of the documents' tokens, by the reader's tokenizer."""

CAPTION = (
    "Acc (tokens): whole tokens only. Budget, Achieved: percent of the documents' tokens. Rate: retrieved over shown "
    "tokens. Perplexity: interquartile mean. Tokens/s: without compilation; methods decoded together share their time. "
    "Below each value its 95 % bootstrap interval over questions (Tokens/s: over batches, where there are several)."
)

COUNTS = {
    "failed": "failed",
    "unscored": "without a usable gold",
    "empty": "without evidence",
    "cut_evidence": "with evidence cut at its limit",
    "too_small": "with a budget that nothing fits",
    "cut_answers": "with an answer cut at its limit",
    "dropped_documents": "documents dropped from over-long prompts",
}
ALWAYS_COUNTED = ("failed", "unscored", "empty")


def format_cell(interval: Mapping[str, Any], scale: float) -> str:
    """A value over its interval; a dash for no value."""
    if interval["value"] is None:
        return "-"
    value, low, high = (None if interval[name] is None else interval[name] * scale for name in ("value", "low", "high"))
    shown = f"{value:,.1f}" if abs(value) < 1000 else f"{value:,.0f}"
    return shown if low is None or high is None else f"{shown}\n{low:.3g}-{high:.3g}"


def make_table(summary: Row, name: str) -> Table:
    """The table of a run's summary. Its title states the scale and the number of scored questions."""
    points = list(summary["points"].values())
    scored = [point["all"]["acc"]["n"] for point in points]
    n = str(scored[0]) if len(set(scored)) == 1 else f"{min(scored)} to {max(scored)}"
    table = Table(title=f"{name}: Acc, EM and F1 from 0 to 100 on {n} scored questions", caption=CAPTION)
    table.caption_justify, table.title_justify = "left", "left"
    table.add_column("Method", min_width=10)
    columns = (*(BUDGETS if any(point["budget"]["requested"]["value"] for point in points) else ()), *COLUMNS)
    for column in columns:
        table.add_column(column.heading, justify="right")
    for point in points:
        cells = (format_cell(column.find(point), column.scale) for column in columns)
        table.add_row(Text(point["label"]), *map(Text, cells))
    return table


def describe_counts(summary: Row) -> list[str]:
    """One line for each kind of row that a reader of the table has to know about; the first three always."""
    lines = []
    for name, words in COUNTS.items():
        found = {point["label"]: point["counts"][name] for point in summary["points"].values()}
        shown = ", ".join(f"{label} {times}" for label, times in found.items() if times)
        if shown or name in ALWAYS_COUNTED:
            lines.append(f"rows {words}: {shown or 'none'}")
    notes = sum((Counter(point["counts"]["notes"]) for point in summary["points"].values()), Counter())
    return [*lines, *describe_notes(notes)]


def describe_notes(counts: Mapping[str, int]) -> list[str]:
    """The notes with their numbers of rows; those that differ in numbers alone are one line, with the ranges."""
    groups: dict[str, list[str]] = {}
    for note in sorted(counts):
        groups.setdefault(_NUMBER.sub("#", note), []).append(note)
    return [f"note: {_merge(of)} (rows: {sum(counts[note] for note in of)})" for of in groups.values()]


def _merge(notes: Sequence[str]) -> str:
    columns = zip(*map(_NUMBER.findall, notes), strict=True)
    orders = (sorted(set(column), key=lambda number: float(number.replace(",", ""))) for column in columns)
    ranges = (order[0] if len(order) == 1 else f"{order[0]} to {order[-1]}" for order in orders)
    return _NUMBER.sub(lambda _: next(ranges), notes[0])


def describe_statuses(summary: Row) -> list[str]:
    """The share of each status at every point with a budget; those that share theirs on one line."""
    found: dict[str, list[str]] = {}
    for point in summary["points"].values():
        if point["budget"]["requested"]["value"]:
            found.setdefault(shares(point["counts"]), []).append(point["label"])
    return [f"statuses: {told}: {', '.join(labels)}" for told, labels in found.items()]


def shares(counts: Row) -> str:
    """The statuses of a point's rows as shares, the most frequent first."""
    of = sorted(counts["statuses"].items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{status} {times / counts['rows']:.0%}" for status, times in of)


def describe_choices(summary: Row) -> list[str]:
    """One line for each point whose texts were chosen: what was drawn, what was saved, and what it took."""
    return [
        f"{point['label']}: {describe_choice(point['choices'], point['speed']['seconds_per_question_by_stage'])}"
        for point in summary["points"].values()
        if point["choices"]
    ]


def describe_choice(made: Row, seconds: Mapping[str, float]) -> str:
    """How a point's texts were chosen, in a line."""
    share = sum(made["skipped"].values()) / made["questions"]
    why = ", ".join(f"{reason} {times}" for reason, times in made["skipped"].items())
    words = [f"sampling skipped for {share:.0%} of {made['questions']} questions{f' ({why})' if why else ''}"]
    if made["distinct"] is not None:
        words.append(f"{made['distinct']:.1f} of {made['candidates']} candidates distinct")
        words.append(f"{made['drawn_tokens']:,} tokens drawn, about {made['saved_tokens']:,} saved by the filter")
    if made["scores"]:
        words.append(f"scores {made['scores']['mean']:.4g}, standard deviation {made['scores']['std']:.2g}")
    if made["unmeasured"]:
        words.append(f"{made['unmeasured']} questions without any score, the first candidate shown")
    if made["subspace"]:
        words.append("residuals of a subspace of R = {} in {} dimensions".format(*made["subspace"]))
    if made["threshold"] is not None:
        words.append(f"threshold of the filter {made['threshold']:.4g}")
    if made["first_token"] is not None:
        words.append(f"first token: {made['first_token']}")
    stages = ", ".join(f"{stage} {of:.2g}" for stage, of in seconds.items())
    return "; ".join([*words, f"seconds a question: {stages}"])


def describe_data(loaded: LoadedExamples) -> list[str]:
    """One line that names the questions' source and split, and one for each warning about them."""
    warnings = list(loaded.warnings)
    if loaded.skipped:
        left_out = f"{len(loaded.skipped)} rows left out, listed in summary.json; the first: {loaded.skipped[0]}"
        warnings.append(left_out)
    return [f"questions: {loaded.summary()}", *(f"warning: {warning}" for warning in warnings)]


def describe_pending(pending: Mapping[str, str]) -> list[str]:
    """A line for each row that this study does not run, with the reason or the command that runs it."""
    return [f"not run: {name} ({words})" for name, words in pending.items()]


MEASURES = {
    "acc": ("Acc", lambda point: point["all"]["acc"]["value"], 100),
    "f1": ("F1", lambda point: point["all"]["f1"]["value"], 100),
    "em": ("EM", lambda point: point["all"]["em"]["value"], 100),
    "acc_hits_0": ("Acc at Hits 0", lambda point: point["hits_0"]["acc"]["value"], 100),
    "acc_hits_1": ("Acc at Hits 1", lambda point: point["hits_1"]["acc"]["value"], 100),
    "perplexity": ("perplexity", lambda point: point["all"]["perplexity"]["interquartile_mean"]["value"], 1),
    "rate": ("rate", lambda point: point["all"]["compression_rate"]["value"], 1),
    "seconds": ("seconds a question", lambda point: point["speed"]["seconds_per_question"], 1),
}


def label_published(points: Sequence[Experiment], published: Published) -> str:
    """What tells the published numbers from ours: never our hardware, and not our models unless all are the paper's."""
    used = {name for point in points for name in (point.compressor, point.target, point.reader, point.encoder)} - {None}
    return f"published, other {'hardware' if used <= set(published.models) else 'models/hardware'}"


def describe_findings(points: Sequence[Experiment], published: Published) -> list[str]:
    """A line for each thing that the paper reads from its numbers."""
    return [f"{label_published(points, published)}: {finding}" for finding in published.findings]


def make_published_table(
    measured: Sequence[tuple[Experiment, Row]], published: Published, row: Callable[[Experiment], str] = row_of
) -> Table:
    """The paper's table with ours above its numbers; a dash for what was not run, and for what the paper leaves out.

    `row` names the paper's row that a point makes again.
    """
    points = [point for point, _ in measured]
    ours = {(row(point), point.dataset or point.data): of for point, of in measured}
    stated = dict.fromkeys(dataset for values in published.rows.values() for dataset in values)
    datasets = list(stated or dict.fromkeys(point.dataset or point.data for point in points))
    headings = " / ".join(MEASURES[name][0] for name in published.metrics)
    label = label_published(points, published)
    table = Table(title=f"{published.source}: {headings}; ours above, below it {label}")
    table.title_justify = "left"
    table.add_column("Method")
    for dataset in datasets:
        table.add_column(dataset, justify="right")
    for name, values in published.rows.items():
        cells = [
            f"{measured_cell(ours.get((name, dataset)), published.metrics)}\n{published_cell(values.get(dataset))}"
            for dataset in datasets
        ]
        table.add_row(Text(name), *map(Text, cells))
    return table


def measured_cell(point: Row | None, metrics: Sequence[str]) -> str:
    """A point's values of some metrics in the paper's scale."""
    found = [None if point is None else MEASURES[name][1](point) for name in metrics]
    values = zip(metrics, found, strict=True)
    return " / ".join("-" if value is None else f"{value * MEASURES[name][2]:.1f}" for name, value in values)


def published_cell(values: Sequence[float] | None) -> str:
    """The paper's values, as many digits as it gives."""
    return " / ".join("-" if value is None else f"{value:g}" for value in values or [None])
