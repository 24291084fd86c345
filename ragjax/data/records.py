"""One record for every question: what the adapters make and the rest of the library reads. Knows no model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class DataError(ValueError):
    """A file, row or field that cannot be read as asked; the message names it."""


@dataclass(frozen=True)
class Document:
    """A retrieved passage. `sentences`, where a source gives them, join to `text` up to white space.

    `meta` holds every other field of the source's document, untouched.
    """

    text: str
    title: str = ""
    id: str | None = None
    score: float | None = None
    sentences: tuple[str, ...] | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Example:
    """A question with its golds and its retrieved documents, best first.

    `answers` is empty where the source has no gold: the example is answered, never scored.
    `gold_documents` and `gold_sentences` are what the dataset's authors say the answer follows from, where they do;
    they need not be among `documents`.
    `meta` holds the other columns of the source row under their own names: question type, level, ids, evidences and
    whatever else its file has beside those that documents, golds and id were read from; a split that a file states for
    all its rows is their `split`. Rows with retrieved documents keep them untouched; in the datasets' own layouts nulls
    are left out, JSON texts are decoded, and texts that are no documents are not kept (TriviaQA's lists of pages,
    QASPER's abstract and captions).
    `skipped_documents` are the positions, in the source's list, of documents without a text: they are not in
    `documents`, so an index found in `meta` counts them.
    """

    id: str
    question: str
    answers: tuple[str, ...] = ()
    documents: tuple[Document, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    skipped_documents: tuple[int, ...] = ()
    gold_documents: tuple[Document, ...] = ()
    gold_sentences: tuple[str, ...] = ()
