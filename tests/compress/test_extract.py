"""Extraction: the best sentences, where they were; RECOMP's extractive compressor."""

import pytest
from hypothesis import given
from transformers import AutoTokenizer

from ragjax.compress.base import Budget, Unit, describe
from ragjax.compress.extract import Extract, recomp_extractive
from ragjax.data.records import Document, Example
from ragjax.models.embedding_config import EmbeddingConfig
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
EXTRACT = Extract(tokenizer=BYTES, scorer=BM25())
TEXTS = ["One two. The cat sat. Three.", "Cats and a cat.", "Six. The cat sat."]


@given(EXAMPLES, BUDGETS)
def test_contract(example, budget):
    (found,) = EXTRACT.compress([example], budget)
    check_contract(BYTES, example, budget, found)
    check_budget(BYTES, found)
    check_nothing_further(BYTES, example, found)


def check_nothing_further(tokenizer, example, found):
    """Each unit is a sentence, in the documents' order, and none left out would fit."""
    if found.status in ("ok", "too_small"):
        sentences = split_sentences(example.documents)
        places = {s.sid: place for place, s in enumerate(sentences)}
        kept = [places[sid] for unit in found.units for sid in unit.sources]
        assert kept == sorted(set(kept))
        assert [u.text for u in found.units] == [sentences[i].text for i in kept]
        if found.requested is not None:
            assert not further_fits(tokenizer, [s.text for s in sentences], kept, found.requested)


@pytest.mark.parametrize(
    ("budget", "most", "expected"),
    [
        (15, None, ["1.0"]),
        (14, None, ["0.1"]),
        (32, None, ["0.1", "1.0"]),
        (42, None, ["0.1", "1.0", "2.1"]),
        (46, None, ["0.1", "1.0", "2.0", "2.1"]),
        (None, 1, ["1.0"]),
        (None, 2, ["0.1", "1.0"]),
        (None, None, ["0.0", "0.1", "0.2", "1.0", "2.0", "2.1"]),
        (3, None, []),
    ],
)
def test_what_fits(budget, most, expected):
    scorer = Table({"Cats and a cat.": 2.0, "The cat sat.": 1.0})
    found = Extract(tokenizer=BYTES, scorer=scorer, most=most)("cat?", TEXTS, budget)
    assert [sid for unit in found.units for sid in unit.sources] == expected
    assert found.status == ("ok" if expected else "too_small")


def test_G02_G03_tiny_inputs():
    for documents in ([], [""], [" ", "\n"]):
        found = EXTRACT("?", documents, 0.5)
        assert (found.units, found.achieved, found.rate, found.status) == ((), 0, None, "empty")
    for text in ("hello", "?", "🏔"):
        whole = (Unit(text, ("0.0",), ((0, 0, len(text)),)),)
        assert EXTRACT("?", [text]).units == EXTRACT("", [text], 1.0).units == whole
    assert EXTRACT("?", ["", "text"], 9).units == (Unit("text", ("1.0",), ((1, 0, 4),)),)
    assert EXTRACT("?", ["x" * 3000], 0.5).status == "too_small"


def test_G07_long_inputs_keep_their_order_and_count_what_the_scorer_did_not_see():
    documents = [f"Fact {n} is told here. " * 90 for n in range(5)]
    found = Extract(tokenizer=BYTES, scorer=Table({}, truncated=1234))("fact", documents, 0.25)
    assert found.notes == ("1234 tokens were beyond the reach of the scorer's model",)
    assert [u.spans[0] for u in found.units] == sorted(u.spans[0] for u in found.units)
    assert found.achieved <= found.requested < found.achieved + 30
    (one,) = EXTRACT(["fact 7"], [["A long story. " * 700 + "It ends at fact 7."]], 0.01)
    assert "It ends at fact 7." in one.text


def test_duplicates_are_units_of_their_own():
    found = EXTRACT("cat", ["The cat sat.", "The cat sat."], 25)
    assert [u.sources for u in found.units] == [("0.0",), ("1.0",)]


def test_recomp_takes_so_many_sentences_by_the_dot_product():
    compressor = recomp_extractive(Fingerprinted(), tokenizer=BYTES, most=2)
    assert describe(compressor) == {
        "family": "Extract",
        "scorer": {"model": "f1", "similarity": "dot", "pooling": None},
        "most": 2,
        "language": "en",
    }
    with pytest.raises(ValueError, match="most counts sentences"):
        recomp_extractive(Fingerprinted(), tokenizer=BYTES, most=0)


class Fingerprinted:
    fingerprint, name, embedding = "f1", "tiny", EmbeddingConfig()


def test_a_result_does_not_depend_on_the_others():
    examples = [Example(f"q{n}", "the cat", documents=tuple(map(Document, TEXTS[: n % 4]))) for n in range(6)]
    check_alone_and_together(EXTRACT, examples, Budget(fraction=0.4))


@pytest.mark.shared
def test_real_rows(shared, smollm2):
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    statuses = compress_in_turn(
        Extract(tokenizer=tokenizer, scorer=BM25()),
        real_rows(shared),
        lambda example, found: check_nothing_further(tokenizer, example, found),
    )
    assert all(own["ok"] == 50 for own in statuses.values())


def test_several_budgets_are_each_their_own_and_scored_once():
    examples = [Example("a", "cat", documents=tuple(map(Document, TEXTS))), Example("b", "x", documents=())]
    budgets = [Budget(tokens=15), None, Budget(tokens=42), Budget(tokens=500)]
    asked = []

    class Counting(BM25):
        def score(self, questions, texts):
            asked.append(len(questions))
            return super().score(questions, texts)

    found = Extract(tokenizer=BYTES, scorer=Counting()).compress_budgets(examples, budgets)
    assert asked == [3]
    assert [of[0].status for of in found] == ["ok", "ok", "ok", "short_input"]
    for budget, row in zip(budgets, found, strict=True):
        alone = EXTRACT.compress(examples, budget)
        assert [(c.units, c.requested, c.achieved, c.status) for c in row] == [
            (c.units, c.requested, c.achieved, c.status) for c in alone
        ]
