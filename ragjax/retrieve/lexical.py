"""Texts as words, in any script: what BM25 counts and what makes two sentences near-duplicates without a model."""

import unicodedata
from collections.abc import Sequence

import numpy as np

_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")


def terms(text: str) -> list[str]:
    """The words of a text, compatibility-normalised and lower-cased: runs of letters, marks and digits.

    Of scripts that put no space between words (Chinese, kana, Thai and their neighbours) each character is a word.
    """
    return unicodedata.normalize("NFKC", text).lower().translate(_Separated()).split()


class _Separated(dict):
    """What `str.translate` puts in each character's place, found out at its first use."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if unicodedata.category(character)[0] not in "LMN":
            self[code] = " "
        elif unicodedata.name(character, "").startswith(_UNSPACED):
            self[code] = f" {character} "
        else:
            self[code] = character
        return self[code]


def lexical_similarities(texts: Sequence[str]) -> np.ndarray:
    """Cosines [n, n] of the texts' word counts. A text without a word is like its equals alone."""
    columns: dict[str, int] = {}
    rows = [[columns.setdefault(word, len(columns)) for word in terms(text) or [text]] for text in texts]
    counts = np.zeros((len(texts), len(columns)), np.float32)
    for row, places in zip(counts, rows, strict=True):
        np.add.at(row, places, 1.0)
    counts /= np.linalg.norm(counts, axis=1, keepdims=True)
    return counts @ counts.T
