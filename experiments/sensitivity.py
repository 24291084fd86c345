"""`python -m experiments.sensitivity RESULTS`: the same answers judged again, by other thresholds or another judge.

Nothing is decoded: answers, units and documents are those that the run has left. With another judge the source map is
that of the run ("primary"), or found again by the judge itself ("own"). The results go to `sensitivity.json`, beside
those that are there, for the report.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from etils import epath

from experiments.frontier import cluster_of, exclude
from experiments.results import read_points
from experiments.sources import FILE as SOURCES
from ragjax.cite.averages import laundering_gaps, reattribution_shares
from ragjax.cite.judges import make_judge
from ragjax.cite.records import Cited
from ragjax.cite.scoring import score
from ragjax.compress.base import Unit
from ragjax.data.records import Document
from ragjax.evals.parts import write_json
from ragjax.evals.run import Row
from ragjax.evals.significance import bootstrap_interval
from ragjax.runtime import setup

FILE = "sensitivity.json"
TAUS = (0.3, 0.5, 0.7)


@dataclass(frozen=True)
class Judgement:
    """One way to judge: by whom, from which probability on, and with which source map."""

    judge: Any
    tau: float
    sources: str


def read_rows(folder: epath.Path, limit: int | None) -> dict[str, list[Row]]:
    """The rows of each point that has an answer, by hash, of the first `limit` questions of each data set."""
    kept = first_questions(folder, limit)
    rows = [json.loads(line) for line in (folder / "items.jsonl").read_text().splitlines()]
    failed = exclude(rows)
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.get("citation") and row["item"] in kept and row["item"] not in failed:
            found.setdefault(row["settings"], []).append(row)
    return found


def first_questions(folder: epath.Path, limit: int | None) -> dict[str, Row]:
    """The sources of the first questions of each data set, by item."""
    sources = [json.loads(line) for line in (folder / SOURCES).read_text().splitlines()]
    by_data: dict[str, list[Row]] = {}
    for source in sources:
        by_data.setdefault(str(source["data"]), []).append(source)
    return {source["item"]: source for of in by_data.values() for source in of[:limit]}


def as_cited(row: Row, source: Row) -> Cited:
    """A row's answer, units and documents as they were judged, in the sentences that its sids count."""
    units = tuple(
        Unit(one["text"], None if one["sources"] is None else tuple(one["sources"]), tuple(map(tuple, one["spans"])))
        for one in row["units"]
    )
    sentences: list[list[str]] = [[] for _ in source["documents"]]
    for one in source["sentences"]:
        text = source["documents"][one["document"]]["text"]
        sentences[one["document"]].append(text[one["start"] : one["end"]])
    documents = tuple(
        Document(one["text"], one["title"], sentences=tuple(own))
        for one, own in zip(source["documents"], sentences, strict=True)
    )
    return Cited(row["item"], source["question"], row["answer"]["text"], units, documents)


def judge_again(rows: Sequence[Row], sources: Mapping[str, Row], how: Judgement, mode: str) -> Row:
    """A point's citation scores by another judgement, each with its interval."""
    cited = [as_cited(row, sources[row["item"]]) for row in rows]
    maps = [{int(unit): tuple(sids) for unit, sids in row["citation"]["sources"].items()} for row in rows]
    scored = score(cited, how.judge, tau=how.tau, mode=mode, sources=maps if how.sources == "primary" else None)
    clusters = [cluster_of(row) for row in rows]
    values = {
        f"{view}_{part}": [getattr(getattr(one, view), part) for one in scored]
        for view in ("generated", "grounded")
        for part in ("precision", "recall")
    }
    values |= {"laundering": laundering_gaps(scored), "reattribution_rate": reattribution_shares(scored)}
    found = {name: bootstrap_interval(of, clusters=clusters) for name, of in values.items()}
    return {name: {key: getattr(one, key) for key in ("value", "low", "high", "n")} for name, one in found.items()}


def evaluate(folder: epath.Path, judgements: Sequence[Judgement], limit: int | None) -> list[Row]:
    """What each judgement makes of every point of a run."""
    points = {point["hash"]: point["settings"] for point in read_points(folder, SOURCES, "study of citations")}
    rows, sources = read_rows(folder, limit), first_questions(folder, limit)
    evaluations = []
    for how in judgements:
        known = {hash_: of for hash_, of in rows.items() if hash_ in points}
        found = {hash_: judge_again(of, sources, how, points[hash_]["counting"]) for hash_, of in known.items()}
        named = {
            "judge": how.judge.name,
            "tau": how.tau,
            "sources": how.sources,
            "judge_settings": how.judge.describe(),
        }
        evaluations.append({**named, "questions": max(map(len, rows.values()), default=0), "points": found})
    return evaluations


def merge(folder: epath.Path, evaluations: Sequence[Row]) -> epath.Path:
    """Add evaluations to those that a folder has; one that is there by the same name is made anew."""
    path = folder / FILE
    old = json.loads(path.read_bytes())["evaluations"] if path.exists() else []
    made = {name_of(one) for one in evaluations}
    write_json(path, {"evaluations": [*(one for one in old if name_of(one) not in made), *evaluations]})
    return path


def name_of(evaluation: Row) -> tuple:
    """What tells one evaluation from another."""
    return tuple(evaluation[name] for name in ("judge", "tau", "sources", "questions"))


def main(argv: Sequence[str] | None = None, make: Callable[..., Any] = make_judge) -> int:
    """The program; `make` stands in for the judges in tests."""
    parser = argparse.ArgumentParser(prog="python -m experiments.sensitivity", description="Judge answers again.")
    parser.add_argument("results", help="a folder of results")
    parser.add_argument("--judge", default="lexical", metavar="NAME", help='"lexical" or a model (default: lexical)')
    parser.add_argument("--tau", type=float, nargs="+", default=list(TAUS), help="thresholds of the probability")
    parser.add_argument("--sources", choices=("own", "primary"), default="own", help="the map of recovered sources")
    parser.add_argument("--limit", type=int, metavar="N", help="the first N questions of each data set")
    arguments = parser.parse_args(argv)
    setup()
    try:
        folder = epath.Path(arguments.results)
        judge = make(arguments.judge, folder=folder / "judgements")
        ways = [Judgement(judge, tau, arguments.sources) for tau in arguments.tau]
        print(merge(folder, evaluate(folder, ways, arguments.limit)))
    except (ValueError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
