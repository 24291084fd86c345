"""Support counted in words: a judge of entailment that needs no model, and knows no meaning.

It is what runs offline, and says so in its name. A text is read as sentences, each with its content words, its numbers
and whether it is negated; a claim is supported as far as its words stand in sentences that are negated as it is, and
its numbers stand anywhere.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ragjax.cite.entailment import Judged, Pair
from ragjax.retrieve.lexical import terms

CONTRARY = 0.25
"""What a word counts that stands only in sentences which are negated where the claim is not, or the other way round."""

_NEGATIONS = frozenset(terms("not no never none nobody nothing nowhere neither nor without cannot"))

# English function words; of other languages every word counts.
_FUNCTION_WORDS = frozenset(
    terms(
        "a about after also an and any are as at be been being but by ca can could did do does doing for from had "
        "has have having he her here hers him his i if in into is it its may me might must my of on one onto or "
        "our ours s shall she should so some such than that the their theirs them then there these they this those "
        "to too upon us was we were what when where which while who whom whose will with wo would you your yours"
    )
)

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|[;。！？；\n]+")
_SHORT_NOT = re.compile(r"n['\u2019]t\b", re.IGNORECASE)
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


@dataclass(frozen=True)
class _Reading:
    """A text's content words, of plain sentences and of negated ones; its numbers; and how many words it has in all."""

    words: tuple[frozenset[str], frozenset[str]]
    numbers: frozenset[str]
    count: int


@lru_cache(maxsize=1 << 14)
def _read(text: str) -> _Reading:
    plain, negated = set(), set()
    numbers: set[str] = set()
    count = 0
    for sentence in _SENTENCE_END.split(text):
        found = terms(_THOUSANDS.sub("", _SHORT_NOT.sub(" not", sentence)))
        count += len(found)
        numbers |= {word for word in found if word.isdecimal()}
        words = {word for word in found if not word.isdecimal()} - _NEGATIONS
        (plain if _NEGATIONS.isdisjoint(found) else negated).update(words - _FUNCTION_WORDS or words)
    return _Reading((frozenset(plain), frozenset(negated)), frozenset(numbers), count)


class LexicalOverlap:
    """The share of a claim's words that its premise has: a stand-in for an entailment model, of our own making.

    The value is the product of two means, each 1 for a claim that has nothing of the kind: over the distinct content
    words of the claim, of 1 for a word that the premise has in a sentence negated as the claim's is, `CONTRARY` for
    one that it has in others alone, 0 for one that it has not; and over the distinct numbers of the claim, of 1 for
    those that the premise has. A claim with neither words nor numbers has the value 0. Words are those of
    `ragjax.retrieve.lexical.terms`: equal but for case and width, in any script. A decimal fraction is two numbers.

    So the value never falls when sentences are added to a premise. `Judged.tokens` counts words.
    """

    name = "lexical overlap (no entailment model)"

    def describe(self) -> dict[str, Any]:
        """As `Judge.describe`."""
        return {"judge": self.name, "version": 1}

    def probabilities(self, pairs: Sequence[Pair]) -> Judged:
        """As `Judge.probabilities`; nothing is ever cut or refused."""
        read = [(_read(premise), _read(hypothesis)) for premise, hypothesis in pairs]
        values = np.array([_support(*pair) for pair in read], np.float64)
        tokens = np.array([premise.count + hypothesis.count for premise, hypothesis in read], int)
        return Judged(values, tokens, np.zeros(len(read), int))


def _support(premise: _Reading, claim: _Reading) -> float:
    count, credit = 0, 0.0
    for words, alike, contrary in zip(claim.words, premise.words, premise.words[::-1], strict=True):
        count += len(words)
        credit += sum(1.0 if word in alike else CONTRARY if word in contrary else 0.0 for word in words)
    if not count and not claim.numbers:
        return 0.0
    numbers = len(claim.numbers & premise.numbers) / len(claim.numbers) if claim.numbers else 1.0
    return (credit / count if count else 1.0) * numbers
