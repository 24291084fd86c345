"""Words of a text by offset, and the text that remains when some are dropped.

A word is the smallest piece that can be dropped without harm to its neighbours: no two words ever fuse, and no
character (grapheme) and no number is ever cut.

* Between white space, a word runs from its first letter or digit to its last, whatever lies between ("don't",
  "mother-in-law", "1,234.5", "x.org/y"); the marks before it and those after it are words of their own. The sign and
  the currency before a number belong to it, as do per cent, degrees and currency after it, and thin spaces within.
* In scripts that do not space their words (Chinese, Japanese, Thai, Khmer, ...) each grapheme is a word, a numeral of
  several characters one. Where such a run holds several numbers or words of other scripts, each but the first takes
  the grapheme before it along: 2024 and 3 never become 20243 because what lies between is dropped.

What is kept is copied, white space included. Between neighbours it is the source's own; where something was dropped,
it is the first white-space character of what was dropped (in plain text one space), and nothing where there was none.
So the kept slices join to the kept text as they are, and the text is a subsequence of its source.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import regex

from ragjax.typing import Bool, Float, Int

_UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Yi}\p{Tibetan}\p{Javanese}\p{Balinese}\p{LB=SA}ーｰ]"
_NUMERAL = r"(?=[\p{Han}&&\p{nt=Nu}])\X"
# A grapheme as a word begins with. Runs of ASCII go in one step, but for a last character that may carry marks.
_SPACED = rf"(?:[A-Za-z0-9]+(?![^\x00-\x7F])|(?=\p{{GCB=Prepend}}*[[\p{{L}}\p{{N}}]--{_UNSPACED}])\X)"
# White space as Python knows it, a whole grapheme of it: with a mark on it, it is a character like others.
_WHITE = r"(?=[\s\x1c-\x1f])\X(?<=[\s\x1c-\x1f])"
_MARK = rf"(?:(?!{_WHITE})(?!{_SPACED})(?!{_UNSPACED})\X)"
_SIGNS = rf"[\p{{Sc}}+\-\u2212\u2013±.]++(?=\p{{N}})(?={_SPACED})"
_THIN_SPACE = r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))"
_CORE = rf"(?:{_SIGNS})?{_SPACED}++(?:(?:{_THIN_SPACE}|{_MARK}*+){_SPACED}++)*+"
_AFTER = r"(?:(?<=\p{N})(?:(?=[%‰‱٪\uff05°℃℉\u2032″\p{Sc}])\X)++)?"
# Nothing new, but most words of most texts in a fraction of the time; so is the space behind a word.
_PLAIN = r"[A-Za-z]++(?=[,.;:?!)]{0,3} [!-~])"
_PLAIN_MARK = r"[,.;:?!)]++(?= [!-~])"
_WORD = regex.compile(
    rf"(?:({_PLAIN}|(?:{_CORE}{_AFTER}|{_NUMERAL})++)|({_PLAIN_MARK}|(?:(?!{_SIGNS}){_MARK})++)|((?={_UNSPACED})\X))"
    r"(?: (?=[!-~]))?+",
    regex.VERSION1,
)
_LETTER = regex.compile(r"[\p{L}\p{N}]")

DIGITS = r"\p{N}+"
"""A pattern that protects every word with a digit in it."""
NEWLINES = r"\r?\n"
"""A pattern that protects line breaks."""


@dataclass(frozen=True, eq=False)
class Words:
    """The W words of a text, in order and apart: word i is text[starts[i]:ends[i]].

    `protected` marks those that are to survive, `blank` the white space that counts as words because it is protected.
    `unspaced` says whether some are of a script that does not space its words.
    """

    text: str
    starts: Int[np.ndarray, " W"]
    ends: Int[np.ndarray, " W"]
    protected: Bool[np.ndarray, " W"]
    blank: Bool[np.ndarray, " W"]
    unspaced: bool

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> str:
        return self.text[self.starts[index] : self.ends[index]]

    @cached_property
    def _next_gap(self) -> Int[np.ndarray, " W"]:
        """For each word the first one, from it on, that white space follows; W where there is none."""
        found = np.full(len(self), len(self))
        spaced = np.flatnonzero(self.starts[1:] > self.ends[:-1])
        found[spaced] = spaced
        return np.minimum.accumulate(found[::-1])[::-1]

    def kept_spans(self, keep: Bool[np.ndarray, " W"]) -> Int[np.ndarray, "spans 2"]:
        """The slices of the text, in order and apart, that join to what remains of it."""
        kept = np.flatnonzero(keep)
        if not len(kept):
            return np.zeros((0, 2), int)
        breaks = np.flatnonzero(np.diff(kept) > 1)
        first, last = kept[np.append(0, breaks + 1)], kept[np.append(breaks, -1)]
        spans = np.concatenate([_pairs(self.starts[first], self.ends[last]), self._spaces(last[:-1], first[1:])])
        spans = spans[np.argsort(spans[:, 0])]
        apart = np.flatnonzero(spans[1:, 0] > spans[:-1, 1])
        return _pairs(spans[np.append(0, apart + 1), 0], spans[np.append(apart, -1), 1])

    def _spaces(self, left: Int[np.ndarray, " n"], right: Int[np.ndarray, " n"]) -> Int[np.ndarray, "spaces 2"]:
        """The first white space between words `left` and `right`, but for those beside protected white space."""
        gap = self._next_gap[left]
        begin = self.ends[gap[(gap < right) & ~self.blank[left] & ~self.blank[right]]]
        if "\r\n" not in self.text:
            return _pairs(begin, begin + 1)
        width = [2 if self.text.startswith("\r\n", at) else 1 for at in begin.tolist()]
        return _pairs(begin, begin + np.array(width, int))

    def kept_text(self, keep: Bool[np.ndarray, " W"]) -> str:
        """What remains of the text."""
        return "".join([self.text[a:b] for a, b in self.kept_spans(keep).tolist()])


def split_words(
    text: str, patterns: Iterable[str | regex.Pattern] = (), vocabulary: Collection[str] = frozenset()
) -> Words:
    """The words of a text.

    Args:
      text: any text.
      patterns: regular expressions of the `regex` module. Every word that a match touches is protected whole; so is
        the white space inside a match, which then counts as words (a text of white space alone has none).
      vocabulary: case-folded words that are protected wherever they stand.
    """
    found = [(*m.span(m.lastindex), m.lastindex) for m in _WORD.finditer(text)]
    starts, ends, group = np.fromiter(chain.from_iterable(found), int, 3 * len(found)).reshape(-1, 3).T
    starts, ends = _glue(starts, ends, group == 1)
    protected = blank = np.zeros(len(starts), bool)
    matches = [m.span() for pattern in patterns for m in regex.finditer(pattern, text)]
    if matches and len(starts):
        covered = _mask(np.array(matches), len(text))
        white = _runs(covered & ~_mask(_pairs(starts, ends), len(text)))
        order = np.argsort(np.append(starts, white[:, 0]))
        blank = (np.arange(len(order)) >= len(starts))[order]
        starts, ends = np.append(starts, white[:, 0])[order], np.append(ends, white[:, 1])[order]
        total = np.append(0, np.cumsum(covered))
        protected = total[ends] > total[starts]
    if vocabulary:
        listed = [text[a:b].casefold() in vocabulary for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
        protected = protected | np.array(listed, bool)
    return Words(text, starts, ends, protected, blank, bool((group == 3).any()))


def word_vocabulary(text: str) -> frozenset[str]:
    """The words of a text, case-folded, but for marks."""
    words = split_words(text)
    return frozenset(words[i].casefold() for i in range(len(words)) if _LETTER.search(words[i]))


def _glue(
    starts: Int[np.ndarray, " W"], ends: Int[np.ndarray, " W"], strong: Bool[np.ndarray, " W"]
) -> tuple[np.ndarray, np.ndarray]:
    """Merge what stands before each strong word (number, or of a spaced script) but the first of an unspaced run."""
    if not len(starts):
        return starts, ends
    begins = np.append(True, starts[1:] > ends[:-1])
    before = np.cumsum(strong) - strong
    later = np.flatnonzero(strong & (before > before[begins][np.cumsum(begins) - 1]))
    starts = starts.copy()
    starts[later] = starts[later - 1]
    return np.delete(starts, later - 1), np.delete(ends, later - 1)


def _pairs(starts: np.ndarray, ends: np.ndarray) -> Int[np.ndarray, "n 2"]:
    return np.stack([starts, ends], axis=1)


def _mask(spans: Int[np.ndarray, "n 2"], length: int) -> Bool[np.ndarray, " length"]:
    """Which characters of a text lie in some span."""
    steps = np.bincount(spans[:, 0], minlength=length + 1) - np.bincount(spans[:, 1], minlength=length + 1)
    return np.cumsum(steps)[:length] > 0


def _runs(mask: Bool[np.ndarray, " length"]) -> Int[np.ndarray, "n 2"]:
    """The maximal spans of a mask."""
    padded = np.concatenate([[False], mask, [False]])
    return np.flatnonzero(padded[1:] != padded[:-1]).reshape(-1, 2)


AGGREGATES = ("mean", "sum", "max", "min")


def check_aggregate(aggregate: str) -> None:
    """Refuse a way to put sub-words together that does not exist."""
    if aggregate not in AGGREGATES:
        raise ValueError(f"aggregate is one of {AGGREGATES}, got {aggregate!r}")


def word_values(
    words: Words, offsets: Int[np.ndarray, "T 2"], values: Float[np.ndarray, " T"], aggregate: str = "mean"
) -> Float[np.ndarray, " W"]:
    """One number a word from those of the sub-words that share a character with it; -inf for a word without any.

    Args:
      words: of the text that was cut into sub-words.
      offsets: character offsets of each sub-word; several may have the same (bytes of one character).
      values: the number of each sub-word.
      aggregate: one of `AGGREGATES`.
    """
    filled = offsets[:, 1] > offsets[:, 0]
    offsets, values = offsets[filled], values[filled].astype(np.float64)
    first = np.searchsorted(words.ends, offsets[:, 0], side="right")
    count = np.maximum(np.searchsorted(words.starts, offsets[:, 1], side="left") - first, 0)
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    owner = np.repeat(first, count) + within
    order = np.argsort(owner, kind="stable")
    owner, shared = owner[order], np.repeat(values, count)[order]
    begins = np.flatnonzero(np.diff(owner, prepend=-1))
    found = np.full(len(words), -np.inf)
    if len(begins):
        ufunc = {"max": np.maximum, "min": np.minimum}.get(aggregate, np.add)
        sizes = np.diff(begins, append=len(owner)) if aggregate == "mean" else 1
        found[owner[begins]] = ufunc.reduceat(shared, begins) / sizes
    return found
