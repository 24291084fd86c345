"""Sentences: exact places, nothing lost, and where the boundaries lie."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragjax.data import load_examples
from ragjax.data.records import Document
from ragjax.retrieve.sentences import Sentence, split_sentences

TEXTS = st.text("abAB .!?,;:'\"()[]1\n\r\t\xa0\u2028\u3000。！？؟،é🏔\u200d\u0301今天ابي“”‘’-–…", max_size=60)


def texts(text: str, language: str = "en") -> list[str]:
    return [sentence.text for sentence in split_sentences([Document(text)], language)]


@given(st.lists(TEXTS, max_size=3), st.sampled_from(["en", "zh", "ar", "de"]))
def test_every_character_lies_in_one_sentence(contents, language):
    documents = [Document(text) for text in contents]
    sentences = split_sentences(documents, language)
    for n, document in enumerate(documents):
        own = [s for s in sentences if s.document == n]
        assert [s.sid for s in own] == [f"{n}.{k}" for k in range(len(own))]
        assert all(s.text == document.text[s.start : s.end] == s.text.strip() != "" for s in own)
        assert all(a.end <= b.start for a, b in itertools.pairwise(own))
        assert "".join("".join(s.text.split()) for s in own) == "".join(document.text.split())
    assert [s.document for s in sentences] == sorted(s.document for s in sentences)


@given(st.lists(st.text("ab. \xa0\n🏔", max_size=9), max_size=6), st.sampled_from(["", " ", "\n\n"]))
def test_given_sentences_are_the_sentences(given_sentences, joint):
    document = Document(f" {joint.join(given_sentences)}\n", sentences=tuple(given_sentences))
    found = split_sentences([document])
    assert [s.text for s in found] == [s.strip() for s in given_sentences if s.strip()]
    assert all(document.text[s.start : s.end] == s.text for s in found)


def test_given_sentences_may_differ_in_inner_white_space():
    found = split_sentences([Document("One\n two.  Three.", sentences=("One two. ", "Three."))])
    assert found == (Sentence("0.0", 0, 0, 9, "One\n two."), Sentence("0.1", 0, 11, 17, "Three."))


def test_given_sentences_that_are_not_the_text_are_not_believed():
    assert [s.text for s in split_sentences([Document("One. Two.", sentences=("One.", "Three."))])] == ["One.", "Two."]


@pytest.mark.parametrize(
    "expected",
    [
        ["Dr. Smith paid 3.14 dollars to U.S. officials.", "He left."],
        ["J. R. R. Tolkien wrote it.", "It sold on Jan. 5 for $1,234.50!", "Why?"],
        ["J.\xa0R. Tolkien wrote it.", "Yes."],
        ["She said: “It is. I know.”", "He nodded (see Fig. 3. And more)."],
        ["今天天气很好。", "我们去公园！", "你呢？"],
        ["مرحبا بك.", "كيف حالك؟", "أنا بخير."],
        ["😀 Hello.", "🏔 World!"],
    ],
)
def test_boundaries(expected):
    space = "" if re.match("今", expected[0]) else " "
    assert texts(space.join(expected)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a line\nand the next. End", ["a line\nand the next.", "End"]),
        ("A title\n\nThe text.", ["A title", "The text."]),
        ("A title\r\n\r\nThe text.", ["A title", "The text."]),
        ("A title\n \nThe text.", ["A title", "The text."]),
        ("", []),
        (" \n\xa0", []),
        ("hello", ["hello"]),
        ("?", ["?"]),
        ("🏔", ["🏔"]),
        ("x" * 3000, ["x" * 3000]),
    ],
)
def test_G03_lines_and_tiny_texts(text, expected):
    assert texts(text) == expected


def test_the_language_chooses_the_abbreviations():
    assert texts("Er kam am 3. Mai an. Gut.", "de") == ["Er kam am 3. Mai an.", "Gut."]
    assert texts("Dr. A is. B", "no such") == texts("Dr. A is. B")


@pytest.mark.shared
@pytest.mark.parametrize("name", ["nq", "hotpotqa_distractor", "qasper"])
def test_real_rows_keep_every_character(shared, name):
    for example in load_examples(shared / "data" / f"{name}.jsonl").examples[:100]:
        found = split_sentences(example.documents)
        assert len({s.sid for s in found}) == len(found)
        assert all(example.documents[s.document].text[s.start : s.end] == s.text for s in found)
        joined = "".join(s.text for s in found)
        assert "".join(joined.split()) == "".join("".join(d.text for d in example.documents).split())
