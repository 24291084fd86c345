"""Words by offset: what may be dropped, what remains, and that nothing is ever cut or fused."""

from itertools import pairwise

import numpy as np
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from ragjax.compress.words import DIGITS, NEWLINES, Words, check_aggregate, split_words, word_values, word_vocabulary

NUMBER = regex.compile(r"\p{N}+(?:[.,]\p{N}+)*")
PIECES = (
    "word", "don't", "Zürich", "a", "e\u0301", "1,234.5", "3.14", "$1,200", "-5%", "2024", "１２", "٣٫٥", "三百", "½",
    " ", " ", " ", "\n", "\r\n", "\t", "\u00a0", "\u3000", ",", ".", "?", '"', "(", ")", "—", "-", "$", "。", "、",
    "中", "文", "の", "カー", "ปี", "ไทย", "한국", "بيت", "👩‍👩‍👧", "🇨🇳", "1️⃣", "\u0301", "\u200b", "\u200d", "\x00",
)  # fmt: skip
TEXTS = st.one_of(st.lists(st.sampled_from(PIECES), max_size=30).map("".join), st.text(max_size=40))


def pieces(text: str, **options) -> list[str]:
    words = split_words(text, **options)
    return [words[i] for i in range(len(words))]


def masks(words: Words) -> st.SearchStrategy[np.ndarray]:
    size = len(words)
    return st.lists(st.booleans(), min_size=size, max_size=size).map(lambda found: np.array(found, bool))


def keep(words: Words, *kept: str) -> str:
    return words.kept_text(np.array([words[i] in kept for i in range(len(words))], bool))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \n\t", []),
        ("hello", ["hello"]),
        ("?", ["?"]),
        ("😀", ["😀"]),
        ("Hello, world!", ["Hello", ",", "world", "!"]),
        ("don't mother-in-law x.org/y", ["don't", "mother-in-law", "x.org/y"]),
        ('He said ("no").', ["He", "said", '("', "no", '").']),
        ("3.14, 1,234.5; (1,200) .5", ["3.14", ",", "1,234.5", ";", "(", "1,200", ")", ".5"]),
        ("$1,200 -5% -$3 5€ 20°C ±2", ["$1,200", "-5%", "-$3", "5€", "20°C", "±2"]),
        ("12\u202f345\u00a0678 but 12\u00a034", ["12\u202f345\u00a0678", "but", "12", "34"]),
        ("你好,世界。", ["你", "好", ",", "世", "界", "。"]),
        ("第三百二十五章", ["第", "三百二十五", "章"]),
        ("卖1.5万元", ["卖", "1.5万", "元"]),
        ("在2024年3月5日", ["在", "2024", "年3", "月5", "日"]),
        ("iPhone和Mac。好", ["iPhone", "和Mac", "。", "好"]),
        ("コーヒー", ["コ", "ー", "ヒ", "ー"]),
        ("ปี 2567", ["ปี", "2567"]),
        ("مرحبا، ١٢٬٣٤٥٫٦؟", ["مرحبا", "،", "١٢٬٣٤٥٫٦", "؟"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("a👩‍👩‍👧 🇨🇳", ["a", "👩‍👩‍👧", "🇨🇳"]),
    ],
)
def test_words_of_many_scripts(text, expected):
    assert pieces(text) == expected


def test_what_remains_is_copied_with_one_space_where_something_was_dropped():
    words = split_words("The  quick, brown\nfox (very) jumps.")
    assert keep(words, "The", "quick", ",") == "The  quick,"
    assert keep(words, "The", "brown", "fox") == "The brown\nfox"
    assert keep(words, "quick", "fox", "jumps", ".") == "quick fox jumps."
    assert keep(words, "brown", "jumps") == "brown\njumps"
    assert keep(words, "(", ")") == "()"
    assert keep(words) == ""
    assert keep(split_words("你好,世界"), "你", "世") == "你世"
    assert keep(split_words("a b\r\nc d"), "b", "d") == "b\r\nd"


def test_protected_white_space_counts_as_words():
    words = split_words("a b \n c\n\nd e", [NEWLINES])
    assert [words[i] for i in np.flatnonzero(words.protected)] == ["\n", "\n\n"]
    assert words.kept_text(words.protected) == "\n\n\n"
    assert keep(words, "a", "\n", "\n\n", "e") == "a\n\n\ne"
    assert keep(words, "b", "\n", "c", "\n\n", "d") == "b \n c\n\nd"


def test_patterns_and_vocabulary_protect_whole_words():
    words = split_words("In 1,234.5 days, Ada Lovelace's GmbH & Co", [DIGITS, "Ada Love", r"b\w"], {"days", "co"})
    assert [words[i] for i in np.flatnonzero(words.protected)] == [
        "1,234.5",
        "days",
        "Ada",
        " ",
        "Lovelace's",
        "GmbH",
        "Co",
    ]
    assert word_vocabulary("Who is Ada, 36?") == {"who", "is", "ada", "36"}


@given(TEXTS)
def test_words_hold_every_character_but_white_space_once(text):
    words = split_words(text)
    spans = list(zip(words.starts.tolist(), words.ends.tolist(), strict=True))
    assert all(a < b for a, b in spans)
    assert all(b <= a for (_, b), (a, _) in pairwise(spans))
    rest = "".join(text[b:a] for b, a in zip([0, *words.ends], [*words.starts, len(text)], strict=True))
    assert not rest.strip()
    assert words.kept_text(np.ones(len(words), bool)) == text[spans[0][0] : spans[-1][1]] if spans else not text.strip()


@given(TEXTS)
def test_no_word_ends_inside_a_grapheme_or_a_number(text):
    bounds = {0, *(m.end() for m in regex.finditer(r"\X", text))}
    words = split_words(text)
    assert bounds.issuperset(words.starts.tolist())
    assert bounds.issuperset(words.ends.tolist())
    for match in NUMBER.finditer(text):
        assert not set(words.starts.tolist()) & set(range(match.start() + 1, match.end())), match
        assert not set(words.ends.tolist()) & set(range(match.start() + 1, match.end())), match


@given(TEXTS, st.data(), st.booleans())
def test_what_remains_is_a_subsequence_of_slices_in_order(text, data, lines):
    words = split_words(text, [NEWLINES] if lines else [])
    kept = data.draw(masks(words)) | words.protected
    spans = words.kept_spans(kept)
    assert (spans[:, 0] < spans[:, 1]).all()
    assert (spans[1:, 0] > spans[:-1, 1]).all()
    remains = "".join(text[a:b] for a, b in spans)
    assert remains == words.kept_text(kept)
    inside = np.zeros(len(text) + 1, bool)
    for a, b in spans:
        inside[a:b] = True
    for i in range(len(words)):
        assert inside[words.starts[i] : words.ends[i]].all() == kept[i], "kept whole, or not at all"
    if lines and len(words):
        assert remains.count("\n") == text.count("\n")


SPACED = regex.compile(r"[\p{Latin}\p{Arabic}\p{N}]+")


@given(
    st.lists(
        st.sampled_from(["ab", "Ω", "12", "3.5", "بيت", " ", "\n", ",", "中", "文", "三", "。", "-", "$"]), max_size=25
    ),
    st.data(),
)
def test_dropping_words_never_fuses_others(parts, data):
    text = "".join(parts)
    words = split_words(text)
    remains = words.kept_text(data.draw(masks(words)))
    before = SPACED.findall(text)
    assert set(SPACED.findall(remains)) <= set(before)


def test_the_values_of_sub_words_go_to_the_words_they_share_characters_with():
    words = split_words("unlikely, 你好 x")
    offsets = np.array([[0, 2], [2, 8], [8, 9], [9, 11], [11, 12], [12, 12]])
    values = np.array([0.5, 1.0, 0.25, 0.75, 0.1, 9.0])
    offsets[3] = (9, 12)  # one token of both characters, and the space before them
    assert word_values(words, offsets, values).tolist() == [0.75, 0.25, 0.75, pytest.approx(0.425), -np.inf]
    assert word_values(words, offsets, values, "max")[[0, 3]].tolist() == [1.0, 0.75]
    assert word_values(words, offsets, values, "min")[[0, 3]].tolist() == [0.5, 0.1]
    assert word_values(words, offsets, values, "sum")[[0, 3]].tolist() == [1.5, pytest.approx(0.85)]
    values[0] = np.nan
    assert np.isnan(word_values(words, offsets, values)).tolist() == [True, False, False, False, False]
    with pytest.raises(ValueError, match="aggregate is one of"):
        check_aggregate("median")


@given(TEXTS, st.integers(0, 2**32 - 1))
def test_word_values_are_those_of_a_plain_loop(text, seed):
    words, rng = split_words(text), np.random.default_rng(seed)
    starts = np.sort(rng.integers(0, len(text) + 1, 12))
    offsets = np.stack([starts, np.minimum(starts + rng.integers(0, 4, 12), len(text))], axis=1)
    values = rng.random(12)
    found = word_values(words, offsets, values)
    for i in range(len(words)):
        own = [v for (a, b), v in zip(offsets, values, strict=True) if max(a, words.starts[i]) < min(b, words.ends[i])]
        assert found[i] == pytest.approx(np.mean(own)) if own else found[i] == -np.inf
