"""The table at the end of a run: one row a point, one column a metric, each with its interval."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from ragjax.evals.run import Row


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

CAPTION = (
    "Acc (tokens): whole tokens only. Rate: retrieved over shown tokens. Perplexity: interquartile mean. Tokens/s: "
    "without compilation. Below each value its 95 % bootstrap interval over questions."
)

COUNTS = {
    "failed": "failed",
    "unscored": "without a usable gold",
    "empty": "without evidence",
    "cut_evidence": "with evidence cut at its limit",
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
    for column in COLUMNS:
        table.add_column(column.heading, justify="right")
    for point in points:
        cells = (format_cell(column.find(point), column.scale) for column in COLUMNS)
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
    return lines
