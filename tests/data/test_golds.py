"""The forms of an answer, each with its documented meaning."""

import os

import numpy as np
import pytest

from ragjax.data import DataError, parse_golds
from ragjax.data.golds import is_placeholder


@pytest.mark.parametrize(
    ("value", "golds"),
    [
        ("new", ("new",)),
        (["new"], ("new",)),
        (("new",), ("new",)),
        (np.array(["new", "old"]), ("new", "old")),
        (np.array(["new", "old"], dtype=object), ("new", "old")),
        ({"aliases": ["new", "old"]}, ("new", "old")),
        ({"value": "new", "aliases": []}, ("new",)),
        ([["a", "b"], ["c"]], ("a", "b", "c")),
        ('["a"]', ("a",)),
        ("['a', \"b\"]", ("a", "b")),
        ("[]", ()),
        (1995, ("1995",)),
        (["x", "x", " ", "y"], ("x", "y")),
    ],
)
def test_E02_every_form_of_gold(value, golds):
    assert parse_golds(value) == golds


@pytest.mark.parametrize(
    "value", [3.5, True, {"text": "a"}, {}, {"a", "b"}, [[["a"]]], [{"span": "a"}], object(), b"a"]
)
def test_E02_unknown_shapes_are_refused(value):
    with pytest.raises(DataError, match="answer"):
        parse_golds(value)


def test_E03_value_and_aliases_are_separate_golds():
    assert parse_golds({"value": "Niger", "aliases": ["Niger", "Republic of Niger"]}) == ("Niger", "Republic of Niger")


@pytest.mark.parametrize("value", [None, [], "", [""], ["  "], [None], {"value": None, "aliases": []}])
def test_E08_no_gold(value):
    assert parse_golds(value) == ()


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('touch pwned')",
        "[__import__('os').system('touch pwned')]",
        "1995",
        "None",
        "['a'",
        "[1, 2]",
        "[sic]",
        "{'value': 'a'}",
        "(1, 2)",
    ],
)
def test_E09_text_stays_text(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parse_golds(text) == (text,)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("value", ["<unk>", ["<unk>"], {"value": "<unk>", "aliases": [], "normalized_value": "<unk>"}])
def test_E10_placeholder_of_a_hidden_split_is_refused(value):
    with pytest.raises(DataError, match="validation"):
        parse_golds(value)


def test_E10_primary_answer_first_then_aliases():
    value = {
        "value": "Lyme",
        "aliases": ["A Book of Towns", "Lyme"],
        "type": "WikipediaEntity",
        "normalized_value": "lyme",
    }
    assert parse_golds(value) == ("Lyme", "A Book of Towns")


@pytest.mark.parametrize(
    ("value", "hidden"),
    [
        ("<unk>", True),
        (["<unk>"], True),
        ({"value": "<unk>", "aliases": []}, True),
        ({"value": "", "aliases": None}, True),
        ({"Value": "<unk>", "Aliases": []}, True),
        ({"value": None, "aliases": ["Lyme"]}, False),
        ({"value": "Lyme", "aliases": []}, False),
        ({"aliases": []}, False),
        ([], False),
        (None, False),
    ],
)
def test_E10_what_stands_for_a_hidden_answer(value, hidden):
    assert is_placeholder(value) is hidden
