"""A finished frontier study as its report reads it: the only place that knows the keys of the files in its folder.

`manifest.json` and `summary.json` are read whole, `sources.jsonl` and `items.jsonl` line by line: of the rows only the
statuses, the counts of pairs and the questions to be inspected stay. No statistic is made here but two sums that no
summary holds: pairs of each point that the judge's limit cut, and a question's generator and verifier tokens together.

`sensitivity.json` is optional. It holds the same summary by other judges and thresholds:

    {"evaluations": [{"judge": str, "tau": float, "questions": int,
                      "sources": "primary" | "own",        the recovered sources held fixed, or found again
                      "points": {hash: {key: {"value", "low", "high", "n"}}}}]}

where a key is one of a point's "frontier", as "grounded_precision" or "laundering".
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from etils import epath

from experiments.figures_budgets import FAMILIES
from experiments.results import Result, read_points
from ragjax.evals.parts import digest
from ragjax.evals.run import Row

VIEWS = ("generated_precision", "generated_recall", "grounded_precision", "grounded_recall")
DIAGNOSTICS = ("laundering", "reattribution_rate", "share_citing")
MODES = ("summary", "span", "recovered")
TOTAL = "verification_span_total_tokens"
IDENTITY, OTHER = "identity", "others"
REFERENCES = {"identity": IDENTITY, "raw": IDENTITY}


@dataclass(frozen=True)
class Number:
    """A value of the summary with its interval and the questions it is over, where it has them."""

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int | None = None


NOTHING = Number(None)


@dataclass(frozen=True)
class Point:
    """A point of the study. `numbers`: all that its summary says, by flat key: "achieved", "grounded_precision" ..."""

    hash: str
    label: str
    title: str
    family: str
    dataset: str
    budget: float | None
    numbers: Mapping[str, Number]
    quality: tuple[str, ...] = ()
    counts: Mapping[str, Any] = field(default_factory=dict)

    def number(self, key: str) -> Number:
        """The number of a key, empty where the summary has none."""
        return self.numbers.get(key, NOTHING)


@dataclass(frozen=True)
class Test:
    """A paired comparison of a point with another in one number; `against` is None where the study lacks that label.

    `p_holm` is corrected within the number's family of tests, `p_mcnemar` is for binary outcomes alone, `only` the
    questions that only the one and only the other has. `clusters`: the papers that were resampled, where they were.
    """

    key: str
    point: Point
    against: Point | None
    against_label: str
    difference: Number
    left_out: int
    p: float | None
    p_holm: float | None
    p_mcnemar: float | None
    only: tuple[int | None, int | None]
    clusters: int | None


@dataclass(frozen=True)
class Evaluation:
    """The same answers by another judge or threshold: its numbers by point's hash and key, as `Point.numbers`."""

    judge: str
    tau: float
    sources: str
    questions: int
    numbers: Mapping[str, Mapping[str, Number]]

    def number(self, point: Point, key: str) -> Number:
        """The number of a point, empty where this evaluation has none."""
        return self.numbers.get(point.hash, {}).get(key, NOTHING)


@dataclass(frozen=True)
class Excluded:
    """A question that failed at some point and is left out of all. `reasons`: (point's label, status) of each."""

    item: str
    id: str
    question: str
    dataset: str
    reasons: tuple[tuple[str, str], ...]


@dataclass
class Tally:
    """What the rows say that no summary holds, gathered while they are read."""

    failures: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    asked: dict[str, Row] = field(default_factory=dict)
    judges: dict[tuple[str, float], None] = field(default_factory=dict)
    citers: dict[str, None] = field(default_factory=dict)
    pairs: dict[str, list[int]] = field(default_factory=dict)
    rows: dict[str, dict[str, Row]] = field(default_factory=dict)


@dataclass(frozen=True)
class FrontierStudy:
    """All that a report shows. `questions`: how many of each dataset; `inspected`: source and rows by point's hash."""

    run: str
    name: str
    execution: Mapping[str, Any]
    points: tuple[Point, ...]
    questions: Mapping[str, int]
    excluded: tuple[Excluded, ...]
    judges: tuple[tuple[str, float], ...]
    citers: tuple[str, ...]
    tests: tuple[Test, ...]
    skipped: tuple[str, ...]
    inspected: tuple[tuple[Row, Mapping[str, Row]], ...]
    evaluations: tuple[Evaluation, ...]

    @property
    def datasets(self) -> tuple[str, ...]:
        """The datasets, in the order of the points."""
        return tuple(dict.fromkeys(point.dataset for point in self.points))

    def of(self, dataset: str) -> list[Point]:
        """The points over a dataset."""
        return [point for point in self.points if point.dataset == dataset]

    def quality(self, dataset: str) -> list[str]:
        """The keys of the measures of answer quality that some point over a dataset has."""
        return list(dict.fromkeys(key for point in self.of(dataset) for key in point.quality))


def read_study(folder: str | os.PathLike, inspect: int = 50) -> FrontierStudy:
    """The study in a folder, with the rows of its first `inspect` questions, taken from all datasets in turn.

    Raises:
      FileNotFoundError: a file is missing.
      ValueError: a file is not what a frontier study writes; the message names file, line and key.
    """
    folder = epath.Path(folder)
    for name in ("summary.json", "items.jsonl", "sources.jsonl"):
        listed = read_points(folder, name, "study of citations")
    manifest, summary = (json.loads((folder / name).read_bytes()) for name in ("manifest.json", "summary.json"))
    order, sources = read_sources(folder / "sources.jsonl", inspect)
    tally = read_rows(folder / "items.jsonl", sources)
    known = [point for point in listed if point["hash"] in summary["points"]]
    points = []
    for point in known:
        with reading(f"summary.json, point {point['label']!r}"):
            points.append(read_point(point, summary["points"][point["hash"]], tally.pairs))
    return FrontierStudy(
        run=digest([point["hash"] for point in listed]),
        name=manifest["execution"].get("study", folder.name),
        execution=manifest["execution"],
        points=tuple(points),
        questions={name: list(order.values()).count(name) for name in dict.fromkeys(order.values())},
        excluded=tuple(excluded(tally, order)),
        judges=tuple(tally.judges),
        citers=tuple(tally.citers),
        tests=tuple(read_tests(summary.get("paired") or {}, points)),
        skipped=tuple(map(str, summary.get("skipped_rows") or ())),
        inspected=tuple((source, tally.rows.get(item, {})) for item, source in sources.items()),
        evaluations=tuple(read_evaluations(folder / "sensitivity.json")),
    )


def read_point(listed: Row, summary: Row, pairs: Mapping[str, Sequence[int]]) -> Point:
    """A point from its place in the manifest and its summary. Raises KeyError for what a study of citations has."""
    result, frontier = Result(listed["settings"], summary), summary["frontier"]
    numbers = dict(flatten({**summary["budget"], **frontier}))
    numbers |= {f"count_{name}": Number(n) for name, n in summary["counts"].items() if isinstance(n, int)}
    spent = [numbers.get(f"verification_span_{side}_tokens", NOTHING).value for side in ("generator", "verifier")]
    if None not in spent:
        numbers[TOTAL] = Number(sum(spent))
    judged = pairs.get(listed["hash"], (0, 0))
    numbers |= {"judged_pairs": Number(judged[0]), "truncated_pairs": Number(judged[1])}
    quality = [name for name, of in frontier.items() if is_interval(of) and name not in (*VIEWS, *DIAGNOSTICS)]
    return Point(
        hash=listed["hash"],
        label=summary.get("label", listed["label"]),
        title=summary.get("title") or result.title,
        family=family_of(result.settings["method"]),
        dataset=result.dataset,
        budget=result.budget,
        numbers=numbers,
        quality=tuple(quality),
        counts=summary["counts"],
    )


def read_tests(paired: Mapping[str, Sequence[Row]], points: Sequence[Point]) -> Iterator[Test]:
    """The paired comparisons of a summary, number by number; those of points that it lacks are passed over."""
    hashes, labels = ({getattr(point, name): point for point in points} for name in ("hash", "label"))
    for key, rows in paired.items():
        for row in rows:
            if row["settings"] not in hashes:
                continue
            with reading(f"summary.json, paired {key}"):
                yield Test(
                    key=key,
                    point=hashes[row["settings"]],
                    against=labels.get(row["against"]),
                    against_label=row["against"],
                    difference=Number(*(row[name] for name in ("difference", "low", "high", "n"))),
                    left_out=row["left_out"],
                    p=row["p_permutation"],
                    p_holm=row.get("p_permutation_holm"),
                    p_mcnemar=row.get("p_mcnemar"),
                    only=(row.get("only_a"), row.get("only_b")),
                    clusters=row.get("clusters"),
                )


def read_evaluations(path: epath.Path) -> Iterator[Evaluation]:
    """The evaluations of `sensitivity.json`; none where there is no such file."""
    if not path.exists():
        return
    with reading(path.name):
        for row in json.loads(path.read_bytes())["evaluations"]:
            numbers = {hash_: dict(flatten(of)) for hash_, of in row["points"].items()}
            yield Evaluation(**{name: row[name] for name in ("judge", "tau", "sources", "questions")}, numbers=numbers)


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Number]]:
    """Every number of a nested summary by its joined key; an interval is one number, and null an empty one."""
    for name, value in values.items():
        if value is None or isinstance(value, int | float):
            yield prefix + name, Number(value)
        elif is_interval(value):
            yield prefix + name, Number(*(value.get(part) for part in ("value", "low", "high", "n")))
        elif isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}_")


def is_interval(value: Any) -> bool:
    """Whether a value of the summary is an estimate with its interval."""
    return isinstance(value, Mapping) and "value" in value


def family_of(method: str) -> str:
    """The family of a method's name; the raw documents are the identity."""
    families = {name: family for family, names in FAMILIES.items() for name in names}
    return REFERENCES.get(method) or families.get(method, OTHER)


@contextmanager
def reading(place: str) -> Iterator[None]:
    """Raises ValueError that names the place, for a key that is missing there."""
    try:
        yield
    except KeyError as error:
        raise ValueError(f"{place}: no {error}; is this a study of citations?") from None


def read_lines(path: epath.Path) -> Iterator[tuple[str, Row]]:
    """Each JSON line of a file with its place in words. Raises ValueError at a line that is none."""
    with path.open("rb") as file:
        for n, line in enumerate(file, 1):  # Binary: only a line feed ends a line.
            place = f"{path.name}, line {n}"
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{place}: no JSON: {error}") from None
            if not isinstance(row, dict):
                raise ValueError(f"{place}: no JSON object")
            yield place, row


def read_sources(path: epath.Path, inspect: int) -> tuple[dict[str, str], dict[str, Row]]:
    """The dataset of each item, in order, and the whole source of the first `inspect`, from all datasets in turn."""
    order: dict[str, str] = {}
    kept: dict[str, list[tuple[int, Row]]] = {}
    for place, source in read_lines(path):
        with reading(place):
            item, dataset = source["item"], source["dataset"] or "questions"
        order[item] = dataset
        own = kept.setdefault(dataset, [])
        if len(own) < inspect:
            own.append((len(own), {**source, "dataset": dataset}))
    turns = sorted((pair for own in kept.values() for pair in own), key=lambda pair: pair[0])
    return order, {source["item"]: source for _, source in turns[:inspect]}


def read_rows(path: epath.Path, inspected: Mapping[str, Row]) -> Tally:
    """What the rows of a study say, and the rows themselves of the inspected items."""
    tally = Tally()
    for place, row in read_lines(path):
        with reading(place):
            add_row(tally, row)
        if row["item"] in inspected:
            tally.rows.setdefault(row["item"], {})[row["settings"]] = row
    return tally


def add_row(tally: Tally, row: Row) -> None:
    """Take a row into the tally. Raises KeyError for a missing column."""
    if row["status"].startswith("failed"):
        tally.failures.setdefault(row["item"], []).append((row["point"], row["status"]))
        tally.asked[row["item"]] = {"id": row["id"], "question": row["question"]}
        return
    judged = row["citation"]
    tally.judges[judged["judge"], judged["tau"]] = None
    tally.citers[row["answer"]["citer"]] = None
    counted = tally.pairs.setdefault(row["settings"], [0, 0])
    for n, name in enumerate(("pairs", "truncated_pairs")):
        counted[n] += judged[name]


def excluded(tally: Tally, order: Mapping[str, str]) -> Iterator[Excluded]:
    """The questions that failed somewhere."""
    for item, reasons in tally.failures.items():
        yield Excluded(item, **tally.asked[item], dataset=order.get(item, "questions"), reasons=tuple(reasons))


def grouped(points: Iterable[Point]) -> list[tuple[str, list[Point]]]:
    """The points by family, the identity first; within a family by method, the longest budget first."""
    points = list(points)
    titles = list(dict.fromkeys(point.title for point in points))
    order = sorted(points, key=lambda point: (titles.index(point.title), -(point.budget or 0)))
    families = {name: [point for point in order if point.family == name] for name in (IDENTITY, *FAMILIES, OTHER)}
    return [(name, of) for name, of in families.items() if of]


def by_family(points: Sequence[Point]) -> dict[str, dict[str, list[Point]]]:
    """The points that have a budget, by family and title, in the order of `grouped`."""
    found: dict[str, dict[str, list[Point]]] = {}
    for family, of in grouped(point for point in points if point.budget is not None):
        for point in of:
            found.setdefault(family, {}).setdefault(point.title, []).append(point)
    return found
