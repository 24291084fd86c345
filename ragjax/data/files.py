"""From the files of a dataset to its examples: every row read by its layout, every doubt counted.

What cannot be read is an error that names file and line; with `strict=False` a bad row is listed and counted, never
dropped unseen.
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import xxhash
from etils import epath

from ragjax.data.identity import example_ids
from ragjax.data.layouts import Layout, recognise
from ragjax.data.records import DataError, Example
from ragjax.data.rows import Row, iter_rows
from ragjax.data.tables import PARQUET, is_tab_separated, parquet_rows, tab_rows


@dataclass(frozen=True)
class SkippedRow:
    """A row that could not be used, the line it starts on (in a table: its number) and why."""

    line: int
    reason: str


@dataclass(frozen=True)
class LoadedExamples:
    """The examples of one source, and everything about it that a report should say.

    `content_hash` is that of the whole files, whatever the limit. `counts` has `skipped_rows`, `unanswered` (rows
    without a gold: generated, never scored), `repeated_ids` and `repeated_contents` (rows like an earlier one),
    `repeated_questions` (TriviaQA's rows of a question that was read already: left out), `skipped_documents` (without
    a text), `repeated_documents` (like an earlier one of the same row; kept), `with_gold_documents`, `absent_titles`
    and `absent_sentences` (gold facts that lead to no document, or to no sentence of one).

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
    path: str | os.PathLike, *, strict: bool = True, limit: int | None = None, questions_only: bool = False
) -> LoadedExamples:
    """Read a file of questions in any layout of `layouts.LAYOUTS`; `limit` stops after that many good ones.

    The file is JSON Lines, a JSON array, an object that holds rows, Parquet, or DPR's table; its content tells which.
    `questions_only` admits rows without a field for documents. Ids are distinct and the same for any limit
    (`identity.example_ids`).

    Raises DataError, naming file and line, for the first row that cannot be used (with `strict=False` such rows are
    listed in `skipped`), and for a file without a usable row; FileNotFoundError where there is no file.
    """
    return load_files([path], os.fspath(path), strict=strict, limit=limit, questions_only=questions_only)


def load_files(
    paths: Sequence[str | os.PathLike],
    name: str,
    *,
    strict: bool = True,
    limit: int | None = None,
    questions_only: bool = False,
    group: str | None = None,
) -> LoadedExamples:
    """Read several files, the shards of one split, as `load_examples` reads one; `name` is what they are together.

    Of a file that holds several splits by name (ASQA's original) `group` is the one to read. Raises as that does.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit is a number of rows, 1 or more, got {limit}")
    reading = _Reading(strict, limit, questions_only, group)
    for path in paths:
        reading.read(epath.Path(path).read_bytes(), os.fspath(path))
    if not reading.examples:
        reason = f"; line {reading.skipped[0].line}: {reading.skipped[0].reason}" if reading.skipped else ""
        raise DataError(f"{name}: no row can be used{reason}")
    examples = reading.examples[:limit]
    named = tuple(
        dataclasses.replace(example, id=id) for example, id in zip(examples, example_ids(examples), strict=True)
    )
    counts = _counts(examples, len(reading.skipped), reading.repeated)
    hashed = reading.hash.hexdigest()
    return LoadedExamples(name, hashed, named, tuple(reading.skipped), counts, tuple(reading.layouts))


def read_rows(raw: bytes, name: str) -> Iterator[Row]:
    """The rows of a file's bytes, whatever its container. Raises DataError, naming the file, as the containers do."""
    if raw.startswith(PARQUET):
        return parquet_rows(raw, name)
    return tab_rows(raw, name) if is_tab_separated(raw) else iter_rows(raw, name)


class _Reading:
    """The files read so far: examples, skipped rows, layouts and the hash of all bytes."""

    def __init__(self, strict: bool, limit: int | None, questions_only: bool, group: str | None) -> None:
        self.strict, self.limit, self.questions_only, self.group = strict, limit, questions_only, group
        self.examples: list[Example] = []
        self.skipped: list[SkippedRow] = []
        self.layouts: dict[str, None] = {}
        self.repeated = 0
        self.hash = xxhash.xxh3_128()
        self._seen: set[str] = set()

    def read(self, raw: bytes, name: str) -> None:
        """Add the rows of one file, as far as the limit needs them."""
        self.hash.update(raw)
        for row in read_rows(raw, name):
            if self.limit is not None and len(self.examples) >= self.limit:
                break
            if self.group is not None and len(row.path) > 1 and row.path[0] != self.group:
                continue
            try:
                self.add(row)
            except DataError as error:
                if self.strict:
                    raise DataError(f"{name}, {row.place}: {error}") from None
                self.skipped.append(SkippedRow(row.line, str(error)))

    def add(self, row: Row) -> None:
        """Add the examples of one row."""
        if row.problem is not None:
            raise DataError(row.problem)
        layout = recognise(row, self.questions_only)
        examples = layout.read(row)
        self.layouts[layout.name] = None
        self.examples += [example for example in examples if not self._repeats(example, layout)]

    def _repeats(self, example: Example, layout: Layout) -> bool:
        repeats = layout.unique and example.id in self._seen
        self._seen.add(example.id)
        self.repeated += repeats
        return repeats


def _counts(examples: Sequence[Example], skipped_rows: int, repeated_questions: int) -> dict[str, int]:
    ids = [example.id for example in examples if example.id]
    contents = {(example.question, example.answers, _passages(example)) for example in examples}
    return {
        "skipped_rows": skipped_rows,
        "unanswered": sum(not example.answers for example in examples),
        "repeated_ids": len(ids) - len(set(ids)),
        "repeated_contents": len(examples) - len(contents),
        "repeated_questions": repeated_questions,
        "skipped_documents": sum(len(example.skipped_documents) for example in examples),
        "repeated_documents": sum(len(example.documents) - len(set(_passages(example))) for example in examples),
        "with_gold_documents": sum(bool(example.gold_documents) for example in examples),
        "absent_titles": sum(len(example.meta.get("absent_titles", ())) for example in examples),
        "absent_sentences": sum(len(example.meta.get("absent_sentences", ())) for example in examples),
    }


def _passages(example: Example) -> tuple[tuple[str, str], ...]:
    return tuple((document.title, document.text) for document in example.documents)
