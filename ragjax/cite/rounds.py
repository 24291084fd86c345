"""Many examples that ask one judge: the pairs of a round, of all of them, in one call.

What an example wants to know is a talk: a generator that yields pairs, is sent their verdicts, and yields the next
ones until it returns what it found. `converse` holds the talks of all examples side by side. What a talk asks may so
depend on what it heard, and the judge still runs in full batches.
"""

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from ragjax.cite.entailment import ClaimTooLong, Judge, Judged, Pair
from ragjax.cite.records import Tally

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

Count = Callable[[str], int]


@dataclass(frozen=True)
class Verdicts:
    """Whether each pair of one talk's round is entailed, and the round's tally."""

    entailed: tuple[bool, ...]
    tally: Tally


Talk = Generator[list[Pair], Verdicts, T]


def ask(pairs: Mapping[K, Pair]) -> Talk[tuple[dict[K, bool], Tally]]:
    """A round of a talk: its pairs by name to their verdicts by name."""
    verdicts = yield list(pairs.values())
    return dict(zip(pairs, verdicts.entailed, strict=True)), verdicts.tally


def converse(talks: Sequence[Talk[T]], judge: Judge, tau: float, count: Count | None = None) -> list[T]:
    """What each talk returns, all held at once.

    Args:
      talks: one an example.
      judge: asked once a round, and never where no talk has a pair.
      tau: the probability from which a pair is entailed.
      count: counts the tokens of a text, in place of the judge.

    Raises:
      ValueError: for a tau outside [0, 1], and for a judgement that is no probability.
    """
    if not 0 <= tau <= 1:
        raise ValueError(f"tau is a probability, got {tau}")
    count = count and cache(count)
    results: dict[int, T] = {}
    replies: dict[int, Any] = dict.fromkeys(range(len(talks)))  # None begins a generator.
    while replies:
        asked: dict[int, list[Pair]] = {}
        for number, reply in replies.items():
            try:
                asked[number] = talks[number].send(reply)
            except StopIteration as end:
                results[number] = end.value
        replies = _replies(asked, judge, tau, count)
    return [results[number] for number in range(len(talks))]


def _replies(asked: Mapping[int, list[Pair]], judge: Judge, tau: float, count: Count | None) -> dict[int, Verdicts]:
    pairs = [pair for own in asked.values() for pair in own]
    known = _judged(judge, pairs)
    replies, done = {}, 0
    for number, own in asked.items():
        rows = known[done : done + len(own)]
        done += len(own)
        tokens = [row.tokens if count is None else sum(map(count, pair)) for row, pair in zip(rows, own, strict=True)]
        tally = Tally(len(own), sum(tokens), sum(row.truncated for row in rows), sum(row.unread for row in rows))
        replies[number] = Verdicts(tuple(row.value >= tau and not row.unread for row in rows), tally)
    return replies


@dataclass(frozen=True)
class _Row:
    value: float = 0.0
    tokens: int = 0
    truncated: bool = False
    unread: bool = True


def _judged(judge: Judge, pairs: Sequence[Pair]) -> list[_Row]:
    """What the judge says of each pair; those whose hypothesis it refuses are unread."""
    rows = [_Row()] * len(pairs)
    refused: set[str] = set()
    while places := [place for place, (_, hypothesis) in enumerate(pairs) if hypothesis not in refused]:
        try:
            judged = judge.probabilities([pairs[place] for place in places])
        except ClaimTooLong as error:
            if refused.issuperset(error.hypotheses):
                raise
            refused.update(error.hypotheses)
            continue
        for place, row in zip(places, _rows(judge, judged), strict=True):
            rows[place] = row
        break
    return rows


def _rows(judge: Judge, judged: Judged) -> list[_Row]:
    arrays = (judged.values.tolist(), judged.tokens.tolist(), judged.truncated.tolist())
    for value in arrays[0]:
        if not 0 <= value <= 1:
            raise ValueError(f"{judge.name} gave {value}, which is no probability of entailment")
    return [_Row(value, tokens, cut > 0, unread=False) for value, tokens, cut in zip(*arrays, strict=True)]
