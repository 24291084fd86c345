"""Compressed texts coloured by the model whose choice each token was, from stored rows alone."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from ragjax.evals.run import Row

STYLES = {"compressor": "cyan", "target": "magenta", "both": "", "neither": "bold yellow"}
MEANINGS = {
    "compressor": "the compressor's first choice",
    "target": "the target's first choice",
    "both": "both models' first choice",
    "neither": "neither's: the mixture's own",
}


def legend() -> Text:
    """What each colour means."""
    parts = [(f"{winner}: {MEANINGS[winner]}", style) for winner, style in STYLES.items()]
    return Text("\n").join(Text(words, style=style) for words, style in parts)


def colour(row: Row) -> Text:
    """A row's decoded texts, each token in its winner's colour."""
    texts = [zip(trace["pieces"], trace["winners"], strict=True) for trace in row["traces"]]
    return Text("\n").join(Text.assemble(*((piece, STYLES[winner]) for piece, winner in text)) for text in texts)


def is_mixed(row: Row) -> bool:
    """Whether both models had a say in a text."""
    winners = {winner for trace in row["traces"] for winner in trace["winners"]}
    return len(row["traces"]) == 1 and winners not in ({"compressor"}, {"target"})


def choose_rows(rows: Sequence[Row], n: int) -> list[Row]:
    """The first n decoded texts, question by question: those of an ensemble, or of any decoder where there are none."""
    decoded = [row for row in rows if row.get("traces")]
    mixed = [row for row in decoded if is_mixed(row)] or decoded
    order = {item: i for i, item in enumerate(dict.fromkeys(row["item"] for row in mixed))}
    return sorted(mixed, key=lambda row: order[row["item"]])[:n]


def show_texts(rows: Sequence[Row], n: int, console: Console) -> None:
    """Print n coloured texts, each under its question and point, after the legend."""
    chosen = choose_rows(rows, n)
    console.print(legend())
    for row in chosen:
        console.print(Text(f"\n{row['question']}  ({row['point']}, {row['status']})", style="bold"))
        console.print(colour(row))
    if len(chosen) < n:
        console.print(f"\n{len(chosen)} of the {n} texts asked for: there are no more")
