"""QASPER: one paper a row becomes one example a question, with the paper's paragraphs as documents.

The hub transposes the original's lists of dicts into dicts of lists, twice (questions, then annotators).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ragjax.data.nested import as_records, decode_column, id_of, other_columns, text_of
from ragjax.data.qa import parse_document, question_of
from ragjax.data.records import DataError, Document, Example

# Evidence that is a caption, not a paragraph, starts with this.
FLOAT = "FLOAT SELECTED"
# Columns of a paper, and of a question, that are read, or are the paper's text over again.
_PAPER = ("id", "title", "abstract", "full_text", "qas", "figures_and_tables")
_QUESTION = ("question", "question_id", "answers")


def read_paper(row: Mapping[str, Any], path: Sequence[str] = ()) -> list[Example]:
    """The questions of a paper, from the hub or from the original file, whose ids are its keys.

    The golds are the annotators' answers by the official rule (`reference_answer`); gold documents are the paragraphs
    they gave as evidence, gold sentences what they highlighted. A document's title is its section. `meta` has the
    paper's id and title, the annotations and the other columns of paper and question; not the abstract nor captions.
    """
    paper = other_columns(row, *_PAPER)
    paper["paper_id"] = id_of(row.get("id", path[-1] if path else None), "the field id") or ""
    paper["paper_title"] = text_of(row.get("title"), "the title")
    paragraphs = [
        parse_document({"title": text_of(section.get("section_name"), "a section's name"), "text": paragraph})
        for section in as_records(row["full_text"])
        for paragraph in section.get("paragraphs") or ()
    ]
    return [_question(record, paper, paragraphs) for record in as_records(row["qas"])]


def reference_answer(answer: Mapping[str, Any]) -> tuple[str, str]:
    """An annotator's answer as the official evaluation reads it, and its type.

    Tested in this order: unanswerable, extractive (spans joined by ", "), free form, yes/no (null is neither).
    Raises DataError for an answer that is none of these.
    """
    if answer.get("unanswerable"):
        return "Unanswerable", "none"
    if spans := answer.get("extractive_spans"):
        return ", ".join(spans), "extractive"
    if free := answer.get("free_form_answer"):
        return free, "abstractive"
    if answer.get("yes_no") is not None:
        return ("Yes" if answer["yes_no"] else "No"), "boolean"
    raise DataError("an annotator's answer is unanswerable, a list of spans, a free form, or yes or no; this is none")


def _question(record: Mapping[str, Any], paper: Mapping[str, Any], paragraphs: Sequence[Document | None]) -> Example:
    annotations = [_annotation(item) for item in as_records(record.get("answers"))]
    documents = tuple(paragraph for paragraph in paragraphs if paragraph is not None)
    evidence = {text.strip() for annotation in annotations for text in annotation["evidence"]}
    sentences = [text for annotation in annotations for text in annotation["highlighted_evidence"]]
    golds = {document.text: document for document in documents if document.text.strip() in evidence}
    return Example(
        id=id_of(record.get("question_id"), "the field question_id") or "",
        question=question_of(record.get("question")),
        answers=tuple(dict.fromkeys(annotation["answer"] for annotation in annotations)),
        documents=documents,
        meta={**paper, **other_columns(record, *_QUESTION), **({"annotations": annotations} if annotations else {})},
        skipped_documents=tuple(i for i, paragraph in enumerate(paragraphs) if paragraph is None),
        gold_documents=tuple(golds.values()),
        gold_sentences=tuple(dict.fromkeys(text for text in sentences if not text.startswith(FLOAT))),
    )


def _annotation(item: Mapping[str, Any]) -> dict[str, Any]:
    answer = decode_column(item.get("answer", item))
    text, kind = reference_answer(answer)
    found = {name: list(answer.get(name) or ()) for name in ("evidence", "highlighted_evidence")}
    ids = {name: item[name] for name in ("annotation_id", "worker_id") if item.get(name) is not None}
    return {"answer": text, "type": kind, **found, **ids}
