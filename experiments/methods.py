"""The rows of a table: what each method decodes with, and which fields of an experiment it reads.

Some fields are read because of another's value: a writer, a selector or a filter brings settings of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

EXECUTION_FIELDS = ("limit", "batch", "out", "alone", "lenient")
ALWAYS = frozenset({"method", "data", "dataset", "split", "prompt_format", "prompts", *EXECUTION_FIELDS})

READING = frozenset({"task", "reader", "reader_max_new", "reader_temperature", "shots", "normalizer", "top_k", "dtype"})
SHOWING = READING | {"target", "reader_order"}
WRITING = SHOWING | {"max_new", "budget", "temperature", "top_p", "repetition_penalty"}
FITTING = SHOWING | {"budget"}
DRAWING = WRITING | {"writer", "candidates", "sampler", "candidate_temperature", "candidate_penalty"}

SPS = frozenset({"subspace", "energy", "pooling", "layer", "first_token"})
LONGPPL = frozenset({"long_window", "long_stride"})

READ_WITH: Mapping[str, Mapping[str, frozenset[str]]] = {
    "task": {"answer": frozenset(), "cite": frozenset({"citer", "judge", "tau", "premises", "counting"})},
    "scorer": {
        "bm25": frozenset(),
        "bi_encoder": frozenset({"encoder", "similarity"}),
        "cross_encoder": frozenset({"encoder"}),
    },
    "writer": {
        "zero_shot": frozenset({"compressor"}),
        "favicomp": frozenset({"compressor", "alpha", "mix", "admit_added"}),
        "compact": frozenset({"compressor", "segment", "iterations"}),
    },
    "selector": {
        "first": frozenset(),
        "random": frozenset({"seed"}),
        "ppl": frozenset(),
        "longppl": LONGPPL,
        "sps": SPS,
        "mixture": SPS,
    },
    "filter": {"none": frozenset(), "calibrated": frozenset({"calibration", "share", "rho", "layer", "first_token"})},
}
"""For some fields and each of their values, the fields that are read with it."""


@dataclass(frozen=True)
class Method:
    """A row of a table: its title, the models that make its evidence, and the fields that it reads beside those of all.

    `documents`: it is nothing without retrieved documents. Points of one `family` may share their work.
    """

    title: str
    models: tuple[str, ...]
    reads: frozenset[str]
    documents: bool = True
    family: str | None = None

    @property
    def decodes(self) -> bool:
        """Whether a model writes its evidence."""
        return "max_new" in self.reads

    @property
    def declares(self) -> bool:
        """Whether its evidence says which sentences it comes from: what copies them whole does."""
        return not self.decodes and "compressor" not in self.reads


METHODS = {
    "no_context": Method("no context", (), READING, documents=False),
    "gold": Method("gold documents", (), SHOWING | {"golds"}),
    "raw": Method("raw documents", (), SHOWING),
    "zero_shot": Method("zero-shot summary", ("compressor",), WRITING | {"compressor"}, family="alphas"),
    "generated": Method("generated context", ("target",), WRITING, documents=False, family="alphas"),
    "concat": Method("concatenation", ("compressor", "target"), WRITING | {"compressor"}, family="alphas"),
    "favicomp": Method(
        "FaviComp",
        ("compressor", "target"),
        WRITING | {"compressor", "alpha", "mix", "admit_added"},
        family="alphas",
    ),
    "prefix": Method("prefix truncation", (), FITTING, family="budgets"),
    "random_sentences": Method("random sentences", (), FITTING | {"seed"}, family="budgets"),
    "rerank": Method("reranked passages", (), FITTING | {"scorer", "last"}, family="budgets"),
    "extract": Method("extracted sentences", (), FITTING | {"scorer", "most"}, family="budgets"),
    "sentence_bert": Method("Sentence-BERT", ("encoder",), FITTING | {"encoder", "most"}, family="budgets"),
    "recomp_extractive": Method("RECOMP-extractive", ("encoder",), FITTING | {"encoder", "most"}, family="budgets"),
    "ecr": Method("ECR", (), FITTING | {"scorer", "near"}, family="budgets"),
    "llmlingua2": Method("LLMLingua-2", ("compressor",), FITTING | {"compressor"}, family="budgets"),
    "longllmlingua": Method("LongLLMLingua", ("compressor",), FITTING | {"compressor", "dynamic"}, family="budgets"),
    "recomp_abstractive": Method("RECOMP-abstractive", ("compressor",), WRITING | {"compressor"}, family="budgets"),
    "compact": Method("CompAct", ("compressor",), WRITING | {"compressor", "segment", "iterations"}, family="budgets"),
    "xcompress": Method(
        "xCompress", ("compressor",), DRAWING | {"selector", "filter", "initial_joins"}, family="candidates"
    ),
    "candidate": Method("candidate", ("compressor",), DRAWING | SPS | LONGPPL | {"draw"}, family="candidates"),
}

# In what the points of a family may differ and still be decoded together. Models and ways to mix may be missing in
# one of two points, never differ.
FREE_FIELDS = {
    "alphas": frozenset({"method", "alpha", "budget"}),
    "budgets": frozenset({"budget"}),
    "candidates": SPS
    | LONGPPL
    | {"method", "candidates", "selector", "filter", "calibration", "share", "rho", "initial_joins", "draw"},
}
SHARED_FIELDS = {"alphas": ("compressor", "target", "mix", "admit_added"), "budgets": (), "candidates": ()}

SCORERS = {"bm25": "BM25", "bi_encoder": "bi-encoder", "cross_encoder": "cross-encoder"}
"""What scores passages and sentences, by the words of a table."""


def reads_of(values: Mapping[str, Any]) -> frozenset[str]:
    """The fields that an experiment with these values reads."""
    reads = METHODS[values["method"]].reads
    for name, by_value in READ_WITH.items():
        if name in reads:
            reads |= by_value[values[name]]
    return reads


def title_of(values: Mapping[str, Any]) -> str:
    """A method's name in a table, with what scores or chooses where it has that."""
    method = METHODS[values["method"]]
    by = SCORERS.get(values.get("scorer") or "") if "scorer" in method.reads else None
    return f"{method.title} ({by})" if by else method.title


def models_of(values: Mapping[str, Any]) -> tuple[str, ...]:
    """The model fields that an experiment with these values makes evidence with."""
    method = METHODS[values["method"]]
    if "writer" in method.reads and values["writer"] == "favicomp":
        return ("compressor", "target")
    scores = "scorer" in method.reads and values["scorer"] != "bm25"
    return (*method.models, *(("encoder",) if scores else ()))


def kind_of(values: Mapping[str, Any], field: str) -> str:
    """What kind of model a model field names: "causal", "encoder", "encoder-decoder" or "any"."""
    if field in ("encoder", "judge"):
        return "encoder" if field == "encoder" else "any"
    compressors = {"recomp_abstractive": "encoder-decoder", "llmlingua2": "encoder"}
    return compressors.get(values["method"], "causal") if field == "compressor" else "causal"
