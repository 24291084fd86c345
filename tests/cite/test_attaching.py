"""Post-hoc citations: one unit a statement, whatever the answer looks like."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragjax.cite.attaching import attach_citations
from ragjax.cite.parsing import parse
from ragjax.compress.base import Unit

UNITS = [Unit(text) for text in ("The gate opened in 1900.", "Dr. Smith closed it.", "The gate opened in 1900.")]


@pytest.mark.parametrize(
    ("answer", "attached"),
    [
        ("The gate opened. Smith closed it!", "The gate opened. [1] Smith closed it! [2]"),
        ("The gate opened.\n\nDr. Smith closed it\n", "The gate opened. [1]\n\nDr. Smith closed it [2]\n"),
        (
            "Two things:\n1. The gate opened.\n2. Smith closed it.",
            "Two things:\n1. The gate opened. [1]\n2. Smith closed it. [2]",
        ),
        ("So. 1. The gate opened. 2. Smith closed it.", "So. 1. The gate opened. [1] 2. Smith closed it. [2]"),
        ("Corn was blue. The gate opened.", "Corn was blue. The gate opened. [1]"),
        ("The gate opened [2][9]. Corn was blue [2].", "The gate opened. [1] Corn was blue."),
        ("", ""),
        (" ...\n", " ...\n"),
    ],
)
def test_each_statement_cites_the_unit_with_the_likest_words(answer, attached):
    assert attach_citations(answer, UNITS) == attached


def test_without_units_nothing_is_cited():
    assert attach_citations("The gate opened.", []) == "The gate opened."


PIECES = [
    "The gate opened",
    "Dr. Smith closed it",
    "born in the U.S.",
    "It rose 3.5 %",
    "1. It opened",
    "- closed it",
    "iPhone",
    "今天",
]
ENDS = [". ", "! ", "?\n", ".\n\n", "\n", ": ", " "]


@given(st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(ENDS)).map("".join), max_size=5).map("".join))
def test_what_is_attached_moves_no_statement_and_gives_none_two_units(answer):
    before = parse(answer, len(UNITS)).statements
    after = parse(attach_citations(answer, UNITS), len(UNITS)).statements
    assert [one.text for one in after] == [one.text for one in before]
    assert all(len(one.cited) <= 1 and not one.invalid for one in after)
