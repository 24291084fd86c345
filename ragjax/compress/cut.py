"""Lengths in the generator's tokens, and cutting a text to a budget."""

import re
from collections.abc import Sequence
from typing import Any

from ragjax.data.records import Document
from ragjax.decode.prompt import count_tokens

_WORD_END = re.compile(r"\S(?=\s|$)")


def source_length(tokenizer: Any, documents: Sequence[Document]) -> int:
    """Tokens of the documents' texts joined by newlines: no titles, no numbers. What a budget is a fraction of."""
    return count_tokens(tokenizer, "\n".join(document.text for document in documents))


def cut_to_budget(tokenizer: Any, text: str, budget: int) -> tuple[str, str]:
    """The longest prefix of whole words of at most `budget` tokens, and its status.

    "ok" where the text fits as it is, "length" where it was cut, "too_small" where not even one word fits.
    """
    if count_tokens(tokenizer, text) <= budget:
        return text, "ok"
    kept = fitting_prefix(tokenizer, text, [match.end() for match in _WORD_END.finditer(text)], budget)
    return (kept, "length") if kept else ("", "too_small")


def fitting_prefix(tokenizer: Any, text: str, ends: Sequence[int], budget: int) -> str:
    """The text up to the last of the given ends, which are in order, at which it has at most `budget` tokens."""
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high + 1) // 2
        if count_tokens(tokenizer, text[: ends[middle - 1]]) <= budget:
            low = middle
        else:
            high = middle - 1
    # Tokens do not grow strictly with words at a boundary: step back until it really fits.
    while low and count_tokens(tokenizer, text[: ends[low - 1]]) > budget:
        low -= 1
    return text[: ends[low - 1]] if low else ""
