"""Packing: within the budget, nothing left that would fit, in rank order; whatever the tokenizer's habits."""

import time
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from ragjax.compress import packing
from ragjax.compress.packing import pack
from ragjax.decode.prompt import count_each, count_tokens
from ragjax.retrieve.sentences import split_sentences
from ragjax.testing import byte_tokenizer
from tests.compress.copying import FRACTIONS, further_fits, real_rows

BYTES = byte_tokenizer()
UNITS = st.lists(st.text("ab é🏔.", min_size=1, max_size=12), max_size=8)


class Superadditive:
    """Texts together cost more than apart: lengths grow with the square."""

    added_tokens_decoder: ClassVar = {}

    def __call__(self, texts, **_):
        def ids(text):
            return [0] * (len(text) ** 2 // 10)

        return {"input_ids": [ids(text) for text in texts]}


class Merging:
    """A line end between an x and a y makes one token of all three, and saves two more: together may be less."""

    added_tokens_decoder: ClassVar = {}

    def __call__(self, texts, **_):
        return {"input_ids": [[0] * (len(text) - 3 * text.count("x\ny")) for text in texts]}


def test_what_one_adds_may_let_in_another_that_did_not_fit_before():
    assert pack(Merging(), ["aax", "y", "b"], [0, 1, 2], 2) == [0, 1]
    assert pack(Merging(), ["aax", "z", "b"], [0, 1, 2], 2) == [1]


@given(UNITS, st.randoms(use_true_random=False), st.integers(1, 60), st.sampled_from([BYTES, Superadditive()]))
def test_fits_and_nothing_further_would(texts, random, budget, tokenizer):
    ranking = random.sample(range(len(texts)), len(texts))
    kept = pack(tokenizer, texts, ranking, budget)
    assert kept == sorted(set(kept))
    assert count_tokens(tokenizer, "\n".join(texts[i] for i in kept)) <= budget
    assert not further_fits(tokenizer, texts, kept, budget)


@given(UNITS, st.randoms(use_true_random=False), st.integers(1, 60))
def test_units_are_tried_in_rank_order(texts, random, budget):
    ranking = random.sample(range(len(texts)), len(texts))
    expected: set[int] = set()
    for unit in ranking:  # Bytes add up, so that one pass is enough.
        if count_tokens(BYTES, "\n".join(texts[i] for i in sorted({*expected, unit}))) <= budget:
            expected.add(unit)
    assert pack(BYTES, texts, ranking, budget) == sorted(expected)


def test_one_that_does_not_fit_is_skipped():
    assert pack(BYTES, ["aaaa", "bbbbbbbb", "cc"], [1, 0, 2], 7) == [0, 2]
    assert pack(BYTES, ["aaaa", "bbbbbbbb", "cc"], [1, 0, 2], 8) == [1]
    assert pack(BYTES, ["aaaa", "bbbbbbbb", "cc"], [1, 0, 2], 1) == []
    assert pack(BYTES, [], [], 5) == []


def test_without_a_budget_all_are_taken():
    assert pack(BYTES, ["a" * 50, "b"], [1, 0], None) == [0, 1]
    assert pack(BYTES, ["a" * 50, "b"], [1, 0], None, most=1) == [1]


def test_units_with_a_claim_in_common_exclude_each_other():
    texts, claims = ["aaaaaa", "aaa", "bbbbbb", "bb"], [{"a"}, {"a", "cut"}, {"b"}, {"b", "cut"}]
    assert pack(BYTES, texts, range(4), 13, claims=claims) == [0, 2]
    assert pack(BYTES, texts, range(4), 12, claims=claims) == [0, 3]
    assert pack(BYTES, texts, range(4), 5, claims=claims) == [1]
    assert pack(BYTES, texts, range(4), None, claims=claims) == [0, 2]


def test_most_bounds_the_number():
    assert pack(BYTES, ["a", "b", "c"], [2, 0, 1], 99, most=2) == [0, 2]


def tokenizers(shared, smollm2) -> dict:
    files = {name: shared / "models" / f"{name}-tokenizer.json" for name in ("phi-3-mini", "t5-small")}
    own = {name: PreTrainedTokenizerFast(tokenizer_file=str(file)) for name, file in files.items()}
    return {"smollm2": AutoTokenizer.from_pretrained(smollm2), **own}


@pytest.mark.shared
@pytest.mark.parametrize("name", ["smollm2", "phi-3-mini", "t5-small"])
def test_no_further_sentence_of_real_rows_would_fit(shared, smollm2, name, monkeypatch):
    """The estimate decides as counting every step does, for tokenizers that join texts in different ways."""
    tokenizer = tokenizers(shared, smollm2)[name]
    for n, example in enumerate(real_rows(shared)[:16]):
        texts = [s.text for s in split_sentences(example.documents)]
        ranking = sorted(range(len(texts)), key=lambda i: texts[i][::-1])
        budget = int(FRACTIONS[n % 4] * sum(count_each(tokenizer, texts)))
        kept = pack(tokenizer, texts, ranking, budget)
        assert count_tokens(tokenizer, "\n".join(texts[i] for i in kept)) <= budget
        assert not further_fits(tokenizer, texts, kept, budget)
        monkeypatch.setattr(packing, "SLACK", 10**6)
        assert pack(tokenizer, texts, ranking, budget) == kept
        monkeypatch.undo()


@pytest.mark.shared
def test_packing_of_thirty_documents_is_quick(shared, smollm2, monkeypatch):
    """Few joined texts are tokenised: a share of the units, where counting every step takes one for each."""
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    documents = [d for example in real_rows(shared)[:6] for d in example.documents]
    texts = [s.text for s in split_sentences(documents)]
    counted = []
    monkeypatch.setattr(packing, "count_tokens", lambda t, text: counted.append(text) or count_tokens(t, text))
    start = time.perf_counter()
    kept = pack(tokenizer, texts, range(len(texts)), 2000)
    assert time.perf_counter() - start < 2
    assert len(kept) > 40
    assert len(counted) < len(texts) / 4
