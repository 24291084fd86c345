"""Known values of each official normaliser."""

import pytest

from ragjax.evals.normalize import NORMALIZERS, OFFICIAL, normalizer_for, nq, number_aware, squad, triviaqa
from ragjax.evals.qa import contains_substring, contains_tokens, exact_match


@pytest.mark.parametrize(
    ("text", "expected"),
    [("The  Cat, a dog!", "cat dog"), ("a.m.", "am"), ("A+", ""), ("The The", ""), ("don't", "dont"), ("Ån", "ån")],
)
def test_squad(text, expected):
    assert squad(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("don't", "don t"),
        ("U.S.", "u s"),
        ("a.m.", "m"),
        ("snow_white", "snow white"),
        ("\u2018x\u2019 \u00b4y`", "x y"),
    ],
)
def test_triviaqa(text, expected):
    assert triviaqa(text) == expected


def test_nq_makes_both_spellings_of_an_accent_equal():
    assert nq("Caf\u00e9") == nq("Cafe\u0301") == "cafe\u0301"
    assert squad("Caf\u00e9") != squad("Cafe\u0301")


NUMBERS = [
    ("1,000", "1000", True, True),
    ("3.14", "314", True, False),
    ("1.0", "10", True, False),
    ("1.0", "1", False, True),
    ("1995", "in 1995.", False, False),
    ("$5 million", "5 million", True, True),
    ("twenty", "20", False, False),
    ("-5", "5", True, False),
    ("0.5", ".50", False, True),
]


@pytest.mark.parametrize(("gold", "prediction", "by_squad", "by_number"), NUMBERS)
def test_E06_equality_of_numbers(gold, prediction, by_squad, by_number):
    assert exact_match(prediction, gold, squad) == by_squad
    assert exact_match(prediction, gold, number_aware) == by_number


@pytest.mark.parametrize(("gold", "prediction"), [("1995", "in 1995."), ("$5 million", "5 million")])
def test_E06_containment_of_numbers(gold, prediction):
    assert contains_substring(prediction, gold, number_aware) == contains_tokens(prediction, gold, number_aware) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,234.50", "1234.5"),
        ("192.168.0.1", "19216801"),
        ("v2.0", "v2"),
        ("1990-1995", "19901995"),
        ("No. 7.", "no 7"),
    ],
)
def test_E06_what_is_read_as_a_number(text, expected):
    assert number_aware(text) == expected


def test_official_normalisers():
    assert set(OFFICIAL.values()) <= set(NORMALIZERS)
    assert [normalizer_for(name) for name in ("nq", "triviaqa", "musique")] == ["nq", "triviaqa", "squad"]
    with pytest.raises(ValueError, match="unknown_set"):
        normalizer_for("unknown_set")


@pytest.mark.parametrize("name", NORMALIZERS)
def test_normalisers_are_idempotent_on_plain_words(name):
    once = NORMALIZERS[name]("The old Gate, of 1,250.0 stones (north)")
    assert NORMALIZERS[name](once) == once
