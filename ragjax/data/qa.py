"""Question-answering files with retrieved documents, read into one `Example` a row.

A row needs a question and documents; `FIELDS` lists the spellings that are understood, and every other column goes to
`meta` untouched. What is missing, ambiguous or of an unknown shape is an error that names file, line, field and the
fields found: nothing is guessed, and with `strict=False` a bad row is listed and counted, never dropped unseen.
"""

import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import xxhash
from etils import epath

from ragjax.data.golds import parse_golds
from ragjax.data.identity import example_ids
from ragjax.data.records import DataError, Document, Example
from ragjax.data.rows import iter_rows

FIELDS = {
    "question": ("question",),
    "documents": ("docs", "ctxs"),
    "answers": ("answers", "answer", "golden_answers"),
    "id": ("id", "_id", "question_id", "sample_id", "qid"),
}


@dataclass(frozen=True)
class SkippedRow:
    """A row that could not be used, the line it starts on and why."""

    line: int
    reason: str


@dataclass(frozen=True)
class LoadedExamples:
    """The examples of one file, and everything about the file that a report should say.

    `content_hash` is that of the whole file, whatever the limit. `counts` has `skipped_rows`, `unanswered` (rows
    without a gold: generated, never scored), `repeated_ids` and `repeated_contents` (rows like an earlier one),
    `skipped_documents` (without a text) and `repeated_documents` (like an earlier one of the same row; kept).
    """

    path: str
    content_hash: str
    examples: tuple[Example, ...]
    skipped: tuple[SkippedRow, ...]
    counts: Mapping[str, int]

    def summary(self) -> str:
        """One line: the file, its number of questions and every count that is not zero."""
        notes = [f"{count} {name.replace('_', ' ')}" for name, count in self.counts.items() if count]
        return f"{self.path}: {len(self.examples)} questions" + (f" ({', '.join(notes)})" if notes else "")


def load_examples(path: str | os.PathLike, *, strict: bool = True, limit: int | None = None) -> LoadedExamples:
    """Read a JSON Lines file or a JSON array of questions; `limit` stops after that many good rows.

    Ids are distinct and the same for any limit (`identity.example_ids`). Raises DataError, naming file and line, for
    the first row that cannot be used (with `strict=False` such rows are listed in `skipped`), and for a file without a
    usable row; FileNotFoundError where there is no file.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit is a number of rows, 1 or more, got {limit}")
    name, raw = os.fspath(path), epath.Path(path).read_bytes()
    examples, skipped = _read(raw, name, strict, limit)
    if not examples:
        reason = f"; line {skipped[0].line}: {skipped[0].reason}" if skipped else ""
        raise DataError(f"{name}: no row can be used{reason}")
    ids = example_ids(examples)
    named = tuple(dataclasses.replace(example, id=id) for example, id in zip(examples, ids, strict=True))
    return LoadedExamples(name, xxhash.xxh3_128_hexdigest(raw), named, tuple(skipped), _counts(examples, len(skipped)))


def parse_row(row: Mapping[str, Any], where: str = "row") -> Example:
    """One row as an Example; its id is empty where the row has none (`identity.example_ids` fills it).

    Raises DataError, its message opened by `where`, for a field that is missing, ambiguous or of an unknown shape.
    """
    try:
        return _example(row)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None


def parse_document(value: Any) -> Document | None:
    """A text, or an object with `text` and maybe `title`, `id`, `score`, `sentences`; None where the text is blank.

    Fields beside these go to `meta`. Raises DataError for another shape and for sentences that do not join to the text.
    """
    if isinstance(value, str):
        value = {"text": value}
    if not isinstance(value, Mapping) or "text" not in value:
        found = sorted(value) if isinstance(value, Mapping) else type(value).__name__
        raise DataError(f"a document is a text or has the fields title and text, found {found}")
    text, title = (_text(value, name) for name in ("text", "title"))
    if not text.strip():
        return None
    known = ("text", "title", "id", "score", "sentences")
    return Document(
        text=text,
        title=title,
        id=_scalar_id(value.get("id"), "a document's id"),
        score=_score(value.get("score")),
        sentences=_sentences(value.get("sentences"), text),
        meta={name: item for name, item in value.items() if name not in known},
    )


def _read(raw: bytes, name: str, strict: bool, limit: int | None) -> tuple[list[Example], list[SkippedRow]]:
    examples: list[Example] = []
    skipped: list[SkippedRow] = []
    for row in iter_rows(raw, name):
        if len(examples) == limit:
            break
        try:
            if row.problem is not None:
                raise DataError(row.problem)
            examples.append(_example(row.value))
        except DataError as error:
            if strict:
                raise DataError(f"{name}, line {row.line}: {error}") from None
            skipped.append(SkippedRow(row.line, str(error)))
    return examples, skipped


def _example(row: Mapping[str, Any]) -> Example:
    _require(row, "question", "documents")
    question = row["question"]
    if not isinstance(question, str) or not question.strip():
        raise DataError(f"the field question is a text, got {question!r:.80}")
    answers, answers_field = _answers(row)
    documents_field = _documents_field(row)
    parsed = [parse_document(document) for document in row[documents_field] or ()]
    id_field = next((name for name in FIELDS["id"] if row.get(name) not in (None, "")), None)
    used = {"question", answers_field, *(name for name in FIELDS["documents"] if name in row), id_field}
    return Example(
        id=(_scalar_id(row[id_field], f"the field {id_field}") or "") if id_field else "",
        question=question,
        answers=answers,
        documents=tuple(document for document in parsed if document is not None),
        meta={name: value for name, value in row.items() if name not in used},
        skipped_documents=tuple(i for i, document in enumerate(parsed) if document is None),
    )


def _require(row: Mapping[str, Any], *fields: str) -> None:
    missing = [field for field in fields if not any(name in row for name in FIELDS[field])]
    if missing:
        needs = " and ".join(f"{field} ({' or '.join(FIELDS[field])})" for field in missing)
        raise DataError(f"no field for {needs}; found {', '.join(sorted(map(str, row))) or 'none'}")


def _answers(row: Mapping[str, Any]) -> tuple[tuple[str, ...], str | None]:
    """The golds, and the field that they take out of `meta` (None where it says more than the golds do).

    Of several spellings the one whose golds contain the others' is meant, and the others stay in `meta`; spellings
    of which neither contains the other are ambiguous.
    """
    golds = {}
    for name in FIELDS["answers"]:
        if name in row:
            try:
                golds[name] = parse_golds(row[name])
            except DataError as error:
                raise DataError(f"the field {name}: {error}") from None
    if not golds:
        return (), None
    field = max(golds, key=lambda name: len(golds[name]))
    if any(not set(other) <= set(golds[field]) for other in golds.values()):
        raise DataError(f"the answer is ambiguous: {' and '.join(golds)} hold different golds")
    return golds[field], None if _says_more(row[field]) else field


def _says_more(value: Any) -> bool:
    """Whether an answer field has a structure that its golds alone lose (aliases, groups of spellings)."""
    return isinstance(value, dict) or (
        isinstance(value, list | tuple) and any(isinstance(v, dict | list) for v in value)
    )


def _documents_field(row: Mapping[str, Any]) -> str:
    present = [name for name in FIELDS["documents"] if name in row]
    filled = [name for name in present if row[name] is not None] or present
    if any(row[name] != row[filled[0]] for name in filled):
        raise DataError(f"the documents are ambiguous: {' and '.join(filled)} differ")
    if not isinstance(row[filled[0]], list | tuple | None):
        raise DataError(f"the field {filled[0]} is a list of documents, got {type(row[filled[0]]).__name__}")
    return filled[0]


def _text(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    if value is not None and not isinstance(value, str):
        raise DataError(f"a document's {name} is a text or null, got {type(value).__name__}")
    return value or ""


def _scalar_id(value: Any, what: str) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise DataError(f"{what} is a text or a whole number, got {value!r:.80}")
    return str(value)


def _score(value: Any) -> float | None:
    """A retrieval score; DPR and Contriever write it as text."""
    if value is None:
        return None
    try:
        score = float(value)
    except (TypeError, ValueError):
        score = math.nan
    if not math.isfinite(score):
        raise DataError(f"a document's score is a number, got {value!r:.80}")
    return score


def _sentences(value: Any, text: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not all(isinstance(sentence, str) for sentence in value):
        raise DataError("a document's sentences are a list of texts")
    if "".join("".join(value).split()) != "".join(text.split()):
        raise DataError(f"a document's sentences do not join to its text ({text!r:.60})")
    return tuple(value)


def _counts(examples: list[Example], skipped_rows: int) -> dict[str, int]:
    ids = [example.id for example in examples if example.id]
    contents = {(example.question, example.answers, _passages(example)) for example in examples}
    return {
        "skipped_rows": skipped_rows,
        "unanswered": sum(not example.answers for example in examples),
        "repeated_ids": len(ids) - len(set(ids)),
        "repeated_contents": len(examples) - len(contents),
        "skipped_documents": sum(len(example.skipped_documents) for example in examples),
        "repeated_documents": sum(len(example.documents) - len(set(_passages(example))) for example in examples),
    }


def _passages(example: Example) -> tuple[tuple[str, str], ...]:
    return tuple((document.title, document.text) for document in example.documents)
