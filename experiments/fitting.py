"""The compressors that take their evidence from the documents, as a point of a study asks for them."""

from collections.abc import Callable, Mapping
from typing import Any

from experiments.experiment import Experiment
from experiments.study import Library

Models = Mapping[tuple[str, str], Any]


def make_fitting(point: Experiment, models: Models, parts: Library) -> Any:
    """The compressor of a point that ranks units and fits them to a budget."""
    named = {"tokenizer": models[point.reader, point.dtype].tokenizer}
    return _MAKE[point.method](point, models, parts.named, named)


def make_scorer(point: Experiment, models: Models, find: Callable[[str], Any]) -> Any:
    """What scores a point's passages or sentences."""
    if point.scorer == "bm25":
        return find("BM25")()
    model = models[point.encoder, point.dtype]
    if point.scorer == "cross_encoder":
        return find("CrossEncoder")(model=model)
    return find("BiEncoder")(model=model, similarity=point.similarity)


def _prefix(point: Experiment, models: Models, find: Callable, named: dict) -> Any:
    return find("Prefix")(**named)


def _random_sentences(point: Experiment, models: Models, find: Callable, named: dict) -> Any:
    return find("RandomSentences")(seed=point.seed, **named)


def _rerank(point: Experiment, models: Models, find: Callable, named: dict) -> Any:
    return find("Rerank")(scorer=make_scorer(point, models, find), last=point.last, **named)


def _extract(point: Experiment, models: Models, find: Callable, named: dict) -> Any:
    return find("Extract")(scorer=make_scorer(point, models, find), most=point.most, **named)


def _by_similarity(similarity: str) -> Callable[..., Any]:
    """Sentences by a bi-encoder: Sentence-BERT compares by the cosine, Contriever's kin by the dot product."""

    def make(point: Experiment, models: Models, find: Callable, named: dict) -> Any:
        scorer = find("BiEncoder")(model=models[point.encoder, point.dtype], similarity=similarity)
        return find("Extract")(scorer=scorer, most=point.most, **named)

    return make


def _ecr(point: Experiment, models: Models, find: Callable, named: dict) -> Any:
    return find("ECR")(scorer=make_scorer(point, models, find), similarity=point.near, **named)


def _llmlingua2(point: Experiment, models: Models, find: Callable, named: dict) -> Any:
    return find("LLMLingua2")(model=models[point.compressor, point.dtype], **named)


def _longllmlingua(point: Experiment, models: Models, find: Callable, named: dict) -> Any:
    return find("LongLLMLingua")(lm=models[point.compressor, point.dtype], dynamic_ratio=point.dynamic, **named)


_MAKE: Mapping[str, Callable[..., Any]] = {
    "prefix": _prefix,
    "random_sentences": _random_sentences,
    "rerank": _rerank,
    "extract": _extract,
    "sentence_bert": _by_similarity("cosine"),
    "recomp_extractive": _by_similarity("dot"),
    "ecr": _ecr,
    "llmlingua2": _llmlingua2,
    "longllmlingua": _longllmlingua,
}
