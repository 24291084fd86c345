"""From whatever a source calls an answer to a tuple of gold strings.

The forms, and what each means:

=================================  ====================================================================
`None`, `[]`, `""`, `[""]`         no gold
`"text"`, `1995`                   one gold
`["a", "b"]`, tuple, numpy array   each is a gold
`[["a", "b"], ["c"]]`              each inner list holds the spellings of one answer; every spelling is a gold
`{"value": .., "aliases": [..]}`   the primary answer first, then its aliases (TriviaQA); either may be absent
`'["a", "b"]'`                     a text from `[` to `]` that is a JSON or Python list of strings: that list
=================================  ====================================================================

Any other text stays text, `"1995"`, `"None"` and `"['a'"` included: nothing is ever evaluated. Any other shape is
refused.
"""

import ast
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from ragjax.data.records import DataError

# What hidden test splits hold in the place of an answer (TriviaQA).
PLACEHOLDER = "<unk>"
HIDDEN = f"the answer is the placeholder {PLACEHOLDER!r} of a hidden test split: use the validation split"

# TriviaQA's own fields beside value and aliases: derived from them, so they add no gold.
_DERIVED = {
    "normalized_value",
    "normalized_aliases",
    "type",
    "matched_wiki_entity_name",
    "normalized_matched_wiki_entity_name",
}


def parse_golds(value: Any) -> tuple[str, ...]:
    """The golds of one answer field, in order, each once, blank ones left out; empty where there is none.

    Raises DataError for a shape outside the table above and for placeholder golds of a hidden test split.
    """
    if isinstance(value, str):
        spelled = _literal_list(value)
        value = value if spelled is None else spelled
    golds = tuple(dict.fromkeys(gold for gold in _flatten(value, depth=2) if gold.strip()))
    if PLACEHOLDER in golds:
        raise DataError(HIDDEN)
    return golds


def is_placeholder(value: Any) -> bool:
    """Whether an answer field holds what hidden test splits have in its place.

    That is the placeholder, alone or in a list, or TriviaQA's object with neither a value nor an alias.
    """
    if isinstance(value, Mapping):
        parts = {str(name).lower(): part for name, part in value.items()}
        stated = [parts.get("value"), *(parts.get("aliases") or ())]
        return "value" in parts and all(part in (None, "", PLACEHOLDER) for part in stated)
    return value == PLACEHOLDER or (isinstance(value, list | tuple) and list(value) == [PLACEHOLDER])


def _flatten(value: Any, depth: int) -> list[str]:
    """The strings inside `value`, lists nested at most `depth` deep."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    if isinstance(value, int) and not isinstance(value, bool):
        return [str(value)]
    if isinstance(value, dict):
        return _from_dict(value, depth)
    if isinstance(value, list | tuple) and depth:
        return [gold for item in value for gold in _flatten(item, depth - 1)]
    raise DataError(
        f"an answer is a text, a list of texts or {{value, aliases}}, got {type(value).__name__}: {value!r:.80}"
    )


def _from_dict(value: dict, depth: int) -> list[str]:
    unknown = sorted(set(value) - {"value", "aliases"} - _DERIVED)
    if unknown or not {"value", "aliases"} & set(value):
        raise DataError(f"an answer's object has the fields value and aliases, got {sorted(value)}")
    return _flatten(value.get("value"), 0) + _flatten(value.get("aliases"), max(depth, 1))


def _literal_list(text: str) -> list[str] | None:
    """The list of strings that `text` spells in JSON, else in Python; None where it spells none."""
    text = text.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return None
    for parse in (json.loads, ast.literal_eval):
        try:
            value = parse(text)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return value
    return None
