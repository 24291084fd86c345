"""The physical forms of "a list of records" in public files, read as one.

A hub's Parquet file holds a dict of lists, an original JSON file a list of dicts or of pairs, and some mirrors the
JSON text of either. Nothing is evaluated as code.
"""

import ast
import json
from collections.abc import Mapping
from typing import Any

from ragjax.data.records import DataError


def decode_column(value: Any) -> Any:
    """The list or object that a text spells in JSON, else in Python; anything else as it is.

    Raises DataError where a text opens a list or an object and spells neither.
    """
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    raise DataError(f"a list or an object, as JSON text, is broken: {value!r:.60}")


def as_records(value: Any, *names: str) -> list[dict[str, Any]]:
    """Records from a list of dicts, a dict of lists or a list of tuples in the order of `names`; [] from None.

    A null column of a dict of lists is an absent one. Raises DataError for lists of unequal length, for tuples of
    another length, and for any other shape.
    """
    value = decode_column(value)
    if value is None:
        return []
    if isinstance(value, Mapping):
        return _from_columns(value)
    if not isinstance(value, list | tuple):
        raise DataError(f"a list of {' and '.join(names) or 'records'}, got {type(value).__name__}")
    return [_record(item, names) for item in value]


def _from_columns(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    lists = {name: column for name, column in columns.items() if column is not None}
    if wrong := [name for name, column in lists.items() if not isinstance(column, list | tuple)]:
        raise DataError(f"an object of lists, but its {wrong[0]!r} is no list")
    lengths = {name: len(column) for name, column in lists.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"an object of lists of unequal lengths: {lengths}")
    return [dict(zip(lists, items, strict=True)) for items in zip(*lists.values(), strict=True)]


def _record(item: Any, names: tuple[str, ...]) -> dict[str, Any]:
    if isinstance(item, Mapping):
        return dict(item)
    if not isinstance(item, list | tuple) or len(item) != len(names):
        raise DataError(f"a record of {', '.join(names) or 'named fields'}, got {item!r:.60}")
    return dict(zip(names, item, strict=True))


def other_columns(row: Mapping[str, Any], *used: str | None) -> dict[str, Any]:
    """The columns of a row beside those used, nulls left out (an original file has no such key), JSON texts decoded."""
    return {name: spelled(value) for name, value in row.items() if name not in used and value is not None}


def spelled(value: Any) -> Any:
    """What a text spells, or the text: a column that no layout knows may hold one that only starts like a list."""
    try:
        return decode_column(value)
    except DataError:
        return value


def text_of(value: Any, what: str) -> str:
    """A text; "" from None. Raises DataError for another type."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DataError(f"{what} is a text or null, got {type(value).__name__}")
    return value


def id_of(value: Any, what: str) -> str | None:
    """An id as text; None stays None. Raises DataError for what is neither a text nor a whole number."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise DataError(f"{what} is a text or a whole number, got {value!r:.80}")
    return str(value)
