"""The contract's small parts: budgets, documents, cutting to a budget, and the prompts' texts."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragjax.compress.base import Budget, Compressed, Unit, as_document
from ragjax.compress.cut import cut_to_budget, source_length
from ragjax.compress.prompts import DEFAULT_PROMPTS, number_documents, read_prompts, texts_of
from ragjax.data.records import Document
from ragjax.decode.prompt import count_tokens
from ragjax.evals.parts import digest
from ragjax.testing import byte_tokenizer

BYTES = byte_tokenizer()
WORDS = st.lists(st.text("abé🏔.,", min_size=1, max_size=9), max_size=12).map(" ".join)


def test_budget_is_a_fraction_or_a_number_of_tokens():
    assert Budget.of(None) is None
    assert Budget.of(0.25) == Budget(fraction=0.25)
    assert Budget.of(12) == Budget(tokens=12)
    assert Budget.of(1.0) == Budget(fraction=1.0) != Budget.of(1)
    assert Budget.of(Budget(tokens=3)) == Budget(tokens=3)


@pytest.mark.parametrize("bad", [{}, {"fraction": 0.5, "tokens": 3}, {"fraction": 0.0}, {"fraction": 1.1}])
def test_impossible_budgets_are_refused(bad):
    with pytest.raises(ValueError, match="budget"):
        Budget(**bad)


@pytest.mark.parametrize("bad", [0, -1, 0.0, -0.5, float("nan")])
def test_B11_a_budget_of_zero_is_refused_not_ignored(bad):
    with pytest.raises(ValueError, match="budget"):
        Budget.of(bad)


@given(st.sampled_from([0.5, 0.25, 0.1, 0.05]), st.integers(0, 10_000))
def test_a_fraction_is_rounded_down(fraction, tokens):
    assert Budget(fraction=fraction).resolve(tokens) == tokens // round(1 / fraction)
    assert Budget(fraction=0.29).resolve(100) == 29
    assert Budget(tokens=7).resolve(tokens) == 7


@given(WORDS, st.integers(1, 60))
def test_cut_is_the_longest_prefix_of_whole_words_that_fits(text, budget):
    found, status = cut_to_budget(BYTES, text, budget)
    assert count_tokens(BYTES, found) <= budget
    assert text.startswith(found)
    if status == "ok":
        assert found == text
        return
    assert count_tokens(BYTES, text) > budget
    rest = text[len(found) :]
    assert not found or rest[0] == " "  # cut at a word
    following = found + rest[: len(rest) - len(rest.lstrip())] + rest.split()[0]
    assert count_tokens(BYTES, following) > budget
    assert status == ("length" if found else "too_small")


def test_cut_of_one_word_too_many():
    assert cut_to_budget(BYTES, "one two three", 9) == ("one two", "length")
    assert cut_to_budget(BYTES, "one two three", 2) == ("", "too_small")
    assert cut_to_budget(BYTES, "", 2) == ("", "ok")


def test_source_length_counts_texts_joined_by_newlines():
    documents = [Document("abc", title="Title"), Document("é")]
    assert source_length(BYTES, documents) == 3 + 1 + 2
    assert source_length(BYTES, []) == 0


def test_documents_are_texts_or_fields():
    assert as_document("x") == Document("x")
    assert as_document({"title": "t", "text": "x"}) == Document("x", title="t")
    assert as_document(Document("x", title="t")) == Document("x", title="t")
    assert as_document({"text": "x", "url": "u"}).meta == {"url": "u"}
    with pytest.raises(ValueError, match="a document is a text or has the fields title and text"):
        as_document({"title": "t"})
    assert as_document(" ") == as_document({"text": None, "title": "t"}) == Document("")


def test_documents_are_numbered_with_their_titles():
    assert number_documents([Document("a", title="T"), Document("b")]) == "[1] T: a\n[2] b"


def test_text_of_compressed_evidence_is_its_units_joined():
    found = Compressed((Unit("a"), Unit("b")), None, 3, 3, 9, "ok")
    assert found.text == "a\nb"
    assert Compressed((), None, 0, 0, 0, "empty").text == ""


def test_prompts_of_ones_own_are_read_from_a_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('version = "mine-1"\nread_alone = "{question}?"\n')
    found = read_prompts(path)
    assert found == dataclasses.replace(DEFAULT_PROMPTS, version="mine-1", read_alone="{question}?")
    for text, message in (
        ('version = "m"\nread_alon = "x"', "unknown prompt field 'read_alon'"),
        ('version = "m"\nread_alone = 3', "'read_alone' is not a text"),
        ('read_alone = "x"', "give the prompts a version"),
        ('version = "m"\nread_question_first = "{question}"', "has to hold {context}, {question}"),
        ('version = "m"\nread_alone = "{question} {topic}"', "has to hold {question}"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_prompts(path)


def test_the_shipped_prompts_have_a_place_for_every_piece():
    needed = {
        "compress_user": {"question", "documents"},
        "context_user": {"question"},
        "compact_user": {"question", "documents"},
        "compact_next": {"question", "documents", "summary", "evaluation"},
        "merge_user": {"question", "sentences"},
        "read_question_first": {"question", "context"},
        "read_context_first": {"question", "context"},
        "read_alone": {"question"},
    }
    for name, pieces in needed.items():
        text = getattr(DEFAULT_PROMPTS, name)
        assert all(f"{{{piece}}}" in text for piece in pieces)
        assert text.format(**dict.fromkeys(pieces, "x"))


def test_results_depend_on_the_texts_of_the_roles_they_use_alone():
    words = texts_of(DEFAULT_PROMPTS, ("compress", "context", "read"))
    other = dataclasses.replace(DEFAULT_PROMPTS, compact_next="{question} {summary} {evaluation} {documents}")
    assert words == texts_of(other, ("compress", "context", "read"))
    assert texts_of(other, ("compact",)) != texts_of(DEFAULT_PROMPTS, ("compact",))
    assert set(words) | set(texts_of(other, ("compact", "merge", "recomp", "cite", "write", "judge"))) == {
        f.name for f in dataclasses.fields(other)
    }
    # Results made before there were texts of CompAct can still be resumed.
    assert digest(words) == "0c0a640e789c4646"
