"""From the bytes of a file to its JSON objects, each with the line it stands on.

A file is JSON Lines, one JSON array, or one JSON object that holds its rows; its content tells which, never its name.
A byte order mark, CRLF line ends and blank lines are harmless. Everything else that is not one well-formed object
becomes a row with a problem: the caller decides whether that ends the run.

An object holds rows as a list under `data` (ALCE's output) or `Data` (TriviaQA), or as objects by id (QASPER), maybe
by split first (ASQA). The keys on the way to a row are its `path`.
"""

import codecs
import json
import re
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ragjax.data.records import DataError

_BINARY = {
    b"PAR1": "a Parquet file",
    b"\x1f\x8b": "compressed by gzip",
    b"PK\x03\x04": "a zip archive",
    codecs.BOM_UTF16_LE: "UTF-16 text",
    codecs.BOM_UTF16_BE: "UTF-16 text",
}
# Where one object holds its rows in a list (ALCE, TriviaQA).
_LISTS = ("data", "Data")
_SPACE = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True)
class Row:
    """The object that starts on `line` (from 1), or the problem that hides it: exactly one is set.

    In a table `unit` is "row" and `line` its number; `path` are the keys that lead to the object. `split` is what the
    object that holds it states for all its rows (TriviaQA's `Split`).
    """

    line: int
    value: dict[str, Any] | None = None
    problem: str | None = None
    unit: str = "line"
    path: tuple[str, ...] = ()
    split: str | None = None

    @property
    def place(self) -> str:
        """Where it stands, for a message."""
        return f"{self.unit} {self.line}"


def iter_rows(raw: bytes, name: str) -> Iterator[Row]:
    """The rows of a file's bytes, in order, read as they are asked for.

    Raises DataError, naming the file, where the bytes are not text at all (Parquet, gzip, zip, UTF-16).
    """
    for magic, kind in _BINARY.items():
        if raw.startswith(magic):
            raise DataError(f"{name}: expected JSON Lines or a JSON array in UTF-8, but the file is {kind}")
    raw = raw.removeprefix(codecs.BOM_UTF8)
    if raw.lstrip().startswith(b"["):
        return _array_rows(raw)
    holder = _holder(raw)
    if holder is None:
        return line_rows(raw.split(b"\n"))
    text, listed, split = holder
    return (replace(row, split=split) for row in _held_rows(text, listed))


def line_rows(lines: Iterable[bytes]) -> Iterator[Row]:
    """The rows of JSON Lines, one line at a time, as they come; blank lines are none."""
    for number, line in enumerate(lines, 1):
        line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        if line.strip():
            yield _line_row(line, number)


def _line_row(line: bytes, number: int) -> Row:
    try:
        value, end = _DECODER.raw_decode(text := line.decode("utf-8").strip())
    except (ValueError, RecursionError) as error:
        return Row(number, problem=_describe(error))
    if end < len(text):
        return Row(number, problem=f"more than one JSON value on the line (column {end + 1})")
    return _checked(number, value)


def _array_rows(raw: bytes) -> Iterator[Row]:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        yield Row(1 + raw.count(b"\n", 0, error.start), problem=_describe(error))
        return
    end = yield from _elements(text, text.index("["), 1)
    if end is not None and text[end:].strip():
        yield Row(1 + text.count("\n", 0, end), problem="text after the end of the array")


def _elements(text: str, start: int, line: int) -> Generator[Row, None, int | None]:
    """The elements of the array that opens at `start`, on `line`; the position after it, None where it is broken."""
    seen, position = start, _skip_space(text, start + 1)
    while text[position : position + 1] != "]":
        line, seen = line + text.count("\n", seen, position), position
        try:
            value, position = _DECODER.raw_decode(text, position)
            yield _checked(line, value)
            position = _next_element(text, position)
        except (ValueError, RecursionError) as error:
            yield Row(line, problem=f"{_describe(error)}; the rest of the array is not read")
            return None
    return position + 1


def _holder(raw: bytes) -> tuple[str, bool, str | None] | None:
    """The text of a file that is one object with rows in it, whether in a list, and the split that it states.

    None for any other file.
    """
    try:
        text = raw.decode("utf-8")
        value, end = _DECODER.raw_decode(text, _skip_space(text, 0))
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or "question" in value or text[end:].strip():
        return None
    listed = any(isinstance(value.get(key), list) for key in _LISTS)
    split = value.get("Split")
    return (text, listed, split if isinstance(split, str) else None) if listed or _is_group(value) else None


def _is_group(value: dict[str, Any]) -> bool:
    """Whether an object is one of objects by key, and so no row itself."""
    return bool(value) and all(isinstance(item, dict) for item in value.values())


def _held_rows(text: str, listed: bool, start: int = 0, line: int = 1, path: tuple[str, ...] = ()) -> Iterator[Row]:
    """The rows inside the object, known to be well formed, that opens after `start`: those of its list, or by key."""
    seen, position = start, _skip_space(text, text.index("{", start) + 1)
    while text[position] != "}":
        key, position = _DECODER.raw_decode(text, position)
        position = _skip_space(text, text.index(":", position) + 1)
        line, seen = line + text.count("\n", seen, position), position
        value, end = _DECODER.raw_decode(text, position)
        if listed and isinstance(value, list) and key in _LISTS:
            yield from _elements(text, position, line)
        elif not listed and _is_group(value):
            yield from _held_rows(text, False, position, line, (*path, key))
        elif not listed:
            yield replace(_checked(line, value), path=(*path, key))
        position = _skip_space(text, end)
        position = _skip_space(text, position + 1) if text[position] == "," else position


def _next_element(text: str, position: int) -> int:
    """The position of the next element, or of the closing bracket."""
    position = _skip_space(text, position)
    if text[position : position + 1] == ",":
        return _skip_space(text, position + 1)
    if text[position : position + 1] != "]":
        raise ValueError("not valid JSON: ',' or ']' expected after an element")
    return position


def _skip_space(text: str, position: int) -> int:
    return _SPACE.match(text, position).end()


def _checked(line: int, value: Any) -> Row:
    """The row of a decoded value: an object whose strings can be written again."""
    if not isinstance(value, dict):
        return Row(line, problem=f"a row is a JSON object, got {type(value).__name__}")
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return Row(line, problem="a lone surrogate (half of a character pair) stands in a string")
    return Row(line, value)


def _describe(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        place = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno}, column {error.colno}"
        return f"not valid JSON: {error.msg} ({place})"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8: {error.reason} (byte {error.start + 1})"
    return str(error)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"not valid JSON: the literal {name}")


def _unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of its pairs; a field given twice would lose one of its values."""
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the field {next(n for n in names if names.count(n) > 1)!r} is given twice in one object")
    return value


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique_fields)
