"""From ranked words to the pruned text that fits a budget: what the families that drop words share.

1. An `Opener` cuts an example's documents into words and counts their tokens, once.
2. Where there is nothing, or all of it fits, the result is settled; else a family ranks the words of all documents.
3. `prune` keeps the longest prefix of that ranking whose text fits, so the next word would exceed the budget. Protected
   words come first. Words are put back where they stood; those of one document are one unit.

Only a word longer than `LONGEST_WORD` that comes first and does not fit is cut, at a grapheme and outside numbers.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import regex

from ragjax.compress.base import Budget, Compressed, Compressor, Unit
from ragjax.compress.cut import fitting_prefix
from ragjax.compress.units import Request
from ragjax.compress.words import DIGITS, NEWLINES, Words, split_words, word_vocabulary
from ragjax.data.records import Example
from ragjax.decode.prompt import count_tokens, encode_each_with_offsets
from ragjax.retrieve.sentences import split_sentences
from ragjax.typing import Bool, Int

Spans = dict[int, list[tuple[int, int]]]
"""The kept slices of each document that has any, in the order of the result."""

KEEP = {"digits": DIGITS, "newlines": NEWLINES}
"""What can be protected by name, beside "question"; each is a pattern."""

LONGEST_WORD = 64
"""Characters of a word up to which it is kept or dropped whole, whatever the budget."""

ESTIMATES = 6
"""How often the search for what fits trusts the words' token counts before it halves."""

SLACK = 2
"""Tokens over the budget up to which the search looks further, in scripts that do not space their words: there a next
word may complete a token and save some."""

_NUMBER = regex.compile(r"\p{N}+(?:[.,]\p{N}+)*")
_GRAPHEME = regex.compile(r"\X")


@dataclass(frozen=True, eq=False)
class Source:
    """An example in words. What is [W] runs over the words of all its documents, in their order.

    `costs` [W] are the generator's tokens that end in each word, in the documents joined by newlines.
    """

    request: Request
    words: tuple[Words, ...]
    costs: Int[np.ndarray, " W"]

    def within(self, budget: Budget | None) -> "Source":
        """The same with a budget."""
        requested = budget.resolve(self.request.source_tokens) if budget else None
        return replace(self, request=replace(self.request, requested=requested))

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

    def kept_spans(self, keep: Bool[np.ndarray, " W"], arrangement: Sequence[int]) -> Spans:
        """What remains of the documents of `arrangement`, in that order."""
        found = {d: self.words[d].kept_spans(keep[self.part(d)]).tolist() for d in arrangement}
        return {d: [(a, b) for a, b in slices] for d, slices in found.items() if slices}

    def text(self, document: int, slices: Sequence[tuple[int, int]]) -> str:
        """Slices of a document, joined."""
        return "".join([self.words[document].text[a:b] for a, b in slices])

    def fulfil(self, spans: Spans, status: str, notes: tuple[str, ...] = (), achieved: int | None = None) -> Compressed:
        """The result that keeps these slices: one unit a document, with the sids of the sentences it has words of."""
        units = []
        for d, slices in spans.items():
            sids = None if self.request.sentences is None else self._sids(d, slices)
            units.append(Unit(self.text(d, slices), sids, tuple((d, a, b) for a, b in slices)))
        return self.request.fulfil(units, status, notes, achieved)

    def _sids(self, document: int, slices: Sequence[tuple[int, int]]) -> tuple[str, ...]:
        """The sentences of a document of which some slice has more than white space."""
        sentences = [s for s in self.request.sentences if s.document == document]
        parts = [[s.text[max(a - s.start, 0) : max(b - s.start, 0)] for a, b in slices] for s in sentences]
        return tuple(s.sid for s, own in zip(sentences, parts, strict=True) if any(part.strip() for part in own))


@dataclass(frozen=True, eq=False)
class Opener:
    """Cuts examples into words, of which some are protected: they survive byte for byte.

    Args:
      tokenizer: the generator's.
      keep: some of "question" (the question's words wherever they stand in the documents, in any case), "digits"
        (every word with a digit in it) and "newlines".
      patterns: expressions of the `regex` module; words that a match touches are kept whole.
      language: of the sentences that units declare; None declares none.
    """

    tokenizer: Any
    keep: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    language: str | None = None

    def __post_init__(self) -> None:
        known = ("question", *KEEP)
        if unknown := [name for name in self.keep if name not in known]:
            raise ValueError(f"keep names some of {known}, got {unknown[0]!r}; patterns go to keep_patterns")
        for pattern in self.patterns:
            try:
                regex.compile(pattern)
            except regex.error as error:
                raise ValueError(f"keep_patterns: {pattern!r} is no regular expression: {error}") from error

    def open(self, examples: Sequence[Example]) -> list[Source]:
        """The words of each example's documents, and the tokens of each word and of all; no budget yet."""
        joined = ["\n".join(document.text for document in example.documents) for example in examples]
        encoded = encode_each_with_offsets(self.tokenizer, joined)
        return [self._source(example, *one) for example, one in zip(examples, encoded, strict=True)]

    def _source(self, example: Example, ids: Sequence[int], offsets: Int[np.ndarray, "T 2"]) -> Source:
        patterns = [KEEP[name] for name in self.keep if name in KEEP] + list(self.patterns)
        vocabulary = word_vocabulary(example.question) if "question" in self.keep else frozenset()
        words = tuple(split_words(document.text, patterns, vocabulary) for document in example.documents)
        begins = np.cumsum([0, *(len(one.text) + 1 for one in words)])
        ends = np.concatenate([np.zeros(0, int), *(w.ends + at for w, at in zip(words, begins, strict=False))])
        owners = np.searchsorted(ends, offsets[:, 1] - 1, side="right")
        costs = np.bincount(owners, minlength=len(ends) + 1)[: len(ends)]
        sentences = split_sentences(example.documents, self.language) if self.language else None
        return Source(Request(self.tokenizer, example, sentences, len(ids) if len(ends) else 0, None), words, costs)


class Pruning(Compressor):
    """A family that drops words: it settles each example at each budget, or ranks the words of those that are left.

    Its models run once an example, whatever the number of budgets.
    """

    tokenizer: Any
    keep: tuple[str, ...]
    keep_patterns: tuple[str, ...]
    declare: bool
    language: str

    @abstractmethod
    def choose(self, groups: Sequence[Sequence[Source]]) -> list[list[Compressed]]:
        """The results of what nothing settles: groups of one example at one or more budgets."""

    def compress(self, examples: Sequence[Example], budget: Budget | None = None) -> list[Compressed]:
        """Prune each example's documents; the result's order is the examples'. A unit is what is kept of one document.

        See the class for what is done without a budget.
        """
        return self.compress_budgets(examples, (budget,))[0]

    def compress_budgets(self, examples: Sequence[Example], budgets: Sequence[Budget | None]) -> list[list[Compressed]]:
        """As `Compressor.compress_budgets`."""
        opened = self._opener.open(examples)
        sources = [[source.within(budget) for budget in budgets] for source in opened]
        found = [[source.request.settle() for source in row] for row in sources]
        rest = [i for i, row in enumerate(found) if None in row]
        open_ = [[source for source, done in zip(sources[i], found[i], strict=True) if done is None] for i in rest]
        for i, chosen in zip(rest, self.choose(open_) if rest else (), strict=True):
            left = iter(chosen)
            found[i] = [next(left) if done is None else done for done in found[i]]
        return [list(column) for column in zip(*found, strict=True)] if found else [[] for _ in budgets]

    @property
    def _counter(self) -> Any:
        """The tokenizer that lengths are counted with."""
        return self.tokenizer

    @cached_property
    def _opener(self) -> Opener:
        language = self.language if self.declare else None
        return Opener(self._counter, tuple(self.keep), tuple(self.keep_patterns), language)


def prune(
    source: Source,
    ranking: Int[np.ndarray, " ranked"],
    arrangement: Sequence[int] | None = None,
    notes: tuple[str, ...] = (),
) -> Compressed:
    """Keep the longest prefix of a ranking whose text fits the source's budget.

    Args:
      source: what is pruned, with a budget.
      ranking: words, best first; those that are not in it are dropped. Protected ones count as first, in it or not.
      arrangement: the documents in the order of the result; default: their own.
      notes: of the result.
    """
    tokenizer, budget = source.request.tokenizer, source.request.requested
    arrangement = source.filled if arrangement is None else arrangement
    protected = np.flatnonzero(source.protected)
    ranking = np.concatenate([protected, ranking[~source.protected[ranking]]])

    @cache
    def spans(count: int) -> Spans:
        kept = np.zeros(len(source.costs), bool)
        kept[ranking[:count]] = True
        return source.kept_spans(kept, arrangement)

    @cache
    def excess(count: int) -> int:
        return count_tokens(tokenizer, "\n".join(source.text(*one) for one in spans(count).items())) - budget

    slack = SLACK if any(words.unspaced for words in source.words) else 0
    count = longest_prefix(excess, source.costs[ranking], budget, slack)
    if count >= max(len(protected), 1):
        return source.fulfil(spans(count), "ok", notes, budget + excess(count))
    cut = {} if len(protected) else _cut_first(source, int(ranking[0]))
    return source.fulfil(cut, "length" if cut else "too_small", notes)


def longest_prefix(excess: Callable[[int], int], costs: Int[np.ndarray, " ranked"], budget: int, slack: int = 0) -> int:
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


def _cut_first(source: Source, index: int) -> Spans:
    """The longest beginning of an over-long word that fits the budget; nothing for a word of common length."""
    document = int(np.searchsorted(source.bounds, index, side="right")) - 1
    words, place = source.words[document], index - int(source.bounds[document])
    word, start = words[place], int(words.starts[place])
    if len(word) <= LONGEST_WORD:
        return {}
    inside = {at for m in _NUMBER.finditer(word) for at in range(m.start() + 1, m.end())}
    ends = [m.end() for m in _GRAPHEME.finditer(word) if m.end() not in inside]
    kept = fitting_prefix(source.request.tokenizer, word, ends, source.request.requested)
    return {document: [(start, start + len(kept))]} if kept else {}
