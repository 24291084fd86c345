"""Ids: the user's, else the content's, always distinct and independent of what follows."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from ragjax.data import Document, Example, content_hash, example_ids


def example(question: str = "q", id: str = "", **changes) -> Example:
    return Example(id=id, question=question, documents=(Document("text", "title"),), **changes)


def test_J04_ten_rows_two_with_equal_text_have_ten_ids():
    examples = [example(f"q{n % 9}") for n in range(10)]
    ids = example_ids(examples)
    assert len(set(ids)) == 10
    assert ids[9] == f"{ids[0]}#2"


def test_J04_the_users_id_is_kept_and_repeats_are_numbered():
    assert example_ids([example(id="a"), example(id="b"), example(id="a"), example(id="a")]) == ["a", "b", "a#2", "a#3"]


def test_J04_a_users_id_that_looks_numbered_stays_distinct():
    ids = example_ids([example(id="a"), example(id="a#2"), example(id="a"), example(id="a")])
    assert ids[:2] == ["a", "a#2"]
    assert len(set(ids)) == 4


@given(st.lists(st.sampled_from(["", "a", "b", "a#2", "a#2#2"]), max_size=12), st.integers(0, 12))
def test_J04_ids_are_distinct_and_a_prefix_keeps_its_ids(names, cut):
    examples = [example(id=name) for name in names]
    ids = example_ids(examples)
    assert len(set(ids)) == len(ids)
    assert example_ids(examples[:cut]) == ids[:cut]


def test_content_hash_follows_the_content_alone():
    base = example(answers=("a",))
    assert content_hash(base) == content_hash(dataclasses.replace(base, id="other", meta={"k": 1}))
    changed = [
        dataclasses.replace(base, question="r"),
        dataclasses.replace(base, answers=("b",)),
        dataclasses.replace(base, documents=(Document("text", "other title"),)),
        dataclasses.replace(base, documents=(Document("titletext"),)),
    ]
    assert len({content_hash(e) for e in [base, *changed]}) == 5


def test_given_sentences_and_golds_are_content_where_there_are_any():
    base = example(answers=("a",))
    assert content_hash(base) == "258455b00ca73b134bc77272a36a023b"
    cut = dataclasses.replace(base, documents=(Document("text", "title", sentences=("te", "xt")),))
    golds = [{"gold_documents": (Document("text", "title"),)}, {"gold_sentences": ("text",)}]
    given = [dataclasses.replace(base, **gold) for gold in golds]
    every = [base, cut, *given, dataclasses.replace(cut, documents=(Document("text", "title", sentences=("text",)),))]
    assert len({content_hash(one) for one in every}) == len({content_hash(one, answers=False) for one in every}) == 5
    assert {content_hash(one, golds=False) for one in given} == {content_hash(base, golds=False)}
    seen = {"golds": False, "answers": False}
    assert content_hash(base, answers=False) == content_hash(base, **seen) != content_hash(cut, **seen)
    other = dataclasses.replace(base, answers=("b",))
    assert content_hash(other, golds=False) != content_hash(base, golds=False)


def test_a_corrected_gold_keeps_the_id_but_not_the_hash():
    before, after = example(answers=("a",)), example(answers=("b",))
    assert example_ids([before]) == example_ids([after])
    assert content_hash(before, answers=False) == content_hash(after, answers=False)
    assert content_hash(before) != content_hash(after)
