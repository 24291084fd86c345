"""The ambiguous questions and the papers that ship with the experiments keep what the quickstart relies on."""

import json
from itertools import combinations
from pathlib import Path

import pytest

from ragjax.data import load_examples
from ragjax.data.sources import load_dataset
from ragjax.evals.asqa import score_asqa
from ragjax.evals.normalize import squad
from ragjax.evals.qa import contains_tokens
from ragjax.evals.qasper import score_qasper
from ragjax.retrieve.sentences import split_sentences

FOLDER = Path(__file__).resolve().parents[2] / "experiments" / "data"
SMALL = {"of", "in", "is", "was", "has", "it", "its", "by", "to", "and", "for", "with", "on", "at", "from", "which"}


@pytest.fixture(scope="module")
def ambiguous():
    return load_examples(FOLDER / "ambiguous.jsonl")


@pytest.fixture(scope="module")
def papers():
    return load_examples(FOLDER / "papers.jsonl")


def content(text):
    return set(squad(text).split()) - SMALL


def similarity(one, other):
    one, other = content(one), content(other)
    return len(one & other) / len(one | other)


@pytest.mark.parametrize(
    ("name", "dataset", "layout"), [("ambiguous", "asqa", "ALCE's ASQA"), ("papers", "qasper", "QASPER")]
)
def test_both_load_in_their_datasets_layout(name, dataset, layout):
    plain = load_examples(FOLDER / f"{name}.jsonl")
    assert plain.layouts == (layout,)
    assert set(plain.counts.values()) <= {0, len(plain.examples)}
    assert {name for name, count in plain.counts.items() if count} <= {"with_gold_documents"}
    assert load_dataset(dataset, None, FOLDER / f"{name}.jsonl").examples == plain.examples


def test_nothing_is_there_twice(ambiguous, papers):
    examples = ambiguous.examples + papers.examples
    assert len({e.id for e in examples}) == len({e.question for e in examples}) == len(examples)
    own = [document for example in ambiguous.examples for document in example.documents]
    assert len({document.text for document in own}) == len(own) == 5 * len(ambiguous.examples)
    sentences = [sentence.text for sentence in split_sentences(own)]
    assert len(set(sentences)) == len(sentences)


def test_five_titled_documents_of_passage_length(ambiguous):
    assert len(ambiguous.examples) == 12
    for example in ambiguous.examples:
        assert len({document.title for document in example.documents}) == 5, example.id
        for document in example.documents:
            assert 50 <= len(document.text.split()) <= 90, (example.id, document.title)


def test_every_reading_has_its_answer_in_a_document_and_in_the_long_answer(ambiguous):
    for example in ambiguous.examples:
        pairs = example.meta["qa_pairs"]
        assert 2 <= len(pairs) <= 3
        for pair in pairs:
            texts = [document.text for document in example.documents]
            assert max(contains_tokens(text, pair["short_answers"]) for text in texts) == 1, (example.id, pair)
            assert contains_tokens(example.question, pair["short_answers"]) == 0
        (long_answer,) = example.meta["long_answers"]
        scored = score_asqa(example, long_answer)
        assert (scored.str_em, scored.str_hit, scored.rouge_l) == (1, 1, 1), example.id


def test_no_document_answers_every_reading(ambiguous):
    assert not [e.id for e in ambiguous.examples for d in e.documents if score_asqa(e, d.text).str_hit]


def test_facts_are_told_twice_in_other_words(ambiguous):
    """Each question has an answer in two documents, and sentences of two documents that are near, yet not equal."""
    for example in ambiguous.examples:
        told = [score_asqa(example, document.text).answered for document in example.documents]
        assert max(sum(column) for column in zip(*told, strict=True)) >= 2, example.id
        pairs = combinations(split_sentences(example.documents), 2)
        nearest = max(similarity(one.text, other.text) for one, other in pairs if one.document != other.document)
        assert 0.3 <= nearest < 1, (example.id, nearest)


def test_papers_of_short_paragraphs(papers):
    rows = [json.loads(line) for line in (FOLDER / "papers.jsonl").read_text().splitlines()]
    assert len(rows) == 3
    assert len(papers.examples) == 8
    for row in rows:
        paragraphs = [text for section in row["full_text"] for text in section["paragraphs"]]
        assert len(set(paragraphs)) == len(paragraphs)
        assert 8 <= len(paragraphs) <= 14
        assert all(40 <= len(paragraph.split()) <= 80 for paragraph in paragraphs)


def test_evidence_is_a_paragraph_and_what_is_highlighted_a_sentence_of_it(papers):
    for example in papers.examples:
        sentences = {sentence.text: sentence.document for sentence in split_sentences(example.documents)}
        texts = {document.text for document in example.documents}
        for annotation in example.meta["annotations"]:
            evidence, highlighted = (
                [text for text in annotation[field] if not text.startswith("FLOAT SELECTED: ")]
                for field in ("evidence", "highlighted_evidence")
            )
            assert set(evidence) <= texts
            assert {example.documents[sentences[text]].text for text in highlighted} == set(evidence)


def test_extractive_answers_are_spans_of_the_evidence():
    rows = [json.loads(line) for line in (FOLDER / "papers.jsonl").read_text().splitlines()]
    answers = [item["answer"] for row in rows for question in row["qas"] for item in question["answers"]]
    spans = [(span, answer["evidence"]) for answer in answers for span in answer["extractive_spans"]]
    assert len(spans) >= 8
    assert all(any(span in text for text in evidence) for span, evidence in spans)


def test_every_kind_of_answer_is_there(papers):
    annotations = [annotation for example in papers.examples for annotation in example.meta["annotations"]]
    assert {a["type"] for a in annotations} == {"extractive", "abstractive", "boolean", "none"}
    assert {a["answer"] for a in annotations if a["type"] == "boolean"} == {"Yes", "No"}
    assert any(text.startswith("FLOAT SELECTED") for a in annotations for text in a["evidence"])
    assert {len(example.meta["annotations"]) for example in papers.examples} == {1, 2}


def test_the_annotators_own_answer_and_sources_score_one(papers):
    for example in papers.examples:
        sentences = split_sentences(example.documents)
        annotation = example.meta["annotations"][0]
        sids = [sentence.sid for sentence in sentences if sentence.text in annotation["highlighted_evidence"]]
        scored = score_qasper(example, annotation["answer"], sids, text_only=True)
        assert scored.answer_f1 == scored.evidence.f1 == scored.paragraphs.f1 == scored.sentences.f1 == 1, example.id
        assert scored.answer_type == annotation["type"]
        assert scored.unfound == 0
