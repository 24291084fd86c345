"""Lengths in the generator's tokens, and cutting a text to a budget."""

import re
from collections.abc import Sequence
from typing import Any

from ragjax.data.records import Document
from ragjax.decode.prompt import count_tokens

# Kana and ideographs, and their marks: each ends a word, as the character before it does.
_CJK = "\u3001-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
_WORD_END = re.compile(rf"\S(?=\s|$|[{_CJK}])|[{_CJK}]")


def source_length(tokenizer: Any, documents: Sequence[Document]) -> int:
    """Tokens of the documents' texts joined by newlines: no titles, no numbers. What a budget is a fraction of."""
    return count_tokens(tokenizer, "\n".join(document.text for document in documents))


def cut_to_budget(tokenizer: Any, text: str, budget: int, *, inside_words: bool = False) -> tuple[str, str]:
    """The longest prefix of whole words of at most `budget` tokens, and its status.

    "ok" where the text fits as it is, "length" where it was cut, "too_small" where not even one word fits. Of a first
    word that does not fit, `inside_words` gives as many characters as do.
    """
    if count_tokens(tokenizer, text) <= budget:
        return text, "ok"
    ends = [match.end() for match in _WORD_END.finditer(text)]
    kept = fitting_prefix(tokenizer, text, ends, budget)
    if not kept and inside_words and ends:
        kept = fitting_prefix(tokenizer, text, range(1, ends[0]), budget)
    return (kept, "length") if kept.strip() else ("", "too_small")


def fitting_prefix(tokenizer: Any, text: str, ends: Sequence[int], budget: int) -> str:
    """The longest prefix that fits, of those at `ends`; empty where none does."""
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high + 1) // 2
        if count_tokens(tokenizer, text[: ends[middle - 1]]) <= budget:
            low = middle
        else:
            high = middle - 1
    return text[: ends[low - 1]] if low else ""
