"""The table of a study of citations: one row a point, scores beside the length that the evidence really had."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from rich.table import Table
from rich.text import Text

from experiments.frontier import few_citations
from experiments.table import BUDGETS, Column, format_cell
from ragjax.evals.run import Row

_HEADINGS = {
    "generated_precision": "P gen.",
    "generated_recall": "R gen.",
    "grounded_precision": "P src.",
    "grounded_recall": "R src.",
    "laundering": "gap P",
    "reattribution_rate": "re-\nattr.",
    "share_citing": "cites",
}
_BARE = ("reattribution_rate", "share_citing")
"""Shown without their interval, for want of room."""

QUALITY = ("str_em", "rouge_l", "answer_f1", "evidence_f1")
"""The measures of answer quality that a table has room for; the summary and the report have all."""

_NOTHING: Mapping[str, Any] = {"value": None, "low": None, "high": None}

CAPTION = (
    "All from 0 to 100. Achieved: percent of the documents' tokens. P, R: precision and recall of citations, against "
    "the units that were shown (gen.) and the source sentences they lead to (src.); gap P: the one less the other. "
    "Re-attr.: of the units without a declared source, those for which one was found. Cites: answers with a citation. "
    "Below each value its 95 % bootstrap interval over questions."
)


def make_frontier_table(summary: Row, name: str) -> Table:
    """The table of a run's summary; its title names the judge, the citer and the number of questions."""
    points = list(summary["points"].values())
    table = Table(title=f"{name}: citations on {describe_n(points)} questions", caption=CAPTION)
    table.caption_justify, table.title_justify = "left", "left"
    table.add_column("Method", min_width=10)
    names = {**_HEADINGS, **{key: key.replace("_", "\n") for key in quality_of(points) if key in QUALITY}}
    columns = [BUDGETS[1], *(Column(heading, partial(find, key), 100) for key, heading in names.items())]
    for column in columns:
        table.add_column(column.heading, justify="right")
    for point in points:
        cells = (format_cell(column.find(point), column.scale) for column in columns)
        table.add_row(Text(point["label"]), *map(Text, cells))
    return table


def find(key: str, point: Row) -> Mapping[str, Any]:
    """A point's interval of one score, or none."""
    found = point["frontier"].get(key) or _NOTHING
    return {**found, "low": None, "high": None} if key in _BARE else found


def quality_of(points: list[Row]) -> list[str]:
    """The measures of answer quality that some point has."""
    scores = [(name, value) for point in points for name, value in point["frontier"].items()]
    found = dict.fromkeys(name for name, value in scores if isinstance(value, dict) and "low" in value)
    return [name for name in found if name not in _HEADINGS]


def describe_n(points: list[Row]) -> str:
    """The number of questions that the points rest on."""
    counts = sorted({point["frontier"]["share_citing"]["n"] for point in points})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def describe_frontier(summary: Row) -> list[str]:
    """What a reader of the table has to know: who judged and cited, what was left out; nothing for other studies."""
    if "excluded" not in summary:
        return []
    lines = [f"judged by {', '.join(summary['judges'])}; citations by {', '.join(summary['citers'])}"]
    excluded = [one["id"] for one in summary["excluded"].values()]
    lines.append(f"questions left out of every point because one failed: {', '.join(excluded) or 'none'}")
    few = few_citations(summary)
    if few:
        lines.append(f"under 10 % of the answers cite anything, so this measures no citations: {', '.join(few)}")
    return lines
