"""`python -m experiments.correlation RESULTS`: does a better score of a candidate go with a better answer from it?

A study of candidates has one point a draw: the rows of one question are read from C summaries, each with all scores.
This gathers them by dataset, correlates each score with the answers (`ragjax.evals.correlation`), prints one table a
dataset with the published numbers beside ours, and leaves `correlation.json` and `correlation.csv` in the folder.
"""

import argparse
import csv
import io
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from etils import epath
from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiments.published_xcompress import TABLE_1
from experiments.results import read_points
from experiments.summary import is_failed
from ragjax.evals.correlation import QUALITIES, correlate
from ragjax.evals.parts import decode_lines, digest, write_json, write_whole
from ragjax.evals.run import Row
from ragjax.evals.significance import bootstrap_interval

SCORERS = {"ppl": "PPL", "longppl": "LongPPL", "sps": "SPS", "sps_drop": "SPS, no first token"}
"""The scores' names in a table; any other stands as it is."""

METHOD = "candidate"
SCALE = "quality in [0, 1]; bins from the worst score to the best; intervals are 95 % bootstraps over questions"
QUALITY_TITLES = {"em": "EM", "f1": "F1"}
STATISTICS = ("pearson", "auroc", "auroc_within", "spearman", "spearman_within")
COLUMNS = ("dataset", "set", "scorer", "quality", "statistic", "value", "low", "high", "n", "left_out", "published")
CAPTION = (
    "Positive, and AUROC above 0.5: a better score goes with a better answer. Pearson: of rank with mean quality a "
    "rank, as published; AUROC and Spearman: over all candidates, and within questions (mean). Below each value its "
    f"95 % bootstrap interval over questions. n: questions used. Published: {TABLE_1.source}; another model."
)


@dataclass(frozen=True)
class Candidates:
    """The candidate rows of one dataset and one set of settings: `rows[item]` [C], by draw; None: no such row.

    `label` tells the sets of one dataset apart, None for a dataset's only set.
    """

    dataset: str
    label: str | None
    rows: Mapping[str, Sequence[Row | None]]

    def column(self, *path: str) -> list[list[Any]]:
        """One value of each row [Q, C], found by its keys; None for a row that has no result or no such value."""
        return [[find(row, path) for row in of] for of in self.rows.values()]

    @property
    def present(self) -> list[list[Row]]:
        """The rows with a result, by question."""
        return [[row for row in of if row is not None and not is_failed(row)] for of in self.rows.values()]


def find(row: Row | None, path: Sequence[str]) -> Any:
    """A value in a row by its keys, None where the row has no result or no such value."""
    if row is None or is_failed(row):
        return None
    for key in path:
        row = row.get(key)
        if row is None:
            return None
    return row


def read_candidates(folder: str | os.PathLike) -> list[Candidates]:
    """The sets of candidate rows in a folder of results, in the order of its points; empty where it has none.

    Raises:
      FileNotFoundError: the folder holds no finished run.
    """
    folder, points = epath.Path(folder), read_points(folder, "items.jsonl")
    draws = {point["hash"]: point["settings"] for point in points if point["settings"].get("method") == METHOD}
    rows = decode_lines((folder / "items.jsonl").read_bytes()) if draws else []
    return list(gather([row for row in rows if row["settings"] in draws], draws))


def gather(rows: Sequence[Row], settings: Mapping[str, Mapping[str, Any]]) -> Iterator[Candidates]:
    """The sets of candidate rows: what differs in nothing but the draw, by dataset. `settings` is by a row's hash."""
    same = {hash_: digest({**of, "draw": None}) for hash_, of in settings.items()}
    draws = {name: sorted({of["draw"] for h, of in settings.items() if same[h] == name}) for name in same.values()}
    sets: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        dataset = row.get("dataset") or settings[row["settings"]].get("dataset") or "questions"
        sets.setdefault((same[row["settings"]], dataset), []).append(row)
    times = Counter(dataset for _, dataset in sets)
    for (name, dataset), of in sets.items():
        found: dict[str, list[Row | None]] = {row["item"]: [None] * len(draws[name]) for row in of}
        for row in of:
            found[row["item"]][draws[name].index(settings[row["settings"]]["draw"])] = row
        label = of[0]["point"].replace(f" draw {settings[of[0]['settings']]['draw']}", "")
        yield Candidates(dataset, label if times[dataset] > 1 else None, found)


def study_candidates(candidates: Candidates) -> Row:
    """One set's counts and the correlation of each of its scores, with the published numbers where there are some."""
    present = candidates.present
    distinct = bootstrap_interval([len({row["text"] for row in rows}) if rows else None for rows in present])
    names = dict.fromkeys(name for rows in present for row in rows for name in row["candidate"]["scores"])
    quality = [candidates.column("scores", name) for name in QUALITIES]
    rows = [row for of in candidates.rows.values() for row in of]
    return {
        "dataset": candidates.dataset,
        "set": candidates.label,
        "questions": len(candidates.rows),
        "candidates": len(next(iter(candidates.rows.values()))),
        "distinct": asdict(distinct),
        "rows": dict(Counter("missing" if row is None else "failed" if is_failed(row) else "done" for row in rows)),
        "scorers": {
            name: {
                **asdict(correlate(candidates.column("candidate", "scores", name), *quality)),
                "published": published(candidates.dataset, name),
            }
            for name in names
        },
    }


def published(dataset: str, scorer: str) -> Row | None:
    """The paper's numbers for a score and a dataset, None where it has none."""
    values = TABLE_1.rows.get(SCORERS.get(scorer, ""), {}).get(dataset)
    return None if values is None else dict(zip(TABLE_1.metrics, values, strict=True))


def list_statistics(study: Row) -> Iterator[Row]:
    """One line a scorer, quality and statistic, as in the columns of `correlation.csv`."""
    for scorer, found in study["scorers"].items():
        names = {"dataset": study["dataset"], "set": study["set"], "scorer": scorer}
        for statistic in STATISTICS:
            whole = statistic.startswith("auroc")
            for quality in QUALITIES[:1] if whole else QUALITIES:
                key = statistic if whole else f"{statistic}_{quality}"
                stated = {"quality": quality, "statistic": statistic, "published": (found["published"] or {}).get(key)}
                yield {**names, **stated, **(found[statistic] if whole else found[statistic][quality])}
        for quality in QUALITIES:
            for rank, one in enumerate(found["bins"][quality], 1):
                yield {**names, "quality": quality, "statistic": f"mean at rank {rank}", "published": None, **one}


def write_correlation(folder: str | os.PathLike) -> list[Row]:
    """Study all candidate rows of a folder and write both files; nothing where there are none. Returns the studies.

    Raises:
      FileNotFoundError: the folder holds no finished run.
    """
    folder, studies = epath.Path(folder), [study_candidates(of) for of in read_candidates(folder)]
    if studies:
        write_json(folder / "correlation.json", {"scale": SCALE, "published": TABLE_1.source, "studies": studies})
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(line for study in studies for line in list_statistics(study))
        write_whole(folder / "correlation.csv", text.getvalue().encode())
    return studies


def make_correlation_table(study: Row) -> Table:
    """One dataset's table: a row a scorer and quality."""
    distinct = study["distinct"]["value"]
    told = (
        "no result" if distinct is None else f"on average {distinct:.1f} of {study['candidates']} candidates distinct"
    )
    table = Table(title=f"{name_of(study)}: {study['questions']:,} questions, {told}", caption=CAPTION)
    table.caption_justify, table.title_justify = "left", "left"
    for heading in ("Score", "Answer"):
        table.add_column(heading)
    for heading in ("n", "Pearson\nover bins", "AUROC", "AUROC\nwithin", "Spearman", "Spearman\nwithin", "published"):
        table.add_column(heading, justify="right")
    for scorer, found in study["scorers"].items():
        for quality in QUALITIES:
            table.add_row(*map(Text, cells_of(scorer, found, quality)))
    return table


def name_of(study: Row) -> str:
    """A set's dataset, with what tells it from others of that dataset."""
    return study["dataset"] if study["set"] is None else f"{study['dataset']}, {study['set']}"


def cells_of(scorer: str, found: Row, quality: str) -> list[str]:
    """A row of the table; AUROC stands with EM."""
    first = quality == QUALITIES[0]
    values = found["published"] or {}
    stated = {"r": values.get(f"pearson_{quality}"), "AUROC": values.get("auroc") if first else None}
    return [
        SCORERS.get(scorer, scorer) if first else "",
        QUALITY_TITLES[quality],
        f"{found['questions']:,}" if first else "",
        format_signed(found["pearson"][quality]),
        format_signed(found["auroc"]) if first else "",
        format_signed(found["auroc_within"]) if first else "",
        format_signed(found["spearman"][quality]),
        format_signed(found["spearman_within"][quality]),
        "\n".join(f"{name} {value:g}" for name, value in stated.items() if value is not None) or "-",
    ]


def format_signed(interval: Mapping[str, Any]) -> str:
    """A value over its interval, two decimals and signs; a dash for no value."""
    if interval["value"] is None:
        return "-"
    shown = f"{interval['value']:.2f}"
    return shown if interval["low"] is None else f"{shown}\n{interval['low']:.2f}, {interval['high']:.2f}"


def describe_study(study: Row) -> list[str]:
    """One line for each thing left out of a dataset's table, and how often."""
    counts = [(kind, times) for kind, times in study["rows"].items() if kind != "done"]
    lines = [f"{name_of(study)}: candidate rows {kind}: {times:,}" for kind, times in counts]
    for scorer, found in study["scorers"].items():
        counted = {
            "candidates without this score": found["unscored"],
            **{f"questions left out ({reason})": times for reason, times in found["left_out"].items()},
            "questions whose candidates all score the same": found["tied"],
        }
        shown = "; ".join(f"{words}: {times:,}" for words, times in counted.items() if times)
        if shown:
            lines.append(f"{name_of(study)}, {SCORERS.get(scorer, scorer)}: {shown}")
    return lines


def report_correlation(folder: str | os.PathLike, console: Console) -> bool:
    """Study the candidate rows of a folder, write the files and print the tables; whether there were any rows.

    Raises:
      FileNotFoundError: the folder holds no finished run.
    """
    studies = write_correlation(folder)
    for study in studies:
        console.print(make_correlation_table(study))
        for line in describe_study(study):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    return bool(studies)


def main(argv: Sequence[str] | None = None) -> int:
    """The program."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.correlation", description="Correlate the scores of candidates with the answers."
    )
    parser.add_argument("results", help="a folder of results")
    folder = parser.parse_args(argv).results
    try:
        found = report_correlation(folder, Console() if sys.stdout.isatty() else Console(width=120))
    except FileNotFoundError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if not found:
        print(f"error: {folder} has no rows of the method {METHOD!r}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
