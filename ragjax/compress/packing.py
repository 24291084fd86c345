"""Units in rank order to the set that fits a budget: each is taken where the joined text still fits, else skipped.

What counts is the joined text, tokenised as one string: a token may straddle a joint, so that lengths do not just add
up. They nearly do: the lengths of the units, tokenised once, tell of most that they fit or do not, and only close to
the budget is the joined text tokenised. No unit left out would fit.
"""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragjax.decode.prompt import count_each, count_tokens

SLACK = 4
"""Tokens by which the length of a joined text may differ from the sum, for each unit that was put in."""


def pack(
    tokenizer: Any,
    texts: Sequence[str],
    ranking: Sequence[int],
    budget: int | None,
    *,
    most: int | None = None,
    claims: Sequence[Collection[Hashable]] | None = None,
    sizes: Sequence[int] | None = None,
) -> list[int]:
    """The units to take, by index, in ascending order.

    Args:
      tokenizer: counts the tokens.
      texts: the units' texts in the order in which they will be joined by newlines.
      ranking: their indices, best first.
      budget: tokens that the joined text may have; None takes all.
      most: units to take at most.
      claims: what each unit claims for itself alone: of two units with a claim in common one is taken at most.
      sizes: about how many tokens each unit adds, its line end included; default: those of the unit by itself.

    Returns:
      Indices such that the joined text fits, and no other unit could be added to it.
    """
    sizes = count_each(tokenizer, ["\n" + text for text in texts]) if sizes is None else sizes
    claimed = [frozenset(own) for own in claims] if claims is not None else [frozenset()] * len(texts)
    offer = _Offer(tokenizer, texts, ranking, sizes, claimed, len(texts) if most is None else most)
    if budget is None:
        budget = sum(sizes) + SLACK * (len(texts) + 1)
    taken = _fill(offer, budget, SLACK)
    if count_tokens(tokenizer, offer.join(taken)) > budget:  # A tokenizer of other habits: every step is counted.
        taken = _fill(offer, budget, budget + sum(sizes))
    return sorted(taken)


@dataclass(frozen=True, eq=False)
class _Offer:
    """The units on offer: their texts, lengths and claims, best first by `ranking`, at most `most` of them."""

    tokenizer: Any
    texts: Sequence[str]
    ranking: Sequence[int]
    sizes: Sequence[int]
    claims: Sequence[frozenset]
    most: int

    def join(self, taken: Collection[int]) -> str:
        return "\n".join(self.texts[i] for i in sorted(taken))


@dataclass(eq=False)
class _Taken:
    """The units taken so far: how many tokens they have, and how many were put in since that was counted."""

    units: set[int] = field(default_factory=set)
    claimed: set[Hashable] = field(default_factory=set)
    tokens: int = 0
    uncounted: int = 0


def _fill(offer: _Offer, budget: int, slack: int) -> set[int]:
    """Go through the units until none can be added: what one adds may let another in that did not fit before."""
    taken, before = _Taken(), -1
    while len(taken.units) > before:
        before = len(taken.units)
        for unit in offer.ranking:
            free = unit not in taken.units and taken.claimed.isdisjoint(offer.claims[unit])
            if free and len(taken.units) < offer.most:
                _take_if_fits(offer, taken, unit, budget, slack)
    return taken.units


def _take_if_fits(offer: _Offer, taken: _Taken, unit: int, budget: int, slack: int) -> None:
    guess, doubt = taken.tokens + offer.sizes[unit], slack * (taken.uncounted + 1)
    if guess - doubt > budget:
        return
    tokens, uncounted = guess, taken.uncounted + 1
    if guess + doubt > budget:
        if taken.uncounted:  # Count anew what is there: it may settle this unit, and settles later ones.
            taken.tokens, taken.uncounted = count_tokens(offer.tokenizer, offer.join(taken.units)), 0
            return _take_if_fits(offer, taken, unit, budget, slack)
        tokens, uncounted = count_tokens(offer.tokenizer, offer.join(taken.units | {unit})), 0
    if tokens <= budget:
        taken.units.add(unit)
        taken.claimed |= offer.claims[unit]
        taken.tokens, taken.uncounted = tokens, uncounted
