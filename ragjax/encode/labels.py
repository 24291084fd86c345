"""The labels of a text's tokens, of the whole text however long: windows, and one place in the text for each sub-word.

A window holds as many sub-words as the model has positions for beside its special tokens, which stand around each
window. It ends before the last word that does not fit whole; a word that is longer than a window is cut between two
sub-words. With an `overlap`, a window also reads that many sub-words before its own, and the sub-words that two
windows read go half to the one and half to the other. No sub-word is dropped, and none is given twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragjax.encode.batches import read_rows
from ragjax.encode.texts import require_head
from ragjax.encode.tokens import frame_of, room_of, tokenize_with_places
from ragjax.typing import Float, Int


@dataclass(frozen=True, eq=False)
class TokenLabels:
    """Every sub-word of a text: its place [T, 2] in characters, and the probability of each label [T, C] in float32.

    A place has no white space at its ends, and is empty for a sub-word that stands for white space alone. Sub-words
    of one character share its place.
    """

    offsets: Int[np.ndarray, "T 2"]
    probabilities: Float[np.ndarray, "T C"]


def token_probabilities(
    model: Any, texts: Sequence[str], *, max_length: int | None = None, overlap: int = 0, batch: int = 32
) -> list[TokenLabels]:
    """What a token-classification model says of every sub-word of each text; special tokens are left out.

    Args:
      model: a `ragjax.Encoder` with a token head.
      max_length: the most tokens of a window, special ones included (default: all the model's positions).
      overlap: sub-words that a window reads before its own.

    Raises:
        ValueError: for a model without such a head, a setting that cannot be, or naming the text that is none.
        NonFinite: naming the text with a probability that is no number.
    """
    require_head(model, "token")
    frame = frame_of(model, 1)
    room = room_of(model, frame, max_length)
    if not 0 <= overlap < room:
        raise ValueError(f"overlap lies from 0 to below the {room} sub-words of a window, got {overlap}")
    found = tokenize_with_places(model, texts)
    pieces = [(number, *piece) for number, one in enumerate(found) for piece in windows(one.words, room, overlap)]
    rows = [frame.row(number, found[number].ids[start:stop]) for number, start, stop, _ in pieces]
    values = read_rows(model, rows, "labels", batch)
    lead = len(frame.specials[0])
    kept = [np.zeros((len(one.ids), len(model.labels)), np.float32) for one in found]
    for (number, start, stop, first), value in zip(pieces, values, strict=True):
        # The next window writes over the half that is its own.
        kept[number][first:stop] = value[lead + first - start : lead + stop - start]
    return [TokenLabels(one.places, probabilities) for one, probabilities in zip(found, kept, strict=True)]


def windows(words: Int[np.ndarray, " T"], room: int, overlap: int) -> list[tuple[int, int, int]]:
    """The windows over a text's sub-words as (start, stop, first): it reads start to stop, and first is the first
    whose label it gives. `words` numbers the word of each sub-word."""
    count = len(words)
    starts = np.flatnonzero(np.diff(words, prepend=-2))
    found: list[tuple[int, int, int]] = []
    begin = 0
    while begin < count:
        stop = min(begin + room, count)
        if stop < count:
            # The last word that begins behind the overlap and up to here: it and what follows are the next window's.
            last = int(starts[np.searchsorted(starts, stop, side="right") - 1])
            stop = last if last > begin + overlap else stop
        found.append((begin, stop, begin + (overlap - overlap // 2 if found else 0)))
        if stop == count:
            break
        begin = stop - overlap
    return found
