"""The compressors that take their evidence from the documents, as a point of a study asks for them."""

from collections.abc import Mapping
from typing import Any

from experiments.experiment import Experiment
from experiments.study import Library

Models = Mapping[tuple[str, str], Any]

_SETTINGS: Mapping[str, Mapping[str, str]] = {
    "random_sentences": {"seed": "seed"},
    "rerank": {"last": "last"},
    "extract": {"most": "most"},
    "sentence_bert": {"most": "most"},
    "recomp_extractive": {"most": "most"},
    "ecr": {"similarity": "near"},
    "longllmlingua": {"dynamic_ratio": "dynamic"},
}
"""For each method, the settings of its compressor and the fields that hold them."""

_BY_SIMILARITY = {"sentence_bert": "cosine", "recomp_extractive": "dot"}
"""What is extraction by a bi-encoder: Sentence-BERT compares by the cosine, Contriever's kin by the dot product."""


def make_fitting(point: Experiment, models: Models, parts: Library) -> Any:
    """The compressor of a point that ranks units and fits them to a budget."""
    named = {"model": models[point.compressor, point.dtype]} if point.compressor else {}
    settings = {name: getattr(point, field) for name, field in _SETTINGS.get(point.method, {}).items()}
    method = "extract" if point.method in _BY_SIMILARITY else point.method
    tokenizer = models[point.reader, point.dtype].tokenizer
    return parts.fitted(method, tokenizer, named, make_scorer(point, models, parts), **settings)


def make_scorer(point: Experiment, models: Models, parts: Library) -> Any | None:
    """What scores a point's passages or sentences, None where nothing does."""
    encoder = models[point.encoder, point.dtype] if point.encoder else None
    if point.method in _BY_SIMILARITY:
        return parts.scorer("bi_encoder", encoder, similarity=_BY_SIMILARITY[point.method])
    if point.scorer is None:
        return None
    compared = {"similarity": point.similarity} if point.similarity else {}
    return parts.scorer(point.scorer, encoder, **compared)
