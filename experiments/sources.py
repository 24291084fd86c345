"""What the answers of a study were compressed from: documents and sentences of each question, once for all points."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from experiments.experiment import Experiment
from experiments.study import Source, source_of
from ragjax.data.files import LoadedExamples
from ragjax.data.records import Example
from ragjax.retrieve.sentences import split_sentences

FILE = "sources.jsonl"


def write_sources(
    folder: epath.Path, points: Sequence[Experiment], data: Mapping[Source, LoadedExamples]
) -> epath.Path:
    """Write `sources.jsonl`: the questions of all points, each once, whole or not at all."""
    rows: dict[tuple, dict[str, Any]] = {}
    for point in points:
        for example in data[source_of(point)].examples[: point.limit]:
            rows.setdefault((point.data, point.dataset, example.id), as_source(example, point))
    path, partial = folder / FILE, folder / f".{FILE}.partial"
    partial.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows.values()))
    return partial.replace(path)


def as_source(example: Example, point: Experiment) -> dict[str, Any]:
    """A question, the documents that its points were given, their sentences, and what its authors say is right."""
    documents = example.documents[: point.top_k]
    sentences = split_sentences(documents)
    return {
        "item": example.id,
        "question": example.question,
        "dataset": point.dataset or example.meta.get("dataset"),
        "data": point.data,
        "documents": [{"title": document.title, "text": document.text} for document in documents],
        "sentences": [
            {"sid": one.sid, "document": one.document, "start": one.start, "end": one.end} for one in sentences
        ],
        "golds": list(example.answers),
        "evidence": list(example.gold_sentences),
    }
