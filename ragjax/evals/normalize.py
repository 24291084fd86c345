"""Text normalisers, one per official evaluation script: what counts as the same answer.

All are pure functions from a text to a text whose words are separated by single blanks. They differ, so every score
records the one it used:

================  ==========================================================================================
`squad`           lower; delete ASCII punctuation; drop the articles; collapse blanks. HotpotQA, 2Wiki, MuSiQue,
                  QASPER, ASQA and most papers. Punctuation inside numbers goes too: 3.14 equals 314.
`nq`              Unicode NFD, then `squad` (NQ-open)
`triviaqa`        `_` and punctuation, typographic quotes included, become blanks: "U.S." is "u s"
`number_aware`    as `squad`, but numbers are read first: 1,000 is 1000, 1.0 is 1, 3.14 is not 314, -5 is not 5.
                  Words for numbers stay words: "twenty" is not 20.
================  ==========================================================================================
"""

import re
import string
import unicodedata
from collections.abc import Callable

Normalizer = Callable[[str], str]

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_DELETE_PUNCTUATION = str.maketrans("", "", string.punctuation)
# TriviaQA's script adds the two typographic quotes, the acute accent and the grave accent.
_BLANK_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation + "\u2018\u2019\u00b4`", " "))
# A number stands alone: "1.2.3" and "192.168.0.1" are no numbers. A sign counts only where no word precedes it.
_NUMBER_OR_PUNCTUATION = re.compile(
    r"(?P<sign>(?<![\w.,])[-\u2212])?(?<!\d)(?<!\d[.,])"
    r"(?P<whole>\d{1,3}(?:,\d{3})+|\d+|(?<!\w)(?=\.\d))(?P<part>\.\d+)?(?![.,]?\d)"
    rf"|[{re.escape(string.punctuation)}]"
)


def _drop_articles(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", text).split())


def squad(text: str) -> str:
    """SQuAD v1.1: lower, no ASCII punctuation, no articles, single blanks. "A+" becomes ""."""
    return _drop_articles(text.lower().translate(_DELETE_PUNCTUATION))


def nq(text: str) -> str:
    """NQ-open: combining accents become code points of their own (NFD), then as SQuAD."""
    return squad(unicodedata.normalize("NFD", text))


def triviaqa(text: str) -> str:
    """TriviaQA: punctuation becomes a blank, so "don't" is "don t"."""
    return _drop_articles(text.lower().translate(_BLANK_PUNCTUATION))


def number_aware(text: str) -> str:
    """As SQuAD, but a number keeps its value: thousands commas and trailing zeros go, the decimal point stays."""
    return _drop_articles(_NUMBER_OR_PUNCTUATION.sub(_canonical_number, text.lower()))


def _canonical_number(match: re.Match[str]) -> str:
    """The number in one spelling; nothing for a punctuation mark."""
    if match["whole"] is None:
        return ""
    whole = match["whole"].replace(",", "") or "0"
    part = (match["part"] or "").rstrip("0").removesuffix(".")
    return ("-" if match["sign"] else "") + whole + part


NORMALIZERS: dict[str, Normalizer] = {"squad": squad, "nq": nq, "triviaqa": triviaqa, "number_aware": number_aware}

# What `normalizer="official"` means for each dataset.
OFFICIAL = {
    "nq": "nq",
    "nq_open": "nq",
    "natural_questions": "nq",
    "triviaqa": "triviaqa",
    "trivia_qa": "triviaqa",
    "hotpotqa": "squad",
    "hotpot_qa": "squad",
    "2wikimultihopqa": "squad",
    "musique": "squad",
    "qasper": "squad",
    "asqa": "squad",
}


def normalizer_for(dataset: str) -> str:
    """The name of the normaliser in the dataset's official script. ValueError for a dataset that has none here."""
    if dataset not in OFFICIAL:
        raise ValueError(f"no official normaliser is known for the dataset {dataset!r}; known: {', '.join(OFFICIAL)}")
    return OFFICIAL[dataset]
