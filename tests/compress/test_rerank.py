"""Reranking: passages in rank order, whole or one of them up to a sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from ragjax.compress import packing
from ragjax.compress.base import Budget, describe
from ragjax.compress.rerank import Rerank
from ragjax.data.records import Document, Example
from ragjax.decode.prompt import count_tokens
from ragjax.retrieve.scorers import BM25
from ragjax.retrieve.sentences import split_sentences
from ragjax.testing import byte_tokenizer
from tests.compress.copying import (
    BUDGETS,
    EXAMPLES,
    Table,
    check_alone_and_together,
    check_budget,
    check_contract,
    compress_in_turn,
    further_fits,
    real_rows,
)

BYTES = byte_tokenizer()
A, B, C = "Aaa aa. Bb.", "Ccccc cccc. Dd dd. Ee.", "Ff."
SCORER = Table({B: 3.0, A: 2.0, C: 1.0})


def rerank(last: str = "cut", scorer=SCORER) -> Rerank:
    return Rerank(tokenizer=BYTES, scorer=scorer, last=last)


@given(EXAMPLES, BUDGETS, st.sampled_from(["cut", "whole"]))
def test_contract(example, budget, last):
    compressor = rerank(last, BM25())
    (found,) = compressor.compress([example], budget)
    check_contract(BYTES, example, budget, found)
    check_budget(BYTES, found)
    check_nothing_further(BYTES, example, found, last)


def check_nothing_further(tokenizer, example, found, last):
    """No passage left out fits whole at the end; the one cut could not take its next sentence, no other a first one."""
    if found.status not in ("ok", "too_small") or found.requested is None:
        return
    sentences = split_sentences(example.documents)
    ends = [[s.end for s in sentences if s.document == n] for n in range(len(example.documents))]
    texts = [u.text for u in found.units]
    left = set(range(len(example.documents))) - {u.spans[0][0] for u in found.units}
    more = [example.documents[n].text for n in left if ends[n]]
    shorter = [(i, u) for i, u in enumerate(found.units) if u.text != example.documents[u.spans[0][0]].text]
    assert len(shorter) <= (last == "cut")
    if last == "cut" and not shorter:
        more += [example.documents[n].text[: ends[n][0]] for n in left if ends[n]]
    assert not further_fits(tokenizer, texts + more, range(len(texts)), found.requested)
    for place, unit in shorter:
        number, _, end = unit.spans[0]
        following = example.documents[number].text[: ends[number][ends[number].index(end) + 1]]
        longer = [*texts[:place], following, *texts[place + 1 :]]
        assert further_fits(tokenizer, longer, [i for i in range(len(texts)) if i != place], found.requested) == []


@pytest.mark.parametrize(
    ("last", "budget", "expected"),
    [
        ("cut", None, [B, A, C]),
        ("whole", None, [B, A, C]),
        ("cut", 35, [B, A]),
        ("cut", 30, [B, "Aaa aa."]),
        ("cut", 26, [B, C]),
        ("cut", 18, ["Ccccc cccc. Dd dd."]),
        ("cut", 11, ["Ccccc cccc."]),
        ("cut", 10, ["Aaa aa."]),
        ("cut", 2, []),
        ("whole", 19, [A, C]),
        ("whole", 10, [C]),
        ("whole", 2, []),
    ],
)
def test_what_fits(last, budget, expected):
    found = rerank(last)("?", [A, B, C], budget)
    assert [unit.text for unit in found.units] == expected
    assert found.status == ("ok" if expected else "too_small")


@pytest.mark.parametrize(("budget", "expected"), [(2, ["?A"]), (3, ["?A "]), (1, ["?"])])
def test_white_space_that_ends_a_passage_is_cut_off_before_a_sentence_is(budget, expected):
    assert [unit.text for unit in rerank(scorer=Table({"?A ": 1.0}))("?", ["11 ", "?A "], budget).units] == expected


def test_a_whole_passage_may_follow_the_one_cut():
    found = rerank()("?", [A, B, C], 15)
    assert [(u.text, u.sources) for u in found.units] == [("Ccccc cccc.", ("1.0",)), ("Ff.", ("2.0",))]


def test_G07_a_long_passage_is_cut_without_reading_every_beginning_of_it(monkeypatch):
    long = "A sentence of a story. " * 2000
    calls = []
    monkeypatch.setattr(packing, "count_tokens", lambda t, text: calls.append(len(text)) or count_tokens(t, text))
    found = rerank()("?", [long, A], 0.5)
    check_nothing_further(BYTES, Example("x", "?", documents=(Document(long), Document(A))), found, "cut")
    assert found.achieved > found.requested - len("A sentence of a story. ")
    assert len(calls) < 10


def test_passages_are_scored_under_their_titles():
    documents = [{"title": "Rome", "text": "The capital."}, {"title": "", "text": "A city of Italy."}]
    found = rerank(scorer=Table({"A city of Italy.": 1.0, "Rome\nThe capital.": 2.0}))("?", documents, 0.6)
    assert found.text == "The capital."


def test_equal_passages_keep_their_order():
    found = rerank(scorer=Table({}))("?", ["One.", "One.", "Two."], 9)
    assert [u.spans[0][0] for u in found.units] == [0, 1]


def test_settings():
    with pytest.raises(ValueError, match="last is one of"):
        rerank("first")
    assert describe(rerank("whole", BM25())) == {
        "family": "Rerank",
        "scorer": {"k1": 1.5, "b": 0.75},
        "last": "whole",
        "language": "en",
    }


@pytest.mark.parametrize("last", ["cut", "whole"])
def test_a_result_does_not_depend_on_the_others(last):
    texts = [A, B, C, "Aaa cccc."]
    examples = [Example(f"q{n}", "aaa d", documents=tuple(map(Document, texts[: n % 5]))) for n in range(7)]
    check_alone_and_together(rerank(last, BM25()), examples, Budget(fraction=0.6))


@pytest.mark.shared
@pytest.mark.parametrize("last", ["cut", "whole"])
def test_real_rows(shared, smollm2, last):
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    statuses = compress_in_turn(
        Rerank(tokenizer=tokenizer, scorer=BM25(), last=last),
        real_rows(shared),
        lambda example, found: check_nothing_further(tokenizer, example, found, last),
    )
    # Of five passages of about one length none fits into a tenth whole.
    assert [statuses[f]["ok"] for f in (0.5, 0.25)] == [50, 50]
    assert [statuses[f]["too_small"] for f in (0.1, 0.05)] == ([0, 0] if last == "cut" else [50, 50])
