"""Questions without gold paragraphs: NQ-open and its kin, TriviaQA, ASQA and its files with documents by ALCE."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ragjax.data.golds import PLACEHOLDER, parse_golds
from ragjax.data.nested import as_records, decode_column, id_of, other_columns, text_of
from ragjax.data.qa import FIELDS, parse_document, question_of, read_retrieved
from ragjax.data.records import DataError, Example

# TriviaQA's original names, by those of the hub.
_TRIVIAQA = {"question": "Question", "question_id": "QuestionId", "question_source": "QuestionSource"}
_TRIVIAQA_ANSWER = {
    "value": "Value",
    "aliases": "Aliases",
    "normalized_value": "NormalizedValue",
    "normalized_aliases": "NormalizedAliases",
    "type": "Type",
    "human_answers": "HumanAnswers",
    "matched_wiki_entity_name": "MatchedWikiEntityName",
    "normalized_matched_wiki_entity_name": "NormalizedMatchedWikiEntityName",
}
# Where TriviaQA holds pages with their text; the original file names evidence files in their place.
_PAGES = {"entity_pages": "wiki_context", "search_results": "search_context"}
_TRIVIAQA_USED = (*_TRIVIAQA, *_TRIVIAQA.values(), "answer", "Answer", *_PAGES, "EntityPages", "SearchResults")


def read_question(row: Mapping[str, Any]) -> Example:
    """A row of questions and answers alone (NQ-open, DPR's tables, FlashRAG): no documents."""
    return read_retrieved({**row, "docs": []})


def read_triviaqa(row: Mapping[str, Any]) -> Example:
    """A row of TriviaQA, from the hub (any config) or the original file; a hidden answer is no gold.

    Of the pages only those with a text are kept, as documents; the answer's other parts are `meta["answer"]`.
    """
    fields = {name: row.get(name, row.get(original)) for name, original in _TRIVIAQA.items()}
    answer = _triviaqa_answer(row.get("answer", row.get("Answer")))
    pages = [page for column, text in _PAGES.items() for page in _triviaqa_pages(row.get(column), text)]
    meta = {"question_source": fields["question_source"], "answer": answer}
    return Example(
        id=id_of(fields["question_id"], "the field question_id") or "",
        question=question_of(fields["question"]),
        answers=parse_golds([answer.get("value"), *answer.get("aliases", ()), *answer.get("human_answers", ())]),
        documents=tuple(page for page in pages if page is not None),
        meta={**other_columns(row, *_TRIVIAQA_USED), **{name: value for name, value in meta.items() if value}},
        skipped_documents=tuple(i for i, page in enumerate(pages) if page is None),
    )


def read_asqa(row: Mapping[str, Any], path: Sequence[str] = ()) -> Example:
    """A row of ASQA, from the hub or the original file, whose ids are its keys.

    The golds are the short answers of every reading of the question; the long ones are `meta["long_answers"]`.
    Documents, where somebody added a retriever's, are those.
    """
    fields = {name: value for name, value in row.items() if name not in ("ambiguous_question", "sample_id")}
    id = row.get("sample_id", path[-1] if path else None)
    documents = {} if set(FIELDS["documents"]) & set(row) else {"docs": []}
    return read_retrieved({**_asqa_answers(fields), **documents, "id": id, "question": row["ambiguous_question"]})


def read_alce_asqa(row: Mapping[str, Any]) -> Example:
    """A row of ALCE's ASQA files: ASQA's with documents; its `answer` is a long one."""
    return read_retrieved(_asqa_answers(dict(row)))


def with_short_answers(example: Example) -> Example:
    """The example with the short answers of its `qa_pairs` as golds, where it has some and its own are others.

    Its own, ASQA's long answers in files that call them so, are then kept as `meta["long_answers"]`.
    """
    pairs = as_records(example.meta.get("qa_pairs"))
    short = parse_golds([list(pair.get("short_answers") or ()) for pair in pairs])
    if not short or set(example.answers) <= set(short):
        return example
    long_answers = example.meta.get("long_answers") or list(example.answers)
    return replace(example, answers=short, meta={**example.meta, "long_answers": long_answers})


def _asqa_answers(fields: dict[str, Any]) -> dict[str, Any]:
    pairs = as_records(fields.get("qa_pairs"))
    annotations = as_records(fields.get("annotations"))
    long_answers = [annotation["long_answer"] for annotation in annotations if annotation.get("long_answer")]
    if answer := fields.pop("answer", None):
        long_answers = [*long_answers, answer]
    short = [list(pair.get("short_answers") or ()) for pair in pairs]
    structured = {"qa_pairs": pairs, "annotations": annotations, "long_answers": list(dict.fromkeys(long_answers))}
    known = {name: value for name, value in structured.items() if value}
    others = {name: value for name, value in fields.items() if name not in structured}
    return {**others, **known, "answers": [text for spellings in short for text in spellings]}


def _triviaqa_answer(value: Any) -> dict[str, Any]:
    """The answer under the hub's names, hidden and empty parts left out."""
    value = decode_column(value) or {}
    if not isinstance(value, Mapping):
        raise DataError(f"TriviaQA's answer is an object with a value and aliases, got {type(value).__name__}")
    found = {name: value.get(name, value.get(original)) for name, original in _TRIVIAQA_ANSWER.items()}
    return {name: item for name, item in found.items() if item and item != PLACEHOLDER}


def _triviaqa_pages(column: Any, text: str) -> list[Any]:
    return [
        parse_document({"title": text_of(page.get("title"), "a page's title"), "text": page[text]})
        for page in as_records(column)
        if text in page
    ]
