"""The rows of a table: what each method decodes with, and which fields of an experiment it reads.

Some fields are read because of another's value: a writer, a selector or a filter brings settings of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

EXECUTION_FIELDS = ("limit", "batch", "out", "alone", "lenient")
ALWAYS = frozenset({"method", "data", "dataset", "split", "prompt_format", "prompts", *EXECUTION_FIELDS})

READING = frozenset({"reader", "reader_max_new", "reader_temperature", "shots", "normalizer", "top_k", "dtype"})
SHOWING = READING | {"target", "reader_order"}
WRITING = SHOWING | {"max_new", "budget", "temperature", "top_p", "repetition_penalty"}
DRAWING = WRITING | {"writer", "candidates", "sampler", "candidate_temperature", "candidate_penalty"}

SPS = frozenset({"subspace", "energy", "pooling", "layer", "first_token"})
LONGPPL = frozenset({"long_window", "long_stride"})

READ_WITH: Mapping[str, Mapping[str, frozenset[str]]] = {
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
    """A row of a table: its title, the models it decodes with, and the fields that it reads beside those of all.

    `documents`: it is nothing without retrieved documents. Points of one `family` may share their decoding.
    """

    title: str
    decodes_with: tuple[str, ...]
    reads: frozenset[str]
    documents: bool = True
    family: str | None = None


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
    "compact": Method("CompAct", ("compressor",), WRITING | {"compressor", "segment", "iterations"}),
    "xcompress": Method(
        "xCompress", ("compressor",), DRAWING | {"selector", "filter", "initial_joins"}, family="candidates"
    ),
    "candidate": Method("candidate", ("compressor",), DRAWING | SPS | LONGPPL | {"draw"}, family="candidates"),
}

# In what the points of a family may differ and still be decoded together. Models and ways to mix may be missing in
# one of two points, never differ.
FREE_FIELDS = {
    "alphas": frozenset({"method", "alpha"}),
    "candidates": SPS
    | LONGPPL
    | {"method", "candidates", "selector", "filter", "calibration", "share", "rho", "initial_joins", "draw"},
}
SHARED_FIELDS = {"alphas": ("compressor", "target", "mix", "admit_added"), "candidates": ()}


def reads_of(values: Mapping[str, Any]) -> frozenset[str]:
    """The fields that an experiment with these values reads."""
    reads = METHODS[values["method"]].reads
    for name, by_value in READ_WITH.items():
        if name in reads:
            reads |= by_value[values[name]]
    return reads


def models_of(values: Mapping[str, Any]) -> tuple[str, ...]:
    """The model fields that an experiment with these values decodes evidence with."""
    method = METHODS[values["method"]]
    mixes = "writer" in method.reads and values["writer"] == "favicomp"
    return ("compressor", "target") if mixes else method.decodes_with
