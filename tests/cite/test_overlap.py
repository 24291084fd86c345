"""The judge that counts words: its formula by hand, what raises and lowers it, and real pairs."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragjax.cite import LexicalOverlap
from ragjax.cite.overlap import CONTRARY

PREMISE = "The museum opened in 1952. It was not rebuilt after the fire! Its 1,200 paintings hang in 3.5 halls."


def value(premise: str, hypothesis: str) -> float:
    (found,) = LexicalOverlap().probabilities([(premise, hypothesis)]).values
    return float(found)


@pytest.mark.parametrize(
    ("hypothesis", "expected"),
    [
        ("The museum opened.", 1),
        ("The MUSEUM opened in 1952", 1),
        ("The museum closed", 1 / 2),
        ("The museum opened in 1953", 0),
        ("The museum opened between 1952 and 1953", 2 / 3 * 1 / 2),
        ("It wasn't rebuilt.", 1),
        ("It was rebuilt", CONTRARY),
        ("The museum never opened", CONTRARY),
        ("1200 paintings", 1),
        ("1300 paintings", 0),
        ("3.5 halls", 1),
        ("4.5 halls", 1 / 2),
        ("Wolves howl", 0),
        ("1952", 1),
        ("No.", 0),
        (".", 0),
        ("", 0),
    ],
)
def test_the_value_is_the_share_of_words_times_that_of_numbers(hypothesis, expected):
    assert value(PREMISE, hypothesis) == pytest.approx(expected)


def test_a_contrary_sentence_supports_less_than_half():
    assert value("The museum was not rebuilt.", "The museum was rebuilt.") == 0.25


def test_words_of_any_script_count():
    assert value("Москва стоит на реке. 東京は日本の首都です。", "москва стоит") == 1
    assert value("東京は日本の首都です。", "日本の首都") == 1
    assert value("東京は日本の首都です。", "日本の空港") == pytest.approx(3 / 5)


def test_a_premise_of_nothing_supports_nothing():
    assert value("", "The museum opened") == 0


WORDS = st.sampled_from(["cat", "dog", "not", "1952", "the", "sat", "7", "Red", "never"])
TEXTS = st.lists(st.lists(WORDS, min_size=1, max_size=5).map(" ".join), max_size=4).map(". ".join)


@given(TEXTS, TEXTS, TEXTS)
def test_more_sentences_never_support_less(premise, more, hypothesis):
    alone, both = value(premise, hypothesis), value(f"{premise}. {more}", hypothesis)
    assert 0 <= alone <= both <= 1
    assert both == value(f"{more}. {premise}", hypothesis)


@given(TEXTS)
def test_a_text_that_says_something_entails_itself(text):
    assert value(text, text) in (0, 1)
    assert value(f"Cats purr. {text}", f"Cats purr. {text}") == 1


def test_it_says_what_it_is_and_counts_words():
    judge = LexicalOverlap()
    found = judge.probabilities([(PREMISE, "A cat sat."), ("", "")])
    assert judge.name == "lexical overlap (no entailment model)"
    assert found.tokens.tolist() == [20 + 3, 0]
    assert found.truncated.tolist() == [0, 0]
    assert judge.probabilities([]).values.shape == (0,)


@pytest.mark.shared
def test_real_entailed_pairs_score_higher(shared):
    rows = [json.loads(line) for line in (shared / "data" / "nli_mnli_snli.jsonl").open()]
    values = LexicalOverlap().probabilities([(row["premise"], row["hypothesis"]) for row in rows]).values
    entailed = np.array([row["label"] == "entailment" for row in rows])
    # The chance that an entailed pair stands above another: 0.5 for a judge that knows nothing.
    above = (
        np.mean(values[entailed][:, None] > values[~entailed])
        + np.mean(values[entailed][:, None] == values[~entailed]) / 2
    )
    print(f"entailed above not entailed: {above:.2f}; right at 0.5: {np.mean((values >= 0.5) == entailed):.2f}")
    assert above > 0.65
    assert np.mean((values >= 0.5) == entailed) > 0.6
