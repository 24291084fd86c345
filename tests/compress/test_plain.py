"""The baselines: raw documents, gold ones, none, the beginning, chance."""

import re

import pytest
from hypothesis import given
from transformers import AutoTokenizer

from ragjax.compress.base import Budget, Unit, describe
from ragjax.compress.plain import Gold, Identity, NoContext, Prefix, RandomSentences
from ragjax.data.records import Document, Example
from ragjax.decode.prompt import count_tokens
from ragjax.retrieve.sentences import split_sentences
from ragjax.testing import byte_tokenizer
from tests.compress.copying import (
    BUDGETS,
    EXAMPLES,
    check_alone_and_together,
    check_budget,
    check_contract,
    compress_in_turn,
    further_fits,
    real_rows,
)

BYTES = byte_tokenizer()
IDENTITY, GOLD, NONE = Identity(tokenizer=BYTES), Gold(tokenizer=BYTES), NoContext(tokenizer=BYTES)
PREFIX, RANDOM = Prefix(tokenizer=BYTES), RandomSentences(tokenizer=BYTES, seed=3)
TEXTS = ["One two. Three four five.", "Six. Seven eight."]


@given(EXAMPLES, BUDGETS)
def test_identity_keeps_all_whatever_the_budget(example, budget):
    (found,) = IDENTITY.compress([example], budget)
    check_contract(BYTES, example, budget, found)
    assert [u.text for u in found.units] == [d.text for d in example.documents if d.text.strip()]
    assert [s for u in found.units for s in u.sources] == [s.sid for s in split_sentences(example.documents)]
    assert found.status == ("ok" if found.units else "empty")


@given(EXAMPLES, BUDGETS)
def test_no_context_is_nothing(example, budget):
    (found,) = NONE.compress([example], budget)
    check_contract(BYTES, example, budget, found)
    assert (found.units, found.status, found.achieved, found.prompt_tokens) == ((), "ok", 0, 0)


def test_gold_keeps_what_matches_and_else_all():
    documents = (Document("the cat sat on the mat"), Document("a dog"), Document(" "), Document("the mat of the cat"))
    golds = (Document("The cat sat on the mat, all day long."),)
    one, other, none = GOLD.compress(
        [
            Example("a", "?", documents=documents, gold_documents=golds),
            Example("b", "?", documents=documents, gold_documents=(Document("birds"),)),
            Example("c", "?", documents=(Document(" "),), gold_documents=golds),
        ],
        Budget(tokens=1),
    )
    assert [u.spans[0][0] for u in one.units] == [0, 3]
    assert (one.status, one.requested, one.notes, one.units[0].sources) == ("ok", 1, (), ("0.0",))
    assert [u.spans[0][0] for u in other.units] == [0, 1, 3]
    assert (other.status, other.notes) == ("ok", ("no document matches a gold one: all are shown",))
    assert (none.status, none.units, none.notes) == ("empty", (), ())


@given(EXAMPLES, BUDGETS)
def test_prefix_is_the_longest_that_fits(example, budget):
    (found,) = PREFIX.compress([example], budget)
    check_contract(BYTES, example, budget, found)
    check_budget(BYTES, found)
    joined = "\n".join(d.text for d in example.documents if d.text.strip())
    assert all(unit.spans[0][1] == 0 for unit in found.units)
    if found.status == "ok":
        assert "".join(joined.split()).startswith("".join(found.text.split()))
        assert [u.spans[0][0] for u in found.units] == sorted(u.spans[0][0] for u in found.units)


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (12, [("One two.", 0, 8, ("0.0",))]),
        (14, [("One two. Three", 0, 14, ("0.0", "0.1"))]),
        (29, [("One two. Three four five.", 0, 25, ("0.0", "0.1"))]),
        (30, [("One two. Three four five.", 0, 25, ("0.0", "0.1")), ("Six.", 1, 4, ("1.0",))]),
        (2, [("On", 0, 2, ("0.0",))]),
    ],
)
def test_prefix_ends_at_a_word_and_cites_what_it_begins(budget, expected):
    found = PREFIX("?", TEXTS, budget)
    assert [(u.text, u.spans[0][0], u.spans[0][2], u.sources) for u in found.units] == expected
    assert found.status == "ok"


def test_G03_a_long_word_is_cut_at_a_character():
    assert PREFIX("?", ["🏔" * 3000], 10).text == "🏔🏔"
    assert PREFIX("?", ["x" * 3000], 0.25).text == "x" * 750
    assert PREFIX("?", ["今天" * 300], 0.25).text == "今天" * 75
    assert PREFIX("?", ["🏔"], 3).status == "too_small"


@given(EXAMPLES, BUDGETS)
def test_random_sentences_keep_their_order_and_fit(example, budget):
    (found,) = RANDOM.compress([example], budget)
    check_contract(BYTES, example, budget, found)
    check_budget(BYTES, found)
    assert [u.spans for u in found.units] == sorted(u.spans for u in found.units)
    if found.status in ("ok", "too_small") and budget is not None:
        texts = [s.text for s in split_sentences(example.documents)]
        sids = [s.sid for s in split_sentences(example.documents)]
        kept = [sids.index(sid) for u in found.units for sid in u.sources]
        assert not further_fits(BYTES, texts, kept, found.requested)


def test_chance_is_that_of_the_seed_and_the_example():
    documents = tuple(Document(f"Sentence {n} is here.") for n in range(30))
    examples = [Example(name, "?", documents=documents) for name in ("a", "b")]
    first, second = RANDOM.compress(examples, Budget(fraction=0.25))
    again = RandomSentences(tokenizer=BYTES, seed=4).compress(examples, Budget(fraction=0.25))[0]
    assert len({one.text for one in (first, second, again)}) == 3
    assert RANDOM.compress(examples[:1], Budget(fraction=0.25))[0].text == first.text
    assert describe(RANDOM) == {"family": "RandomSentences", "seed": 3, "language": "en"}


@pytest.mark.parametrize("compressor", [IDENTITY, GOLD, NONE, PREFIX, RANDOM], ids=lambda c: type(c).__name__)
def test_G02_G03_tiny_inputs(compressor):
    for documents in ([], [""], [" ", "\n"]):
        found = compressor("?", documents, 0.5)
        assert (found.units, found.achieved, found.rate) == ((), 0, None)
        assert found.status == ("ok" if compressor is NONE else "empty")
    found = compressor("?", ["", "text"], 9)
    assert found.units == (() if compressor is NONE else (Unit("text", ("1.0",), ((1, 0, 4),)),))
    for text in ("hello", "?", "🏔"):
        found = compressor("?", [text], 1.0)
        assert found.text == ("" if compressor is NONE else text)


@pytest.mark.parametrize("compressor", [IDENTITY, GOLD, NONE, PREFIX, RANDOM], ids=lambda c: type(c).__name__)
def test_a_result_does_not_depend_on_the_others(compressor):
    examples = [Example(f"q{n}", "?", documents=tuple(map(Document, TEXTS[: n % 3] * 2))) for n in range(5)]
    check_alone_and_together(compressor, examples, Budget(fraction=0.4))


@pytest.mark.shared
def test_real_rows(shared, smollm2):
    tokenizer, rows = AutoTokenizer.from_pretrained(smollm2), real_rows(shared)[:100]

    def nothing_further(example, found):
        sentences = split_sentences(example.documents)
        texts = [s.text for s in sentences]
        places = {s.sid: i for i, s in enumerate(sentences)}
        kept = [places[sid] for u in found.units for sid in u.sources]
        assert not further_fits(tokenizer, texts, kept, found.requested)

    def longest(example, found):
        joined = "\n".join(d.text for d in example.documents)
        assert joined.startswith(found.text)
        word = re.match(r"\s*\S+", joined[len(found.text) :])[0]
        assert count_tokens(tokenizer, found.text + word) > found.requested

    for compressor, check in (
        (RandomSentences(tokenizer=tokenizer), nothing_further),
        (Prefix(tokenizer=tokenizer), longest),
    ):
        for statuses in compress_in_turn(compressor, rows, check).values():
            assert statuses["ok"] == 25
