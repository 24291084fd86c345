"""From the files of a dataset to its examples: every row read by its layout, every doubt counted.

What cannot be read is an error that names file and line; with `strict=False` a bad row is listed and counted, never
dropped unseen.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import xxhash
from etils import epath

from ragjax.data.catalog import PARTS, plain_split
from ragjax.data.golds import HIDDEN, is_placeholder
from ragjax.data.identity import with_ids
from ragjax.data.layouts import ANSWERS, Layout, check_forgotten, recognise
from ragjax.data.nested import spelled
from ragjax.data.records import DataError, Example
from ragjax.data.rows import Row, iter_rows
from ragjax.data.tables import PARQUET, is_tab_separated, parquet_rows, tab_rows

# Where a row may have its answer; TriviaQA's original file has the last.
ANSWER_FIELDS = (*sorted(ANSWERS), "Answer")


@dataclass(frozen=True)
class SkippedRow:
    """A row that could not be used: its file, the line it starts on (in a table, by `unit`, its number) and why."""

    path: str
    line: int
    reason: str
    unit: str = "line"

    def __str__(self) -> str:
        """What an error about it says."""
        return f"{self.path}, {self.unit} {self.line}: {self.reason}"


@dataclass(frozen=True)
class LoadedExamples:
    """The examples of one source, and everything about it that a report should say.

    `content_hash` is that of the whole files, whatever the limit. `counts` has `skipped_rows`, `unanswered` (rows
    without a gold: generated, never scored), `repeated_ids` and `repeated_contents` (rows like an earlier one),
    `repeated_questions` (TriviaQA's rows of a question that was read already: left out), `without_documents` (rows
    that have none), `skipped_documents` (without a text), `repeated_documents` (like an earlier one of the same row;
    kept), `with_gold_documents`, `absent_titles` and `absent_sentences` (gold facts that lead to no document, or to no
    sentence of one).

    `layouts` names those met. `dataset` and `split` are set where the caller named them; `warnings` are sentences for
    the user.
    """

    path: str
    content_hash: str
    examples: tuple[Example, ...]
    skipped: tuple[SkippedRow, ...]
    counts: Mapping[str, int]
    layouts: tuple[str, ...] = ()
    dataset: str | None = None
    split: str | None = None
    warnings: tuple[str, ...] = ()

    def summary(self) -> str:
        """One line: the source, its number of questions and every count that is not zero."""
        notes = [f"{count} {name.replace('_', ' ')}" for name, count in self.counts.items() if count]
        named = f"{self.dataset} {self.split}, " if self.dataset and self.split else ""
        return f"{named}{self.path}: {len(self.examples)} questions" + (f" ({', '.join(notes)})" if notes else "")


def load_examples(
    path: str | os.PathLike,
    *,
    strict: bool = True,
    limit: int | None = None,
    questions_only: bool = False,
    group: str | None = None,
) -> LoadedExamples:
    """Read a file of questions in any layout of `layouts.LAYOUTS`; `limit` stops after that many good ones.

    The file is JSON Lines, a JSON array, an object that holds rows, Parquet, or DPR's table; its content tells which.
    `questions_only` admits rows without a field for documents. Of a file that holds several splits by name (ASQA's
    original) `group` is the one to read. Ids are distinct and the same for any limit
    (`identity.example_ids`).

    Raises DataError, naming file and line, for the first row that cannot be used (with `strict=False` such rows are
    listed in `skipped`), for a file without a usable row, and for one of several splits where none is named;
    FileNotFoundError where there is no file.
    """
    name = os.fspath(path)
    return load_files([path], name, strict=strict, limit=limit, questions_only=questions_only, group=group)


def load_files(
    paths: Sequence[str | os.PathLike],
    name: str,
    *,
    strict: bool = True,
    limit: int | None = None,
    questions_only: bool = False,
    group: str | None = None,
    hidden: bool = False,
) -> LoadedExamples:
    """Read several files, the shards of one split, as `load_examples` reads one; `name` is what they are together.

    `hidden`: the split's golds are not public, so that a placeholder in their place is no fault of a row. Raises as
    that does.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit is a number of rows, 1 or more, got {limit}")
    reading = _Reading(strict, limit, questions_only, group, hidden)
    for path in paths:
        reading.read(epath.Path(path).read_bytes(), os.fspath(path))
    if not reading.examples:
        reason = f"; {reading.skipped[0]}" if reading.skipped else ""
        raise DataError(f"{name}: no row can be used{reason}")
    examples = reading.examples[:limit]
    named = tuple(with_ids(examples))
    counts = _counts(examples, len(reading.skipped), reading.repeated)
    hashed = reading.hash.hexdigest()
    return LoadedExamples(name, hashed, named, tuple(reading.skipped), counts, tuple(reading.layouts))


def read_rows(raw: bytes, name: str) -> Iterator[Row]:
    """The rows of a file's bytes, whatever its container. Raises DataError, naming the file, as the containers do."""
    if raw.startswith(PARQUET):
        return parquet_rows(raw, name)
    return tab_rows(raw, name) if is_tab_separated(raw) else iter_rows(raw, name)


def group_rows(raw: bytes, name: str, group: str | None) -> Iterator[Row]:
    """The rows of a file or, where it holds splits by name, those of the split `group` (in any spelling).

    Raises DataError, naming the splits found, where there are several and none is named, or not the named one.
    """
    rows = read_rows(raw, name)
    first = next(rows, None)
    if first is None or len(first.path) < 2:
        return rows if first is None else chain([first], rows)
    groups = list(dict.fromkeys(row.path[0] for row in read_rows(raw, name) if len(row.path) > 1))
    wanted = [found for found in groups if group is None or plain_split(found) == plain_split(group)]
    if len(groups) == 1 and plain_split(groups[0]) not in PARTS:
        wanted = groups
    if len(wanted) != 1:
        asked = "" if group is None else f", not {group}"
        raise DataError(
            f"{name} holds the splits {' and '.join(groups)}{asked}: name one (--dataset NAME --split {groups[-1]}, or "
            f"group={groups[-1]!r} in Python)"
        )
    return (row for row in chain([first], rows) if row.path[:1] == (wanted[0],))


class _Reading:
    """The files read so far: examples, skipped rows, layouts and the hash of all bytes."""

    def __init__(self, strict: bool, limit: int | None, questions_only: bool, group: str | None, hidden: bool) -> None:
        self.strict, self.limit, self.hidden = strict, limit, hidden
        self.questions_only, self.group = questions_only, group
        self.examples: list[Example] = []
        self.skipped: list[SkippedRow] = []
        self.layouts: dict[str, None] = {}
        self.repeated = 0
        self.hash = xxhash.xxh3_128()
        self._seen: set[str] = set()

    def read(self, raw: bytes, name: str) -> None:
        """Add the rows of one file, as far as the limit needs them."""
        self.hash.update(raw)
        for row in group_rows(raw, name, self.group):
            if self.limit is not None and len(self.examples) >= self.limit:
                break
            try:
                self.add(row)
            except DataError as error:
                if self.strict:
                    raise DataError(f"{name}, {row.place}: {error}") from None
                self.skipped.append(SkippedRow(name, row.line, str(error), row.unit))

    def add(self, row: Row) -> None:
        """Add the examples of one row."""
        layout, examples = read_row(row, questions_only=self.questions_only, hidden=self.hidden)
        self.layouts[layout.name] = None
        self.examples += [example for example in examples if not self._repeats(example, layout)]

    def _repeats(self, example: Example, layout: Layout) -> bool:
        repeats = layout.unique and example.id in self._seen
        self._seen.add(example.id)
        self.repeated += repeats
        return repeats


def read_row(row: Row, *, questions_only: bool = False, hidden: bool = False) -> tuple[Layout, list[Example]]:
    """A row's layout and its examples, not yet named. Raises DataError for a row that cannot be used."""
    if row.problem is not None:
        raise DataError(row.problem)
    row = _without_placeholders(row, hidden)
    layout = recognise(row, questions_only)
    examples = [_with_split(example, row.split) for example in layout.read(row)]
    if not any(example.documents for example in examples):
        check_forgotten(row, layout)
    return layout, examples


def _without_placeholders(row: Row, hidden: bool) -> Row:
    """The row with null for the placeholders of hidden answers. Raises DataError where its split hides none."""
    found = [name for name in ANSWER_FIELDS if is_placeholder(spelled(row.value.get(name)))]
    if found and not hidden:
        raise DataError(f"the field {found[0]}: {HIDDEN}")
    return replace(row, value={**row.value, **dict.fromkeys(found)})


def _with_split(example: Example, stated: str | None) -> Example:
    """The example with the split that its file states, in the place of one that its own row may state."""
    return example if stated is None else replace(example, meta={"split": stated, **example.meta})


def _counts(examples: Sequence[Example], skipped_rows: int, repeated_questions: int) -> dict[str, int]:
    ids = [example.id for example in examples if example.id]
    contents = {(example.question, example.answers, _passages(example)) for example in examples}
    return {
        "skipped_rows": skipped_rows,
        "unanswered": sum(not example.answers for example in examples),
        "repeated_ids": len(ids) - len(set(ids)),
        "repeated_contents": len(examples) - len(contents),
        "repeated_questions": repeated_questions,
        "without_documents": sum(not example.documents for example in examples),
        "skipped_documents": sum(len(example.skipped_documents) for example in examples),
        "repeated_documents": sum(len(example.documents) - len(set(_passages(example))) for example in examples),
        "with_gold_documents": sum(bool(example.gold_documents) for example in examples),
        "absent_titles": sum(len(example.meta.get("absent_titles", ())) for example in examples),
        "absent_sentences": sum(len(example.meta.get("absent_sentences", ())) for example in examples),
    }


def _passages(example: Example) -> tuple[tuple[str, str], ...]:
    return tuple((document.title, document.text) for document in example.documents)
