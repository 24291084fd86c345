"""What the tests of citations share: a judge that knows upper-case words, and examples made of them."""

import re
from collections.abc import Sequence

import numpy as np

from ragjax.cite.entailment import Judged, Pair
from ragjax.cite.records import Cited
from ragjax.compress.base import Unit
from ragjax.data.records import Document

WORD = re.compile(r"\b[A-Z]+\b")


class KeywordJudge:
    """Entailed, with probability 0.9 and not 0.1, when all upper-case words of the hypothesis occur in the premise.

    A token is a word; a premise of more than `reach` words is cut, and counted. `calls` holds what it was asked.
    """

    name = "keywords"

    def __init__(self, reach: int = 1000) -> None:
        self.reach = reach
        self.calls: list[list[Pair]] = []

    @property
    def pairs(self) -> list[Pair]:
        """All pairs that it was asked about."""
        return [pair for call in self.calls for pair in call]

    def describe(self) -> dict[str, str]:
        return {"judge": self.name}

    def probabilities(self, pairs: Sequence[Pair]) -> Judged:
        self.calls.append(list(pairs))
        values = [0.9 if self.entails(*pair) else 0.1 for pair in pairs]
        tokens = [sum(len(text.split()) for text in pair) for pair in pairs]
        cut = [max(0, len(premise.split()) - self.reach) for premise, _ in pairs]
        return Judged(np.array(values, np.float64), np.array(tokens, int), np.array(cut, int))

    @staticmethod
    def entails(premise: str, hypothesis: str) -> bool:
        return set(WORD.findall(hypothesis)) <= set(WORD.findall(premise))


def cited(
    answer: str,
    units: Sequence[tuple[str, Sequence[str] | None] | str],
    documents: Sequence[str | Sequence[str]] = (),
    id: str = "q",
) -> Cited:
    """An example. A unit is a text that declares nothing, or a text and its sids; a document, a text or sentences."""
    made = [Unit(u) if isinstance(u, str) else Unit(u[0], None if u[1] is None else tuple(u[1])) for u in units]
    texts = [Document(d) if isinstance(d, str) else Document(" ".join(d), sentences=tuple(d)) for d in documents]
    return Cited(id, "Which?", answer, tuple(made), tuple(texts))
