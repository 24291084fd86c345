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
    folder: epath.Path,
    points: Mapping[str, Experiment],
    data: Mapping[Source, LoadedExamples],
    rows: Sequence[Mapping[str, Any]],
) -> epath.Path:
    """Write `sources.jsonl`: every question that some row is about, once, whole or not at all.

    `points` are those of the study by label, `rows` those of its run.
    """
    examples = {source: {example.id: example for example in loaded.examples} for source, loaded in data.items()}
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["item"] not in found:
            point = points[row["point"]]
            found[row["item"]] = {"item": row["item"], **as_source(examples[source_of(point)][row["id"]], point)}
    path, partial = folder / FILE, folder / f".{FILE}.partial"
    partial.write_text("".join(json.dumps(source, ensure_ascii=False) + "\n" for source in found.values()))
    return partial.replace(path)


def as_source(example: Example, point: Experiment) -> dict[str, Any]:
    """A question, the documents that its points were given, their sentences, and what its authors say is right."""
    documents = example.documents[: point.top_k]
    sentences = split_sentences(documents)
    return {
        "id": example.id,
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
