"""Questions whose paragraphs come with them, some marked as gold: HotpotQA, 2WikiMultiHopQA, MuSiQue.

HotpotQA's and 2Wiki's many mirrors hold the same row: `context` (titles with sentences) and `supporting_facts` (titles
with sentence numbers), each in one of the forms of `nested.as_records`; FlashRAG's hold it inside `metadata`, and
CompAct's hold whole texts in the place of sentences. Both forms of a row give the same example.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ragjax.data.golds import parse_golds
from ragjax.data.nested import as_records, decode_column, id_of, other_columns, text_of
from ragjax.data.qa import golds_of, parse_document, question_of
from ragjax.data.records import DataError, Document, Example


def read_multihop(row: Mapping[str, Any]) -> Example:
    """A row of HotpotQA or 2WikiMultiHopQA in any of its layouts.

    A supporting fact that names a title outside the context, or a sentence beyond the title's last, is in `meta` under
    `absent_titles` or `absent_sentences`, and in no gold. Raises DataError for a column of an unknown shape.
    """
    paragraphs = [_paragraph(record) for record in _records(row, "context", "title", "sentences")]
    support = _support(row.get("supporting_facts"))
    golds, sentences, absent = _resolve(support, [p for p in paragraphs if p is not None])
    answers, answers_field = golds_of(row)
    id_field = "id" if row.get("id") is not None else "_id"
    return Example(
        id=id_of(row.get(id_field), f"the field {id_field}") or "",
        question=question_of(row["question"]),
        answers=answers,
        documents=tuple(p for p in paragraphs if p is not None),
        meta={
            **other_columns(row, "question", id_field, answers_field, "context", "supporting_facts"),
            **({"supporting_facts": support} if support else {}),
            **absent,
        },
        skipped_documents=tuple(i for i, paragraph in enumerate(paragraphs) if paragraph is None),
        gold_documents=golds,
        gold_sentences=sentences,
    )


def read_musique(row: Mapping[str, Any]) -> Example:
    """A row of MuSiQue, from the hub or the original file.

    The unanswerable twin of a question in the full files has the same id: here it ends in "#unanswerable".
    """
    paragraphs, supporting = [], []
    for record in _records(row, "paragraphs"):
        document = _musique_paragraph(record)
        paragraphs.append(document)
        if document is not None and record.get("is_supporting"):
            supporting.append(document)
    golds = ("golden_answers",) if row.get("golden_answers") else ("answer", "answer_aliases")
    answers = [row.get(golds[0]), *(decode_column(row.get(name)) for name in golds[1:])]
    twin = "#unanswerable" if row.get("answerable") is False else ""
    base = id_of(row.get("id"), "the field id") or ""
    return Example(
        id=base and base + twin,
        question=question_of(row["question"]),
        answers=parse_golds(answers),
        documents=tuple(p for p in paragraphs if p is not None),
        meta=other_columns(row, "id", "question", *golds, "paragraphs"),
        skipped_documents=tuple(i for i, paragraph in enumerate(paragraphs) if paragraph is None),
        gold_documents=tuple(supporting),
    )


def read_flashrag(row: Mapping[str, Any]) -> Example:
    """A row of FlashRAG: the answers, and in `metadata` whatever the dataset has beside them."""
    metadata = _metadata(row)
    merged = {**metadata, **{name: value for name, value in row.items() if name != "metadata"}}
    if "paragraphs" in metadata:
        return read_musique(merged)
    return read_multihop({"context": None, **merged})


def join_sentences(sentences: Sequence[str]) -> str:
    """Sentences as one text: a blank between two of them only where neither has one there."""
    text = ""
    for sentence in sentences:
        apart = not text or not sentence or text[-1].isspace() or sentence[0].isspace()
        text += sentence if apart else f" {sentence}"
    return text


def _metadata(row: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = decode_column(row.get("metadata")) or {}
    if not isinstance(metadata, Mapping):
        raise DataError(f"the field metadata is an object, got {type(metadata).__name__}")
    return metadata


def _records(row: Mapping[str, Any], field: str, *names: str) -> list[dict[str, Any]]:
    try:
        return as_records(row[field], *names)
    except DataError as error:
        raise DataError(f"the field {field}: {error} (retrieved documents are named docs or ctxs)") from None


def _paragraph(record: Mapping[str, Any]) -> Document | None:
    """A paragraph of sentences (`content` in FlashRAG's), or of one text; None where it is empty."""
    if not {"title", "sentences"} <= set(record) and not {"title", "content"} <= set(record):
        raise DataError(f"a paragraph has a title and sentences, found {sorted(record)}")
    body = decode_column(record.get("sentences", record.get("content")))
    title = text_of(record["title"], "a paragraph's title")
    if not isinstance(body, list | tuple):
        return parse_document({"title": title, "text": text_of(body, "a paragraph's text")})
    sentences = [text_of(sentence, "a sentence") for sentence in body]
    return parse_document({"title": title, "text": join_sentences(sentences), "sentences": sentences})


def _musique_paragraph(record: Mapping[str, Any]) -> Document | None:
    if "paragraph_text" not in record:
        raise DataError(f"a paragraph has a title and a paragraph_text, found {sorted(record)}")
    others = {name: value for name, value in record.items() if name not in ("paragraph_text", "idx", "is_supporting")}
    return parse_document({**others, "text": record["paragraph_text"], "id": record.get("idx")})


def _support(value: Any) -> list[list[Any]]:
    """Supporting facts as [title, sentence number], in order."""
    facts = as_records(value, "title", "sent_id")
    try:
        return [[text_of(fact["title"], "a supporting title"), int(fact["sent_id"])] for fact in facts]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"a supporting fact is a title and a sentence number ({error!r})") from None


def _resolve(
    support: Sequence[Sequence[Any]], documents: Sequence[Document]
) -> tuple[tuple[Document, ...], tuple[str, ...], dict[str, Any]]:
    """Gold documents and sentences, in the order of the facts and each once, and the facts that lead nowhere."""
    golds: dict[str, Document] = {}
    sentences: dict[tuple[str, int], str] = {}
    titles, beyond = [], []
    for title, number in support:
        named = [document for document in documents if document.title == title]
        holding = [document for document in named if 0 <= number < len(document.sentences or ())]
        if not named:
            titles.append(title)
            continue
        golds.setdefault(title, (holding or named)[0])
        if holding:
            sentences[title, number] = holding[0].sentences[number].strip()
        elif named[0].sentences is not None:
            beyond.append([title, number])
    absent = {"absent_titles": list(dict.fromkeys(titles)), "absent_sentences": beyond}
    return tuple(golds.values()), tuple(sentences.values()), {name: found for name, found in absent.items() if found}
