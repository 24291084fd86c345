"""Units that know their place, requests that need no choice, and rankings."""

import math

import pytest
from hypothesis import given

from ragjax.compress.base import Budget, Unit
from ragjax.compress.cut import cut_to_budget
from ragjax.compress.units import (
    document_unit,
    document_units,
    make_request,
    rank,
    sentence_unit,
    shown_documents,
    without_decoding,
)
from ragjax.data.records import Document, Example
from ragjax.decode.prompt import count_tokens
from ragjax.retrieve.sentences import split_sentences
from ragjax.testing import byte_tokenizer
from tests.compress.copying import BUDGETS, EXAMPLES, Table, check_budget, check_contract

BYTES = byte_tokenizer()
TWO = (Document("One. Two.", title="A"), Document(" "), Document("Three."))


@given(EXAMPLES, BUDGETS)
def test_documents_that_fit_are_returned_whole_and_declared(example, budget):
    sentences = split_sentences(example.documents)
    found = make_request(BYTES, example, budget, sentences).settle()
    if found is not None:
        check_contract(BYTES, example, budget, found)
        check_budget(BYTES, found)
        assert [s for unit in found.units for s in unit.sources] == [s.sid for s in sentences]
        written = without_decoding(BYTES, example, budget)
        assert [(u.text, u.spans, u.sources) for u in written.units] == [(u.text, u.spans, None) for u in found.units]
        assert written.prompt_tokens == written.achieved == found.achieved
    else:
        assert budget is None or budget.resolve(found_tokens(example)) < found_tokens(example)


def found_tokens(example: Example) -> int:
    return count_tokens(BYTES, "\n".join(d.text for d in example.documents))


def test_a_document_declares_the_sentences_that_it_holds_or_begins():
    sentences = split_sentences(TWO)
    assert document_unit(TWO, 0, sentences) == Unit("One. Two.", ("0.0", "0.1"), ((0, 0, 9),))
    assert document_unit(TWO, 0, sentences, 4) == Unit("One.", ("0.0",), ((0, 0, 4),))
    assert document_unit(TWO, 0, sentences, 6) == Unit("One. T", ("0.0", "0.1"), ((0, 0, 6),))
    assert document_unit(TWO, 2, None) == Unit("Three.", None, ((2, 0, 6),))
    assert [unit.spans[0][0] for unit in document_units(TWO, sentences)] == [0, 2]


def test_units_are_shown_under_their_documents_titles():
    units = [sentence_unit(split_sentences(TWO)[1]), Unit("Six.", ("0.0",))]
    assert shown_documents(units, TWO) == (Document("Two.", title="A"), Document("Six."))
    found = make_request(BYTES, Example("x", "?", documents=TWO), None, split_sentences(TWO)).fulfil(units, "ok")
    assert found.prompt_tokens == len("[1] A: Two.\n[2] Six.")
    assert (found.achieved, found.rate) == (9, 9 / len("One. Two.\n \nThree."))


def test_ranks_are_stable_and_scores_finite():
    request = make_request(BYTES, Example("q7", "?", documents=TWO), None, ())
    (found,) = rank(Table({"b": 2.0, "c": 1.0, "d": 2.0}), [request], [["a", "b", "c", "d"]])
    assert (found.order, found.notes) == ([1, 3, 2, 0], ())
    (cut,) = rank(Table({}, truncated=17), [request], [["a"]])
    assert cut.notes == ("17 tokens were beyond the reach of the scorer's model",)
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="example 'q7': the scorer gave a score that is not finite"):
            rank(Table({"a": bad}), [request], [["a"]])


def test_a_text_without_spaces_is_cut_between_its_characters():
    assert cut_to_budget(BYTES, "今天天气。好", 10) == ("今天天", "length")
    assert cut_to_budget(BYTES, "ab今天 cd", 4) == ("ab", "length")
    assert cut_to_budget(BYTES, "abcdef gh", 4) == ("", "too_small")
    assert cut_to_budget(BYTES, "abcdef gh", 4, inside_words=True) == ("abcd", "length")
    assert cut_to_budget(BYTES, "🏔🏔 gh", 5, inside_words=True) == ("🏔", "length")
    assert cut_to_budget(BYTES, "🏔 gh", 3, inside_words=True) == ("", "too_small")
    assert cut_to_budget(BYTES, " \n  ", 2, inside_words=True) == ("", "too_small")


def test_budget_in_tokens_may_exceed_the_source():
    found = make_request(BYTES, Example("x", "?", documents=TWO), Budget(tokens=99), ()).settle()
    assert (found.status, found.requested, found.achieved) == ("short_input", 99, len("One. Two.\nThree."))
