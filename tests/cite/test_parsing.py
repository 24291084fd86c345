"""Markers: what is one, whose it is, and what is left of the sentence; and ALCE's reading beside it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragjax.cite.parsing import parse

TEXTS = st.text("aAB .!?,;[]()123 9-–^\n\"'。x_【】`", max_size=60)


def read(answer: str, units: int = 3, mode: str = "strict") -> list[tuple[str, tuple[int, ...]]]:
    """(claim, numbers as in markers) of each statement."""
    return [(s.text, tuple(unit + 1 for unit in s.cited)) for s in parse(answer, units, mode=mode).statements]


def only(answer: str, units: int = 3) -> tuple[str, tuple[int, ...], tuple[str, ...]]:
    (statement,) = parse(answer, units).statements
    return statement.text, tuple(unit + 1 for unit in statement.cited), statement.invalid


@pytest.mark.parametrize(
    ("answer", "last"),
    [
        ("A holds. [1] B holds. [2]", "B holds."),
        ("A holds. [1]. B holds [2].", "B holds."),
        ("A holds [1]. B holds [2].", "B holds."),
        ("A holds [1]. B holds [2]", "B holds"),
        ("A holds. [1] B holds [2]", "B holds"),
        ("A holds. [1]. B holds. [2].", "B holds."),
        ("A holds.[1] B holds.[2]", "B holds."),
        ("A holds [1].B holds [2].", "B holds."),
        ("A holds.[1]B holds.[2]", "B holds."),
        ("A holds.\n[1]\nB holds.\n[2]", "B holds."),
        ("A holds.  [1]\n\nB holds. [2]\n", "B holds."),
    ],
)
def test_F01_a_marker_stays_with_the_sentence_that_it_follows(answer, last):
    assert read(answer) == [("A holds.", (1,)), (last, (2,))]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("A holds. [1] B holds. [2]", [("A holds.", ()), ("B holds.", (1,)), ("", (2,))]),
        ("A holds. [1]. B holds [2].", [("A holds.", ()), (".", (1,)), ("B holds.", (2,))]),
        ("A holds [1]. B holds [2].", [("A holds.", (1,)), ("B holds.", (2,))]),
        ("A holds.[1] B holds.[2]", [("A holds. B holds.", (1, 2))]),
    ],
)
def test_F01_alce_moves_it_to_the_next_sentence(answer, expected):
    assert read(answer, mode="alce") == expected
    assert parse(answer, 3, mode="alce").mode == "alce"
    assert parse(answer, 3).mode == "strict"


@pytest.mark.parametrize(
    ("marker", "numbers", "invalid"),
    [
        ("[1][2]", (1, 2), ()),
        ("[1] [2]", (1, 2), ()),
        ("[1], [2] and [3]", (1, 2, 3), ()),
        ("[1, 2]", (1, 2), ()),
        ("[1,2]", (1, 2), ()),
        ("[2, 1]", (2, 1), ()),
        ("[1-3]", (1, 2, 3), ()),
        ("[1–3]", (1, 2, 3), ()),
        ("[1 – 3]", (1, 2, 3), ()),
        ("[1 to 3]", (1, 2, 3), ()),
        ("[1;3]", (1, 3), ()),
        ("[1 and 3]", (1, 3), ()),
        ("[1, 2, and 3]", (1, 2, 3), ()),
        ("[ 2 ]", (2,), ()),
        ("【1】", (1,), ()),
        ("［１］", (1,), ()),
        ("[[1]]", (1,), ()),
        ("([1], [2])", (1, 2), ()),
        ("[^1]", (1,), ()),
        ("[Doc 1]", (1,), ()),
        ("[Document 1, Document 3]", (1, 3), ()),
        ("[passage 2; 3]", (2, 3), ()),
        ("[1]-[3]", (1, 2, 3), ()),
        ("[3-1]", (), ("[3-1]",)),
        ("[1-300]", (), ("[1-300]",)),
        ("[2-2]", (2,), ()),
        ("[0]", (), ("[0]",)),
        ("[0-2]", (), ("[0-2]",)),
        ("[4]", (), ("[4]",)),
        ("[1, 9]", (1,), ("[9]",)),
        ("[9][9]", (), ("[9]",)),
        (f"[{'9' * 5000}]", (), (f"[{'9' * 5000}]",)),
    ],
)
def test_F02_forms_of_markers_leave_no_residue(marker, numbers, invalid):
    assert only(f"A holds {marker}.") == ("A holds.", numbers, invalid)
    assert only(f"A holds. {marker}") == ("A holds.", numbers, invalid)


def test_F02_a_huge_range_is_not_expanded_however_many_units_there_are():
    assert only("A [1-300].", units=300) == ("A.", (), ("[1-300]",))
    assert only("A [280-300].", units=300) == ("A.", (), ("[280-300]",))
    assert only("A [281-300].", units=300) == ("A.", tuple(range(281, 301)), ())


def test_F02_parentheses_are_text():
    assert only("A holds (1).") == ("A holds (1).", (), ())


@pytest.mark.parametrize(
    ("answer", "claim", "numbers"),
    [
        ("A [2019 survey] says so [2].", "A [2019 survey] says so.", (2,)),
        ("He [sic] left [1].", "He [sic] left.", (1,)),
        ("x[3] = y[1] [2].", "x[3] = y[1].", (2,)),
        ("x[3][1] = a_i[2].", "x[3][1] = a_i[2].", ()),
        ("See https://a.org/x[1]?q=[2] now.", "See https://a.org/x[1]?q=[2] now.", ()),
        ("See [text](u) now.", "See [text](u) now.", ()),
        ("See [1](http://a.org/b_(c)) now.", "See [1](http://a.org/b_(c)) now.", ()),
        ("See [[1]](http://a.org) now.", "See [[1]](http://a.org) now.", ()),
        ("Set `a[1]` first [2].", "Set `a[1]` first.", (2,)),
        ("It is word[1], John's[2] and vitamin C[3].", "It is word, John's and vitamin C.", (1, 2, 3)),
        ("The set [a, b] and [1", "The set [a, b] and [1", ()),
    ],
)
def test_F05_other_brackets_stay_as_they_are(answer, claim, numbers):
    assert only(answer) == (claim, numbers, ())


def test_F05_alce_reads_any_bracket_with_a_number_and_deletes_the_others():
    (statement,) = parse("He [sic] read the [2019 survey] [2].", 3, mode="alce").statements
    assert (statement.text, statement.cited, statement.invalid) == ("He [sic read the survey.", (), ("[2019]",))


def test_F06_a_unit_counts_once_a_sentence():
    assert read("A [1][1]. A B [1][2][1]. B [2].") == [("A.", (1,)), ("A B.", (1, 2)), ("B.", (2,))]
    assert read("A [1][1]. A B [1][2][1].", mode="alce") == [("A.", (1, 1)), ("A B.", (1, 2, 1))]


def test_F09_abbreviations_decimals_and_initials_end_no_sentence():
    answer = "The U.S. signed in 1990 [1]. Dr. J. Smith et al. (e.g. in 3.5 cases) agreed [2]."
    assert read(answer) == [
        ("The U.S. signed in 1990.", (1,)),
        ("Dr. J. Smith et al. (e.g. in 3.5 cases) agreed.", (2,)),
    ]
    assert read("As Smith et al. [1] and Lee et al. [2] say, it rose 3.5 [3].") == [
        ("As Smith et al. and Lee et al. say, it rose 3.5.", (1, 2, 3))
    ]


def test_F09_a_marker_behind_an_abbreviation_ends_a_sentence_before_a_capital():
    assert read("He was born in the U.S. [1] He left [2].") == [("He was born in the U.S.", (1,)), ("He left.", (2,))]


def test_F09_stops_of_other_scripts_and_stops_without_a_blank():
    assert read("今天天气很好[1]。我们去公园[2]！") == [("今天天气很好。", (1,)), ("我们去公园！", (2,))]
    assert read("今天天气很好。[1]我们去公园！【2】") == [("今天天气很好。", (1,)), ("我们去公园！", (2,))]
    assert read("One thing [1].Two thing [2].") == [("One thing.", (1,)), ("Two thing.", (2,))]


def test_quotes_lists_and_lines():
    assert read('"It is so." [1] He left. [2]') == [('"It is so."', (1,)), ("He left.", (2,))]
    assert read("1. First [1].\n\n2. Second [2].") == [("1. First.", (1,)), ("2. Second.", (2,))]
    assert read("- First [1]\n- Second [2]") == [("- First", (1,)), ("- Second", (2,))]
    assert read("First [1]\nSecond [2]") == [("First", (1,)), ("Second", (2,))]
    assert read("42 [1]. That is it [2].") == [("42.", (1,)), ("That is it.", (2,))]


def test_a_line_of_a_list_begins_a_sentence_and_keeps_its_number():
    listed = [("Two things:", ()), ("1. First.", (1,)), ("2. Second.", (2,))]
    assert read("Two things:\n1. First [1].\n2. Second [2].") == listed
    assert read("Two things:\n1. First. [1]\n2. Second. [2]") == listed
    assert read("Two things [3]:\n- First [1]\n- Second [2]") == [
        ("Two things:", (3,)),
        ("- First", (1,)),
        ("- Second", (2,)),
    ]
    assert read("Two. 1. First [1]. 2. Second [2].") == [("Two.", ()), *listed[1:]]


def test_markers_in_front_belong_to_what_follows():
    assert read("[1] A holds. [2] B holds.") == [("A holds.", (1,)), ("B holds.", (2,))]
    assert read("A holds.\n[1] B holds.\n[2] C holds.") == [("A holds.", ()), ("B holds.", (1,)), ("C holds.", (2,))]
    assert read("[1] says so. B holds. [2]") == [("says so.", (1,)), ("B holds.", (2,))]


@pytest.mark.parametrize("answer", ["", " \n", "[1]", "[1].", "...", "---\n[2]"])
def test_nothing_said_is_no_statement(answer):
    assert parse(answer, 3).statements == ()
    assert not parse(answer, 3).cites


def test_places_are_those_of_the_sentence_as_written():
    answer = "  [1] A holds.  B holds [2] . [3]. C."
    found = [answer[s.start : s.end] for s in parse(answer, 3).statements]
    assert found == ["[1] A holds.", "B holds [2] . [3].", "C."]


def test_alce_reads_the_first_line_three_citations_and_zero_as_the_last():
    answer = "  A [1][2][3][1]. B [0]. C [1, 2]. D [1][4]. E [ 2 ].\nF [1]."
    found = parse(answer, 3, mode="alce").statements
    assert [(s.text, s.cited, s.invalid) for s in found] == [
        ("A.", (0, 1, 2), ()),
        ("B.", (2,), ()),
        ("C, 2.", (0,), ()),
        ("D.", (), ("[4]",)),
        ("E [ 2 .", (), ()),
    ]
    assert [answer[s.start : s.end] for s in found][:2] == ["A [1][2][3][1].", "B [0]."]
    assert parse("A [0].", 0, mode="alce").invalid == 1


@pytest.mark.parametrize(("settings", "word"), [({"mode": "ALCE"}, "strict, alce"), ({"units": -1}, "-1")])
def test_settings_out_of_range_are_refused(settings, word):
    with pytest.raises(ValueError, match=word):
        parse("A.", **{"units": 1, **settings})


@given(TEXTS, st.integers(0, 4), st.sampled_from(["strict", "alce"]))
def test_any_text_is_read(answer, units, mode):
    statements = parse(answer, units, mode=mode).statements
    end = 0
    for one in statements:
        assert end <= one.start < one.end <= len(answer)
        end = one.end
        assert all(0 <= unit < units for unit in one.cited)
        # Nothing is made up, and nothing but markers and blanks is lost.
        characters = iter(answer[one.start : one.end] + "\n\n")
        assert all(c in characters for c in one.text if not c.isspace())
        if mode == "strict":
            assert len(set(one.cited)) == len(one.cited)
            assert any(map(str.isalnum, one.text))
            assert not re.search(r"(?<![\w`\[\]])\[\d\](?![\](])", one.text) or "`" in answer


@given(
    st.permutations(["[1]", "[2]", "[1, 3]", "[7]"]), st.sampled_from(["A holds {}.", "A holds. {}", "A holds. {} B."])
)
def test_the_order_of_markers_names_the_same_units(markers, form):
    first = parse(form.format("[1][2][3][7]"), 3).statements
    found = parse(form.format("".join(markers)), 3).statements
    assert [(s.text, set(s.cited), set(s.invalid)) for s in found] == [
        (s.text, set(s.cited), set(s.invalid)) for s in first
    ]
