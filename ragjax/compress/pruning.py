"""From ranked words to the pruned text that fits a budget: what the families that drop words share.

1. `open_source` cuts an example's documents into words and counts their tokens, once.
2. `settle` gives the results that need no model: nothing there, or all of it fits.
3. A family ranks the words of all documents in one order.
4. `prune` keeps the longest prefix of that order whose text fits, so the next word would exceed the budget. Protected
   words come first. Words are put back where they stood; those of one document are one unit.

Only a word longer than `LONGEST_WORD` that comes first and does not fit is cut, at a grapheme and outside numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import regex

from ragjax.compress.base import Budget, Compressed, Unit
from ragjax.compress.cut import fitting_prefix
from ragjax.compress.prompts import number_documents
from ragjax.compress.words import DIGITS, NEWLINES, Words, split_words, word_vocabulary
from ragjax.data.records import Document, Example
from ragjax.decode.prompt import count_tokens, encode_with_offsets
from ragjax.typing import Bool, Int

KEEP = {"digits": DIGITS, "newlines": NEWLINES}
"""What can be protected by name, beside "question"; each is a pattern."""

LONGEST_WORD = 64
"""Characters of a word up to which it is kept or dropped whole, whatever the budget."""

ESTIMATES = 6
"""How often the search for what fits trusts the words' token counts before it halves."""

SLACK = 2
"""Tokens over the budget up to which the search looks further, in scripts that do not space their words: there a next
word may complete a token and save some."""

_NUMBER = regex.compile(DIGITS)
_GRAPHEME = regex.compile(r"\X")


@dataclass(frozen=True)
class Protection:
    """What survives byte for byte: `names` of "question", "digits", "newlines", and `patterns` of the user's own.

    "question" protects the question's words wherever they stand in the documents, in any case; "digits" every word
    with a digit in it. Words that a pattern (of the `regex` module) touches are kept whole.
    """

    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        known = ("question", *KEEP)
        if unknown := [name for name in self.names if name not in known]:
            raise ValueError(f"keep names some of {known}, got {unknown[0]!r}; patterns go to keep_patterns")
        for pattern in self.patterns:
            try:
                regex.compile(pattern)
            except regex.error as error:
                raise ValueError(f"keep_patterns: {pattern!r} is no regular expression: {error}") from error

    def split(self, example: Example) -> tuple[Words, ...]:
        """The words of each document of an example."""
        patterns = [KEEP[name] for name in self.names if name in KEEP] + list(self.patterns)
        vocabulary = word_vocabulary(example.question) if "question" in self.names else frozenset()
        return tuple(split_words(document.text, patterns, vocabulary) for document in example.documents)


@dataclass(frozen=True, eq=False)
class Source:
    """An example in words. What is [W] runs over the words of all its documents, in their order.

    `costs` [W] are the generator's tokens that end in each word, in the documents joined by newlines; `tokens` those
    of all, `requested` those allowed (None without a budget).
    """

    example: Example
    words: tuple[Words, ...]
    costs: Int[np.ndarray, " W"]
    tokens: int
    requested: int | None

    @cached_property
    def bounds(self) -> Int[np.ndarray, " documents+1"]:
        """Where each document's words begin among all."""
        return np.cumsum([0, *map(len, self.words)])

    @cached_property
    def protected(self) -> Bool[np.ndarray, " W"]:
        """The protected words."""
        return np.concatenate([words.protected for words in self.words])

    @property
    def filled(self) -> list[int]:
        """The documents with a word in them."""
        return [d for d, words in enumerate(self.words) if len(words)]

    def part(self, document: int) -> slice:
        """The words of one document among all."""
        return slice(int(self.bounds[document]), int(self.bounds[document + 1]))


def open_source(tokenizer: Any, example: Example, budget: Budget | None, protection: Protection) -> Source:
    """Cut an example's documents into words, and count the tokens of each and of all."""
    words = protection.split(example)
    ids, offsets = encode_with_offsets(tokenizer, "\n".join(document.text for document in example.documents))
    begins = np.cumsum([0, *(len(w.text) + 1 for w in words)])
    ends = np.concatenate([w.ends + begin for w, begin in zip(words, begins, strict=False)] or [np.zeros(0, int)])
    owners = np.searchsorted(ends, offsets[:, 1] - 1, side="right")
    costs = np.bincount(owners, minlength=len(ends) + 1)[: len(ends)]
    return Source(example, words, costs, len(ids), budget.resolve(len(ids)) if budget else None)


def settle(tokenizer: Any, source: Source, *, declare: bool) -> Compressed | None:
    """The result that needs no model: no words at all, or documents that fit the budget whole. Else None."""
    if not source.filled:
        return Compressed((), source.requested, 0, 0, source.tokens, "empty")
    if source.requested is None or source.tokens > source.requested:
        return None
    whole = {d: ((0, len(source.words[d].text)),) for d in source.filled}
    return _compressed(tokenizer, source, whole, "short_input", declare=declare)


def prune(
    tokenizer: Any,
    source: Source,
    order: Int[np.ndarray, " ranked"],
    *,
    arrangement: Sequence[int] | None = None,
    declare: bool = False,
    notes: tuple[str, ...] = (),
) -> Compressed:
    """Keep the longest prefix of a ranking whose text fits the source's budget.

    Args:
      tokenizer: the generator's.
      source: what is pruned, with a budget.
      order: words by rank, best first; words that are not in it are dropped. Protected ones count as first, wherever
        they stand, and in it or not.
      arrangement: the documents in the order of the result; default: their own.
      declare: give each unit the ids of the sentences that its words come from.
    """
    chosen = source.protected[order]
    order = np.concatenate([np.flatnonzero(source.protected), order[~chosen]])
    arrangement = source.filled if arrangement is None else arrangement

    @cache
    def spans(kept: int) -> dict[int, tuple[tuple[int, int], ...]]:
        return kept_spans(source, _mark(order[:kept], len(source.costs)), arrangement)

    @cache
    def excess(kept: int) -> int:
        return count_tokens(tokenizer, "\n".join(_texts(source, spans(kept)))) - source.requested

    slack = SLACK if any(words.unspaced for words in source.words) else 0
    count = longest_prefix(excess, source.costs[order], source.requested, slack)
    if count >= max(int(source.protected.sum()), 1):
        achieved = source.requested + excess(count)
        return _compressed(tokenizer, source, spans(count), "ok", declare=declare, notes=notes, achieved=achieved)
    cut = {} if source.protected.any() else _cut_first(tokenizer, source, int(order[0]))
    status = "length" if cut else "too_small"
    return _compressed(tokenizer, source, cut, status, declare=declare, notes=notes)


def keep_words(
    tokenizer: Any,
    source: Source,
    keep: Bool[np.ndarray, " W"],
    *,
    arrangement: Sequence[int] | None = None,
    declare: bool = False,
    notes: tuple[str, ...] = (),
) -> Compressed:
    """The result that keeps the given words and the protected ones, whatever their length; "empty" without any."""
    found = kept_spans(source, keep | source.protected, source.filled if arrangement is None else arrangement)
    return _compressed(tokenizer, source, found, "ok" if found else "empty", declare=declare, notes=notes)


def longest_prefix(
    excess: Callable[[int], int], costs: Int[np.ndarray, " ranked"], budget: int, slack: int = 0
) -> int:
    """The longest prefix of a ranking that fits: excess(n) <= 0 and excess(n + 1) > 0, or n is all of it.

    Args:
      excess: tokens over the budget of the text of the first n words, counted exactly.
      costs: an estimate of each word's tokens: with a good one, three or four texts are counted.
      budget: tokens allowed.
      slack: tokens over the budget up to which longer prefixes are looked at as well.
    """
    sums = np.cumsum(costs)
    fits, beyond, tries = 0, len(costs) + 1, 0
    guess = int(np.searchsorted(sums, budget, side="right"))
    while beyond - fits > 1:
        at = min(max(guess, fits + 1), beyond - 1) if tries < ESTIMATES else (fits + beyond) // 2
        over = excess(at)
        fits, beyond = (at, beyond) if over <= 0 else (fits, at)
        guess, tries = int(np.searchsorted(sums, sums[at - 1] - over, side="right")), tries + 1
    while beyond < len(costs) and excess(beyond) <= slack:
        beyond += 1
        fits = beyond if excess(beyond) <= 0 else fits
    return fits


def kept_spans(
    source: Source, keep: Bool[np.ndarray, " W"], arrangement: Sequence[int]
) -> dict[int, tuple[tuple[int, int], ...]]:
    """The kept slices of each document that has any, in the order of `arrangement`."""
    found = {d: source.words[d].kept_spans(keep[source.part(d)]) for d in arrangement}
    return {d: tuple(map(tuple, spans.tolist())) for d, spans in found.items() if len(spans)}


def _mark(indices: Int[np.ndarray, " n"], count: int) -> Bool[np.ndarray, " W"]:
    found = np.zeros(count, bool)
    found[indices] = True
    return found


def _texts(source: Source, spans: dict[int, tuple[tuple[int, int], ...]]) -> list[str]:
    return ["".join([source.words[d].text[a:b] for a, b in slices]) for d, slices in spans.items()]


def _cut_first(tokenizer: Any, source: Source, index: int) -> dict[int, tuple[tuple[int, int], ...]]:
    """The longest beginning of an over-long word that fits the budget; nothing for a word of common length."""
    document = int(np.searchsorted(source.bounds, index, side="right")) - 1
    words, place = source.words[document], index - int(source.bounds[document])
    word, start = words[place], int(words.starts[place])
    if len(word) <= LONGEST_WORD:
        return {}
    inside = {at for m in _NUMBER.finditer(word) for at in range(m.start() + 1, m.end())}
    ends = [m.end() for m in _GRAPHEME.finditer(word) if m.end() not in inside]
    kept = fitting_prefix(tokenizer, word, ends, source.requested)
    return {document: ((start, start + len(kept)),)} if kept else {}


def _compressed(
    tokenizer: Any,
    source: Source,
    spans: dict[int, tuple[tuple[int, int], ...]],
    status: str,
    *,
    declare: bool,
    notes: tuple[str, ...] = (),
    achieved: int | None = None,
) -> Compressed:
    """The result that keeps these slices of these documents; `achieved` spares counting it."""
    texts = _texts(source, spans)
    sources = _declared(source.example, spans) if declare else [None] * len(texts)
    units = tuple(
        Unit(text, declared, tuple((d, a, b) for a, b in slices))
        for text, declared, (d, slices) in zip(texts, sources, spans.items(), strict=True)
    )
    achieved = shown = count_tokens(tokenizer, "\n".join(texts)) if achieved is None else achieved
    if len(units) > 1:
        titles = (source.example.documents[d].title for d in spans)
        shown = count_tokens(tokenizer, number_documents([Document(t, n) for t, n in zip(texts, titles, strict=True)]))
    return Compressed(units, source.requested, achieved, shown, source.tokens, status, notes=notes)


def _declared(example: Example, spans: dict[int, tuple[tuple[int, int], ...]]) -> list[tuple[str, ...]]:
    """For each document with kept slices, the ids of the sentences that share more than white space with them."""
    from ragjax.retrieve.sentences import split_sentences

    found: dict[int, list[str]] = {d: [] for d in spans}
    for sentence in split_sentences(example.documents):
        text = example.documents[sentence.document].text
        slices = ((max(a, sentence.start), min(b, sentence.end)) for a, b in spans.get(sentence.document, ()))
        if any(text[a:b].strip() for a, b in slices if a < b):
            found[sentence.document].append(sentence.sid)
    return [tuple(sids) for sids in found.values()]
