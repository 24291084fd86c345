"""Citations put where an answer has none: each sentence is given the unit it is likest (ALCE's post-hoc baseline).

What it measures is how well words overlap, not what a model rests its answer on: a result of it has to say so.
"""

from collections.abc import Sequence

import numpy as np

from ragjax.compress.base import Unit
from ragjax.data.records import Document
from ragjax.retrieve.lexical import lexical_similarities
from ragjax.retrieve.sentences import split_sentences


def attach_citations(answer: str, units: Sequence[Unit], *, language: str = "en") -> str:
    """The answer with the number of one unit after each sentence, before its white space: "It rains. [2]".

    The likest unit by words is cited, the first of equals; a sentence without a word in common cites none.
    """
    parts, at = [], 0
    for sentence in split_sentences([Document(answer)], language):
        best = _likest(sentence.text, units)
        mark = "" if best is None else f" [{best + 1}]"
        parts += [answer[at : sentence.end], mark]
        at = sentence.end
    return "".join([*parts, answer[at:]])


def _likest(sentence: str, units: Sequence[Unit]) -> int | None:
    if not units:
        return None
    found = lexical_similarities([sentence, *(unit.text for unit in units)])[0, 1:]
    return int(np.argmax(found)) if found.max() > 0 else None
