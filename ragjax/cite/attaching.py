"""Citations put where an answer has none: each sentence is given the unit it is likest (ALCE's post-hoc baseline).

What it measures is how well words overlap, not what a model rests its answer on: a result of it has to say so.
"""

from collections.abc import Sequence

import numpy as np

from ragjax.cite.parsing import parse
from ragjax.compress.base import Unit
from ragjax.retrieve.lexical import lexical_similarities


def attach_citations(answer: str, units: Sequence[Unit], *, language: str = "en") -> str:
    """The answer with the number of one unit after each statement, before its white space: "It rains. [2]".

    The likest unit by words is cited, the first of equals; a statement without a word in common cites none. Markers
    that are there already, valid or not, give way.
    """
    parts, at = [], 0
    for one in parse(answer, len(units), language=language).statements:
        best = _likest(one.text, units)
        written = one.text if one.cited or one.invalid else answer[one.start : one.end]
        parts += [answer[at : one.start], written, "" if best is None else f" [{best + 1}]"]
        at = one.end
    return "".join([*parts, answer[at:]])


def _likest(statement: str, units: Sequence[Unit]) -> int | None:
    if not units:
        return None
    found = lexical_similarities([statement, *(unit.text for unit in units)])[0, 1:]
    return int(np.argmax(found)) if found.max() > 0 else None
