"""A run: rows made batch by batch, that a kill at any moment costs no more than the batch in flight.

The caller lists groups. A group is some points (settings that define a row), the items they are evaluated on, and a
function that makes the rows of a batch. Batches are planned from all the items, each is written as one part file
(`ragjax.evals.parts`), and at the end the parts are merged into `items.jsonl`, in the order of the plan. Nothing in
that file comes from a clock or from the way the run went, so a resumed run ends in the same bytes as an uninterrupted
one.

A row's key is the hash of its point's settings and its item. Resume means: rows whose key lies in a whole part are
not made again. A folder holds rows of one set of points; rows made with other settings are refused.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
from etils import epath
from tqdm import tqdm

from ragjax.evals.parts import (
    Part,
    digest,
    encode_line,
    read_parts,
    remove_orphans,
    write_json,
    write_lines,
    write_part,
)
from ragjax.runtime import describe_error

logger = logging.getLogger(__name__)

Row = dict[str, Any]
Outcome = tuple[list[list[Row]], list[Row]]
Tell = Callable[[str], None]
Work = Callable[[Sequence[int], Sequence[int], Tell], Outcome]


class MixedSettingsError(ValueError):
    """The folder holds rows that were made with other settings."""


@dataclass(frozen=True)
class Item:
    """What a row is about: the user's id, a hash of the whole content, and columns that each of its rows repeats."""

    id: str
    content: str
    columns: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Point:
    """One setting of the method under study. `settings` defines the rows (JSON values); `label` is for people."""

    label: str
    settings: Mapping[str, Any]

    @cached_property
    def hash(self) -> str:
        """The hash of the settings: the part of a row's key that is not its item."""
        return digest(self.settings)


@dataclass(frozen=True)
class Group:
    """Points whose rows are made together.

    Batches hold items of similar length, by `lengths` (any unit; empty: in the items' order).
    `work(points, items, tell)` takes positions in `points` and in `items` and gives rows[point][item], each with a
    `status`, and timing rows, each with the `point` it is charged to (a position in `points`). It may `tell` the
    progress bar what it is doing.
    """

    points: tuple[Point, ...]
    items: tuple[Item, ...]
    batch: int
    work: Work
    lengths: tuple[int, ...] = ()

    @property
    def order(self) -> list[int]:
        """The items' positions in the order in which they fill the batches."""
        return sorted(range(len(self.items)), key=lambda i: self.lengths[i] if self.lengths else i)


@dataclass(frozen=True)
class Task:
    """What is missing of one batch: positions in the group's points and items, and the keys [point][item] of those."""

    name: str
    group: Group
    points: tuple[int, ...]
    items: tuple[int, ...]
    keys: list[list[str]]


@dataclass(frozen=True)
class Finished:
    """A run's rows in plan order and its timings.

    `made` counts the rows that this call made, `outside` the folder's rows that are not in the plan (a lowered limit);
    `damaged` names the part files that were not whole.
    """

    rows: list[Row]
    timings: list[Row]
    made: int
    outside: int
    damaged: list[str]

    @property
    def failed(self) -> int:
        """Rows whose status is failed(reason)."""
        return sum(row["status"].startswith("failed") for row in self.rows)


def identify(items: Sequence[Item]) -> list[str]:
    """One identity an item: its id, its content, and how many equal ones came before it. [items]"""
    seen: Counter[tuple[str, str]] = Counter()
    identities = []
    for item in items:
        identities.append(digest([item.id, item.content, seen[item.id, item.content]]))
        seen[item.id, item.content] += 1
    return identities


def keys_of(group: Group) -> list[list[str]]:
    """The key of each row, keys[point][item]."""
    identities = identify(group.items)
    return [[digest([point.hash, identity]) for identity in identities] for point in group.points]


def recorded_points(folder: epath.Path, parts: Sequence[Part]) -> list[Point]:
    """The points a folder was made for: those of its manifest, and of its parts, should the manifest be lost."""
    try:
        listed = json.loads((folder / "manifest.json").read_bytes())["points"]
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        listed = []
    listed = [*listed, *(point for part in parts for point in part.header["points"])]
    return list({point["hash"]: Point(point["label"], point["settings"]) for point in listed}.values())


def changed_fields(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The fields of `new` whose value in `old` differs; an absent field is None."""
    return [name for name, value in new.items() if old.get(name) != value]


def refuse_mixing(folder: epath.Path, recorded: Sequence[Point], planned: Sequence[Point]) -> None:
    """See that each recorded point is still planned. Points may be added; only the planned fields are compared.

    Raises:
      MixedSettingsError: a recorded point is not planned; names each field that changed, with both values.
    """
    lost = [old for old in recorded if all(changed_fields(old.settings, new.settings) for new in planned)]
    if not lost:
        return
    fresh = [new for new in planned if all(changed_fields(old.settings, new.settings) for old in recorded)]
    changes = dict.fromkeys(change for old in lost for change in describe_change(old, fresh))
    raise MixedSettingsError(f"{folder} holds rows made with other settings: {'; '.join(changes)}")


def refuse_twins(points: Sequence[Point]) -> None:
    """Raise ValueError, naming both, where two points have equal settings: their rows would be counted as one's."""
    labels: dict[str, str] = {}
    for point in points:
        if point.hash in labels:
            raise ValueError(f"the points {labels[point.hash]!r} and {point.label!r} would make the same rows")
        labels[point.hash] = point.label


def describe_change(old: Point, fresh: Sequence[Point]) -> list[str]:
    """What became of a recorded point: the fields in which the nearest new point differs."""
    if not fresh:
        return [f"the point {old.label!r} is no longer part of the run"]
    new = min(fresh, key=lambda point: len(changed_fields(old.settings, point.settings)))
    fields = changed_fields(old.settings, new.settings)
    return [f"{name} was {old.settings.get(name)!r} and is now {new.settings[name]!r}" for name in fields]


def check_folder(folder: epath.PathLike, points: Sequence[Point], *, twins: bool = False) -> None:
    """Refuse a folder whose rows were made with other settings, before anything is computed or written.

    `twins` admits points of equal settings: those whose models are not known yet look alike.

    Raises:
      MixedSettingsError: names each field that changed, with both values.
    """
    folder = epath.Path(folder)
    if not twins:
        refuse_twins(points)
    refuse_mixing(folder, recorded_points(folder, read_parts(folder / "parts")[0]), points)


def plan(groups: Sequence[Group], done: Mapping[str, Row]) -> Iterator[Task]:
    """The batches of all items, less what is done. The batches do not depend on what is done."""
    for g, group in enumerate(groups):
        keys = keys_of(group)
        for b, start in enumerate(range(0, len(group.items), group.batch)):
            items = group.order[start : start + group.batch]
            points = tuple(p for p in range(len(keys)) if any(keys[p][i] not in done for i in items))
            missing = tuple(i for i in items if any(keys[p][i] not in done for p in points))
            if missing:
                chosen = [[keys[p][i] for i in missing] for p in points]
                yield Task(f"g{g:02d}-b{b:05d}-{digest(chosen)}.jsonl", group, points, missing, chosen)


def attempt(work: Work, points: Sequence[int], items: Sequence[int], tell: Tell, tries: int) -> Outcome:
    """Make the rows of a batch; should it raise, those of each item alone."""
    try:
        return checked(work(points, items, tell))
    except Exception as error:
        logger.warning("a batch of %d items raised %s; trying its items one by one", len(items), describe_error(error))
    alone = [attempt_alone(work, points, item, tell, tries) for item in items]
    rows = [[outcome[0][p][0] for outcome in alone] for p in range(len(points))]
    return rows, [timing for outcome in alone for timing in outcome[1]]


def attempt_alone(work: Work, points: Sequence[int], item: int, tell: Tell, tries: int) -> Outcome:
    """Make the rows of one item, at most `tries` times; rows that say why if each of them raises."""
    for _ in range(tries):
        try:
            return checked(work(points, [item], tell))
        except Exception as error:
            reason = describe_error(error)
    return [[{"status": f"failed({reason})", "tries": tries}] for _ in points], []


def checked(outcome: Outcome) -> Outcome:
    """The outcome, once it is known that each row can be written. Raises ValueError where one cannot."""
    rows, timings = outcome
    for row in [*(row for point in rows for row in point), *timings]:
        encode_line(row)
    return outcome


def execute(task: Task, tries: int, execution: Mapping[str, Any], parts: epath.Path, tell: Tell) -> Part:
    """Make the rows of a task and write them as one part."""
    rows, timings = attempt(task.group.work, task.points, task.items, tell, tries)
    points = task.group.points
    named = [
        {"key": key, **row}
        for point_keys, point_rows in zip(task.keys, rows, strict=True)
        for key, row in zip(point_keys, point_rows, strict=True)
    ]
    header = {
        "points": [as_json(points[p]) for p in task.points],
        "execution": {**execution, "batch": task.group.batch},
        "timings": [{**timing, "point": points[timing["point"]].hash} for timing in timings],
    }
    write_part(parts / task.name, header, named)
    return Part(task.name, header, tuple(named))


def as_json(point: Point) -> Row:
    """A point as manifest and parts hold it."""
    return {"label": point.label, "hash": point.hash, "settings": dict(point.settings)}


def rows_by_key(parts: Sequence[Part]) -> dict[str, Row]:
    """The rows of all parts. Where two hold one key, the first that did not fail stands."""
    rows: dict[str, Row] = {}
    for part in parts:
        for row in part.rows:
            if row["key"] not in rows or rows[row["key"]]["status"].startswith("failed"):
                rows[row["key"]] = dict(row)
    return rows


def merge(groups: Sequence[Group], made: Mapping[str, Row]) -> list[Row]:
    """Every row of the plan: point by point, item by item, with the columns that say what it is."""
    merged = []
    for group in groups:
        identities, keys = identify(group.items), keys_of(group)
        for p, point in enumerate(group.points):
            for i, item in enumerate(group.items):
                names = {"key": keys[p][i], "point": point.label, "settings": point.hash}
                merged.append({**names, "item": identities[i], "id": item.id, **item.columns, **made[keys[p][i]]})
    return merged


def merge_timings(groups: Sequence[Group], parts: Sequence[Part]) -> list[Row]:
    """The timing rows of all parts that hold rows of the plan's points, with the points' labels."""
    labels = {point.hash: point.label for group in groups for point in group.points}
    timings = [(part.name, timing) for part in parts for timing in part.header["timings"]]
    return [
        {"part": name, **timing, "point": labels[timing["point"]], "settings": timing["point"]}
        for name, timing in timings
        if timing["point"] in labels
    ]


def run(
    folder: epath.PathLike,
    groups: Sequence[Group],
    execution: Mapping[str, Any] | None = None,
    tries: int = 3,
) -> Finished:
    """Make every row of the groups that the folder does not hold yet, and merge them.

    Writes `manifest.json`, `parts/*.jsonl`, `items.jsonl` and `timings.jsonl` in `folder`. `execution` is recorded
    with each part and defines no row. An item that raises is tried alone, `tries` times, then stored as failed.

    Raises:
      MixedSettingsError: the folder holds rows made with other settings.
    """
    folder = epath.Path(folder)
    found, damaged = read_parts(folder / "parts")
    points = [point for group in groups for point in group.points]
    refuse_twins(points)
    refuse_mixing(folder, recorded_points(folder, found), points)
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    remove_orphans(folder / "parts")
    for name in damaged:
        (folder / "parts" / name).rename(folder / "parts" / f"{name}.damaged")
    manifest = {"points": [as_json(point) for point in points], "execution": dict(execution or {})}
    write_json(folder / "manifest.json", manifest)
    before = rows_by_key(found)
    parts = [*found, *run_tasks(groups, before, tries, execution or {}, folder / "parts")]
    done = rows_by_key(parts)
    rows, timings = merge(groups, done), merge_timings(groups, parts)
    write_lines(folder / "items.jsonl", rows)
    write_lines(folder / "timings.jsonl", timings)
    return Finished(rows, timings, len(done) - len(before), len(done) - len(rows), damaged)


def run_tasks(
    groups: Sequence[Group], done: Mapping[str, Row], tries: int, execution: Mapping[str, Any], parts: epath.Path
) -> list[Part]:
    """Execute what is missing, behind a progress bar that counts rows."""
    total = sum(len(group.points) * len(group.items) for group in groups)
    tasks = list(plan(groups, done))
    missing = sum(len(task.points) * len(task.items) for task in tasks)
    written = []
    with tqdm(total=total, initial=max(0, total - missing), unit="row", disable=jax.process_index() != 0) as bar:
        for task in tasks:
            written.append(execute(task, tries, execution, parts, bar.set_postfix_str))
            bar.update(len(written[-1].rows))
    return written
