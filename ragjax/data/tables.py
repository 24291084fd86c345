"""From the bytes of a table to its rows: Parquet, and DPR's tab-separated questions.

Parquet is read as a `datasets.Dataset`, without the feature metadata that its versions write differently.
"""

import csv
import io
from collections.abc import Iterator
from typing import Any

from ragjax.data.records import DataError
from ragjax.data.rows import Row

PARQUET = b"PAR1"


def parquet_rows(raw: bytes, name: str) -> Iterator[Row]:
    """The rows of a Parquet file, numbered from 1. Raises DataError, naming the file, where it is damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from datasets import Dataset
    from datasets.table import InMemoryTable

    try:
        table = pq.read_table(io.BytesIO(raw)).replace_schema_metadata(None)
        for number, value in enumerate(Dataset(InMemoryTable(table)), start=1):
            yield Row(number, value, unit="row")
    except pa.ArrowException as error:
        raise DataError(
            f"{name}: expected JSON Lines, a JSON array or a whole Parquet file, but it is a damaged Parquet file "
            f"({str(error).splitlines()[0]})"
        ) from None


def is_tab_separated(raw: bytes) -> bool:
    """Whether the first line of a text file is one of a tab-separated table, and not JSON."""
    first = raw.lstrip().split(b"\n", 1)[0]
    return b"\t" in first and first[:1] not in (b"{", b"[")


def tab_rows(raw: bytes, name: str) -> Iterator[Row]:
    """DPR's questions: a question, a tab, a Python list of its answers. Quoting is that of CSV.

    Raises DataError for the passage corpus, which has the same form and no questions, and for bytes that are not UTF-8.
    """
    try:
        table = csv.reader(io.StringIO(raw.decode("utf-8"), newline=""), delimiter="\t")
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: not UTF-8: {error.reason} (byte {error.start + 1})") from None
    for cells in _cells(table, name):
        if table.line_num == 1 and [cell.strip() for cell in cells] == ["id", "text", "title"]:
            raise DataError(f"{name}: a corpus of passages (id, text, title) has no questions")
        if any("\n" in cell for cell in cells):
            yield Row(table.line_num, problem="a cell that goes on over several lines: a quote was not closed")
        elif len(cells) == 2:
            yield Row(table.line_num, {"question": cells[0], "answers": cells[1]})
        elif cells:
            yield Row(table.line_num, problem=f"a question, a tab and a list of answers, got {len(cells)} cells")


def _cells(table: Any, name: str) -> Iterator[list[str]]:
    """The rows of a CSV reader; what it cannot read is a DataError with file and line."""
    try:
        yield from table
    except csv.Error as error:
        raise DataError(f"{name}, line {table.line_num}: {error}") from None
