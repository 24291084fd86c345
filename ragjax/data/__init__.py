"""Adapters from public datasets and local files to one `Example`; knows no model."""

from ragjax.data.files import LoadedExamples, SkippedRow, load_examples
from ragjax.data.golds import parse_golds
from ragjax.data.identity import content_hash, example_ids
from ragjax.data.qa import parse_document, parse_row
from ragjax.data.records import DataError, Document, Example

__all__ = [
    "DataError",
    "Document",
    "Example",
    "LoadedExamples",
    "SkippedRow",
    "content_hash",
    "example_ids",
    "load_examples",
    "parse_document",
    "parse_golds",
    "parse_row",
]
