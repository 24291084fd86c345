"""The questions that ship with the experiments keep what the quickstart relies on."""

from pathlib import Path

import pytest

from ragjax.data import load_examples
from ragjax.evals.qa import contains_tokens, hits

FOLDER = Path(__file__).resolve().parents[2] / "experiments" / "data"


@pytest.fixture(scope="module")
def loaded():
    return load_examples(FOLDER / "questions.jsonl")


def closed(example) -> bool:
    return example.answers in (("yes",), ("no",))


def test_every_row_is_complete(loaded):
    assert len(loaded.examples) >= 36
    assert set(loaded.counts.values()) == {0}
    for example in loaded.examples:
        assert example.answers
        assert set(example.meta) == {"type", "topic", "answerable"}
        assert example.meta["type"] in ("single", "multi")
        assert example.meta["topic"] in ("invented", "real")


def test_ids_and_questions_are_distinct(loaded):
    assert len({e.id for e in loaded.examples}) == len({e.question for e in loaded.examples}) == len(loaded.examples)


def test_five_short_titled_documents_each(loaded):
    for example in loaded.examples:
        assert len({document.title for document in example.documents}) == 5, example.id
        for document in example.documents:
            assert document.title.strip()
            assert 35 <= len(document.text.split()) <= 60, (example.id, document.title)


def test_an_answer_is_in_the_documents_exactly_where_the_row_says_so(loaded):
    for example in loaded.examples:
        if closed(example):
            continue
        texts = [text for document in example.documents for text in (document.title, document.text)]
        assert hits(example.documents, example.answers) == example.meta["answerable"], example.id
        assert max(contains_tokens(text, example.answers) for text in texts) == example.meta["answerable"], example.id


def test_the_answer_is_not_in_the_question(loaded):
    assert not [e.id for e in loaded.examples if contains_tokens(e.question, e.answers)]


def test_the_mix(loaded):
    total = len(loaded.examples)
    unanswerable = sum(not e.meta["answerable"] for e in loaded.examples)
    assert 0.15 <= unanswerable / total <= 0.25
    assert 0.3 <= sum(e.meta["type"] == "multi" for e in loaded.examples) / total <= 0.7
    assert 0.2 <= sum(e.meta["topic"] == "real" for e in loaded.examples) / total <= 1 / 3
    assert {e.answers for e in loaded.examples if closed(e)} == {("yes",), ("no",)}


def test_the_first_eight_hold_every_kind(loaded):
    first = loaded.examples[:8]
    assert {e.meta["type"] for e in first} == {"single", "multi"}
    assert {e.meta["topic"] for e in first} == {"invented", "real"}
    assert {e.meta["answerable"] for e in first} == {True, False}
    assert any(closed(e) for e in first)
