"""Questions in, one line a question out, as they come: the work of `python -m ragjax.compress`.

Rows are compressed in batches and written in their order, each with its status.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from ragjax.compress.base import Budget, Compressed, Compressor
from ragjax.data.files import read_row
from ragjax.data.identity import Names, content_hash
from ragjax.data.records import DataError, Example
from ragjax.data.rows import line_rows
from ragjax.runtime import LOG, describe_error

Line = Mapping[str, Any]


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be read: the line it stands on, and why."""

    line: int
    reason: str


def read_stream(lines: Iterable[bytes], name: str, *, lenient: bool = False) -> Iterator[Example | BadRow]:
    """The examples of JSON Lines as they come, each with a distinct id, in any layout of `ragjax.data`.

    Raises:
      DataError: naming the source and the line, for the first row that cannot be read; `lenient` yields it instead.
    """
    names = Names()
    for row in line_rows(lines):
        try:
            _, examples = read_row(row)
        except DataError as error:
            if not lenient:
                raise DataError(f"{name}, {row.place}: {error}") from None
            yield BadRow(row.line, str(error))
        else:
            yield from (replace(example, id=names.of(example)) for example in examples)


def compress_stream(
    compressor: Compressor, rows: Iterable[Example | BadRow], budget: Budget | None, batch: int
) -> Iterator[list[Line]]:
    """The output lines of some rows, a batch at a time, in order; a batch that raises is tried row by row."""
    rows = iter(rows)
    while taken := list(islice(rows, batch)):
        examples = [row for row in taken if isinstance(row, Example)]
        lines = iter(_compress(compressor, examples, budget))
        yield [next(lines) if isinstance(row, Example) else bad_line(row) for row in taken]


def _compress(compressor: Compressor, examples: Sequence[Example], budget: Budget | None) -> list[Line]:
    try:
        found = compressor.compress(examples, budget)
    except ImportError:
        raise  # Not the rows' fault, and the same for all of them.
    except Exception as error:
        if len(examples) == 1:
            return [failed_line(examples[0], describe_error(error))]
        LOG.warning("a batch of %d rows raised %s; trying them one by one", len(examples), describe_error(error))
        return [line for example in examples for line in _compress(compressor, [example], budget)]
    return [as_line(example, one) for example, one in zip(examples, found, strict=True)]


def as_line(example: Example, found: Compressed) -> Line:
    """What is written of a compressed example; lengths in the generator's tokens."""
    return {
        **_named(example),
        "status": found.status,
        "text": found.text,
        "units": [{"text": u.text, "sources": u.sources, "spans": u.spans} for u in found.units],
        "requested": found.requested,
        "achieved": found.achieved,
        "source_tokens": found.source_tokens,
        "rate": found.achieved / found.source_tokens if found.source_tokens else None,
        "prompt_tokens": found.prompt_tokens,
        "dropped_documents": found.dropped_documents,
        "notes": list(found.notes),
    }


def failed_line(example: Example, reason: str) -> Line:
    """What is written of an example that could not be compressed."""
    return {**_named(example), "status": f"failed({reason})", "text": ""}


def bad_line(row: BadRow) -> Line:
    """What is written of a row that could not be read."""
    return {"id": None, "line": row.line, "status": f"failed(line {row.line}: {row.reason})", "text": ""}


def encode_line(line: Line) -> bytes:
    """A line as it is written."""
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def has_failed(line: Line) -> bool:
    """Whether a line holds no result."""
    return line["status"].startswith("failed")


def _named(example: Example) -> dict[str, Any]:
    return {"id": example.id, "content": content_hash(example, answers=False), "question": example.question}
