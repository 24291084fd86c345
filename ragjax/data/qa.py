"""A question with its retrieved documents, read into one `Example`: the form in which most systems exchange data.

A row needs a question and documents; `FIELDS` lists the spellings that are understood (ours, DPR's, FiD's,
Contriever's, FaviComp's, CompAct's, ALCE's), `gold_docs` may hold gold documents, and every other column goes to
`meta` untouched. Documents are a list, an object of lists (as Parquet files hold records) or the JSON text of either.
What is missing, ambiguous or of an unknown shape is an error that names the field and the fields found: nothing is
guessed.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ragjax.data.golds import parse_golds
from ragjax.data.nested import as_records, decode_column, id_of, text_of
from ragjax.data.records import DataError, Document, Example

FIELDS = {
    "question": ("question",),
    "documents": ("docs", "ctxs"),
    "answers": ("answers", "answer", "golden_answers"),
    "id": ("id", "_id", "question_id", "sample_id", "qid"),
}
GOLDS = "gold_docs"


def parse_row(row: Mapping[str, Any], where: str = "row") -> Example:
    """One row as an Example; its id is empty where the row has none (`identity.example_ids` fills it).

    Raises DataError, its message opened by `where`, for a field that is missing, ambiguous or of an unknown shape.
    """
    try:
        return read_retrieved(row)
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
    text, title = (text_of(value.get(name), f"a document's {name}") for name in ("text", "title"))
    if not text.strip():
        return None
    known = ("text", "title", "id", "score", "sentences")
    return Document(
        text=text,
        title=title,
        id=id_of(value.get("id"), "a document's id"),
        score=_score(value.get("score")),
        sentences=_sentences(value.get("sentences"), text),
        meta={name: item for name, item in value.items() if name not in known},
    )


def read_retrieved(row: Mapping[str, Any]) -> Example:
    """As `parse_row`, its errors without a place."""
    _require(row, "question", "documents")
    question = question_of(row["question"])
    answers, answers_field = golds_of(row)
    documents_field = _documents_field(row)
    parsed = [parse_document(document) for document in as_list(row[documents_field], documents_field)]
    id_field = next((name for name in FIELDS["id"] if row.get(name) not in (None, "")), None)
    used = {"question", answers_field, *(name for name in FIELDS["documents"] if name in row), id_field, GOLDS}
    gold_documents = [parse_document(document) for document in as_list(row.get(GOLDS), GOLDS)]
    return Example(
        id=(id_of(row[id_field], f"the field {id_field}") or "") if id_field else "",
        question=question,
        answers=answers,
        documents=tuple(document for document in parsed if document is not None),
        meta={name: value for name, value in row.items() if name not in used},
        skipped_documents=tuple(i for i, document in enumerate(parsed) if document is None),
        gold_documents=tuple(document for document in gold_documents if document is not None),
    )


def question_of(value: Any) -> str:
    """A question. Raises DataError where it is no text, or blank."""
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"the field question is a text, got {value!r:.80}")
    return value


def _require(row: Mapping[str, Any], *fields: str) -> None:
    missing = [field for field in fields if not any(name in row for name in FIELDS[field])]
    if missing:
        needs = " and ".join(f"{field} ({' or '.join(FIELDS[field])})" for field in missing)
        raise DataError(f"no field for {needs}; found {', '.join(sorted(map(str, row))) or 'none'}")


def golds_of(row: Mapping[str, Any]) -> tuple[tuple[str, ...], str | None]:
    """The golds of a row, and the field that they take out of `meta` (None where it says more than the golds do).

    Of several spellings the one whose golds contain the others' is meant, and the others stay in `meta`; spellings
    of which neither contains the other are ambiguous: DataError.
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
    as_list(row[filled[0]], filled[0])
    return filled[0]


def as_list(value: Any, field: str) -> Sequence[Any]:
    """A field's list of documents, from any form of `nested.as_records`; () from None. Raises DataError for another."""
    try:
        value = decode_column(value)
        value = as_records(value) if isinstance(value, Mapping) else value
    except DataError as error:
        raise DataError(f"the field {field}: {error}") from None
    if not isinstance(value, list | tuple | None):
        raise DataError(f"the field {field} is a list of documents, got {type(value).__name__}")
    return value or ()


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
