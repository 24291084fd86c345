"""One point of a study: a frozen record of everything that defines its rows, and of how they are made.

A method reads some of the fields. `canonical()` sets the others to None, so that points that ask for the same work
are equal. Values typed by a user are parsed by the declared type of their field.
"""

import difflib
import math
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from experiments.methods import ALWAYS, METHODS, READ_WITH, models_of, reads_of, title_of
from ragjax.compress.base import Budget
from ragjax.compress.filters import RHOS
from ragjax.compress.geometry import PRESETS
from ragjax.compress.xcompress import SAMPLERS
from ragjax.data.catalog import DATASETS, find_split
from ragjax.data.sources import HUB
from ragjax.decode.ensemble import MIXES
from ragjax.decode.prompt import FORMATS
from ragjax.decode.states import FIRST_TOKEN, LAYER, POOLINGS
from ragjax.evals.demonstrations import NUMBER
from ragjax.evals.normalize import NORMALIZERS
from ragjax.evals.reader import ORDERS

MODEL_FIELDS = ("compressor", "target", "reader", "encoder", "judge")
LEXICAL = "lexical"
"""The judge that is no model."""
SOURCE_FIELDS = ("data", "dataset", "split", "golds", "lenient")

CHOICES = {
    "method": tuple(METHODS),
    "mix": MIXES,
    "dtype": ("auto", "float32", "bfloat16"),
    "prompt_format": FORMATS,
    "reader_order": ORDERS,
    "normalizer": (*NORMALIZERS, "official"),
    "dataset": tuple(DATASETS),
    "preset": ("paper",),
    **{name: tuple(values) for name, values in READ_WITH.items()},
    "sampler": SAMPLERS,
    "subspace": PRESETS,
    "pooling": POOLINGS,
    "first_token": FIRST_TOKEN,
    "rho": RHOS,
    "similarity": ("cosine", "dot"),
    "last": ("cut", "whole"),
    "citer": ("model", "posthoc"),
    "premises": ("truncate", "windows"),
    "counting": ("strict", "alce"),
}
MINIMA = {"max_new": 1, "reader_max_new": 1, "top_k": 1, "limit": 1, "batch": 1, "temperature": 0, "alpha": 0}
MINIMA |= {"reader_temperature": 0, "seed": 0, "shots": 0, "candidates": 1, "candidate_temperature": 0, "draw": 0}
MINIMA |= {"most": 1, "dynamic": 0, "near": 0, "tau": 0}
MINIMA |= {"segment": 1, "iterations": 1, "calibration": 2, "long_window": 1, "long_stride": 1}
CANDIDATE_KNOBS = ("candidate_temperature", "candidate_penalty")
SHARES = {"energy": True, "share": False, "top_p": True}
"""Fields that are shares, above 0, and whether they may be 1."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One point. Lengths are in tokens; a model is a name, a folder or a .gguf file.

    `alpha` is the target's weight; `admit_added` admits a pair whose tokenizers differ in added tokens, which are
    then never written; `budget` the evidence's length, an int in tokens of the reader or a float as a fraction of
    the documents. `target` also measures the perplexity and the length of what every method shows. `data` is a file
    in any layout of `ragjax.data`, the name of a shipped one, or "hub" for `dataset`'s own rows; `split` is
    `config/split` or a part of it (default: what is usually evaluated). `golds` says where the gold documents of
    retrieved questions come from: "hub" or a file of the same dataset. `shots` counts the reader's demonstrations,
    which are the dataset's. `preset` "paper" decodes as FaviComp's appendix A.1 says: the compressor at its own
    default temperature and top-p, the reader at 1.0. `prompts` is a TOML file of prompt texts (default: ours).
    `normalizer` "official" is that of each question's own dataset. `dtype` "auto" is float32 on a CPU, bfloat16
    elsewhere. `limit` takes the data's first rows, `top_k` each row's first documents. `alone` decodes a point
    apart from those it could share its work with, for a latency of its own. `lenient` leaves out rows that cannot be
    read, and lists them, where otherwise the first is an error. `limit`, `batch`, `out`, `alone` and `lenient` define
    no row.

    The `task` "answer" asks for an answer in a few words, "cite" for a paragraph that cites its evidence: the reader
    cites ("model"), or each sentence is given its likest unit ("posthoc") by the `citer`. The `judge` says whether
    evidence entails a statement, from the probability `tau` on: "lexical", or a model. `premises` says what becomes of
    evidence too long for it, `counting` how citations that lead nowhere count.

    What scores passages and sentences is `scorer`: "bm25", or the model `encoder` as a "bi_encoder" (compared by
    `similarity`) or a "cross_encoder". `last` says what becomes of the last passage that a budget has room for, `most`
    how many sentences are taken at most, `near` from which similarity on ECR takes two sentences for one, `dynamic` how
    far LongLLMLingua's documents differ in their rates.

    CompAct reads `segment` documents an iteration, at most `iterations` times. xCompress draws `candidates` summaries
    by its `writer` (`sampler`, `candidate_temperature`, `candidate_penalty`) and shows the one its `selector` takes;
    `subspace`, `energy`, `pooling`, `layer` and `first_token` are those of SPS, `long_window` and `long_stride` those
    of LongPPL. Its `filter` "calibrated" is fixed on the data's last `calibration` questions, which `limit` leaves
    out: their top `share` by `rho` would keep the initial summary. `initial_joins` makes that one a candidate too. The
    method "candidate" shows the `draw`-th of them, whatever its scores.
    """

    method: str = "favicomp"
    compressor: str | None = None
    target: str | None = None
    reader: str = "smollm2-135m-instruct"
    alpha: float | None = 0.5
    mix: str | None = "geometric"
    admit_added: bool | None = False
    max_new: int | None = 128
    budget: int | float | None = None
    temperature: float | None = 0.0
    top_p: float | None = 1.0
    repetition_penalty: float | None = 1.0
    reader_max_new: int = 32
    reader_temperature: float = 0.0
    reader_order: str | None = "question_first"
    prompt_format: str = "chat"
    prompts: str | None = None
    normalizer: str = "squad"
    preset: str | None = None
    shots: int | None = 0
    data: str = "questions"
    dataset: str | None = None
    split: str | None = None
    golds: str | None = None
    top_k: int = 5
    task: str | None = "answer"
    citer: str | None = "model"
    judge: str | None = LEXICAL
    tau: float | None = 0.5
    premises: str | None = "truncate"
    counting: str | None = "strict"
    scorer: str | None = "bm25"
    encoder: str | None = "all-minilm-l6-v2"
    similarity: str | None = "cosine"
    last: str | None = "cut"
    most: int | None = None
    near: float | None = 0.8
    dynamic: float | None = 0.3
    segment: int | None = 5
    iterations: int | None = 6
    writer: str | None = "zero_shot"
    candidates: int | None = 5
    candidate_temperature: float | None = 1.0
    candidate_penalty: float | None = 1.2
    sampler: str | None = "samples"
    selector: str | None = "sps"
    subspace: str | None = "paper"
    energy: float | None = 0.95
    pooling: str | None = "max"
    layer: int | None = LAYER
    first_token: str | None = "keep"
    long_window: int | None = 32
    long_stride: int | None = 16
    filter: str | None = "none"
    calibration: int | None = 16
    share: float | None = 0.3
    rho: str | None = "pooled"
    initial_joins: bool | None = False
    draw: int | None = 0
    seed: int | None = 0
    dtype: str = "auto"
    limit: int | None = None
    batch: int = 8
    out: str | None = None
    alone: bool = False
    lenient: bool = False

    def __post_init__(self) -> None:
        """Refuse values out of range: ValueError, naming the field."""
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if value is not None and value not in choices:
                raise ValueError(f"{name} is {value!r}; it is one of {', '.join(choices)}{nearest(value, choices)}")
        for name, least in MINIMA.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise ValueError(f"{name} is {value}; it is at least {least}")
        for name in ("alpha", "near", "dynamic", "tau"):
            if getattr(self, name) is not None and getattr(self, name) > 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it is at most 1")
        for name, closed in SHARES.items():
            value = getattr(self, name)
            if value is not None and not (0 < value < 1 or (closed and value == 1)):
                raise ValueError(f"{name} is {value}; it lies in (0, 1{']' if closed else ')'}")
        for name in ("repetition_penalty", "candidate_penalty"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it is above 0")
        if None not in (self.draw, self.candidates) and self.draw >= self.candidates:
            raise ValueError(f"draw is {self.draw}; the {self.candidates} candidates are counted from 0")
        if self.shots is not None and self.shots > NUMBER:
            raise ValueError(f"shots is {self.shots}; there are {NUMBER} demonstrations a dataset")
        for name in ("temperature", "reader_temperature", "repetition_penalty", *CANDIDATE_KNOBS):
            if not math.isfinite(getattr(self, name) or 0):
                raise ValueError(f"{name} is {getattr(self, name)}; it is finite")
        if self.seed is not None and self.seed >= 2**32:
            raise ValueError(f"seed is {self.seed}; it is below 2**32")
        Budget.of(self.budget)

    def _check_source(self) -> None:
        wants = {"data": self.data == HUB, "golds": self.golds == HUB, "split": self.split, "shots": self.shots}
        for name, wanted in wants.items():
            if wanted and self.dataset is None:
                raise ValueError(f"{name} {getattr(self, name)!r} needs a dataset: one of {', '.join(DATASETS)}")
        if self.dataset is not None:
            find_split(self.dataset, self.split)

    @property
    def title(self) -> str:
        """The method's name in a table."""
        return title_of(vars(self))

    def canonical(self) -> "Experiment":
        """The same work, with every field that it does not read at None.

        FaviComp at alpha 0 is the zero-shot summary, at alpha 1 the generated context (section 3.2 of the paper).
        Without a target the reader measures perplexity and length. What the preset says is filled in, but for the
        compressor's own values, which its files hold (`presets.settle`).

        Raises:
          ValueError: a model that the method needs is missing, or the dataset that another field needs.
        """
        self._check_source()
        if self.preset is not None:
            return self._with_preset()
        if self.method == "favicomp" and self.alpha in (0, 1):
            return replace(self, method="generated" if self.alpha else "zero_shot").canonical()
        if self.writer == "favicomp" and self.alpha == 0 and "writer" in METHODS[self.method].reads:
            return replace(self, writer="zero_shot").canonical()
        self._check_models()
        kept = reads_of(vars(self)) | ALWAYS | ({"seed"} if self.samples else set())
        kept -= set() if self.temperature or self._draws else {"top_p"}
        kept -= {"candidate_temperature"} if self.sampler == "beams" else set()
        cleared = {field.name: None for field in fields(self) if field.name not in kept}
        return replace(self, **{"target": self.target or self.reader, "seed": self.seed or 0, **cleared})

    def _check_models(self) -> None:
        for name in models_of(vars(self)):
            if getattr(self, name) is None:
                raise ValueError(f"method {self.method!r} needs {name}, a model's name or folder")

    def _with_preset(self) -> "Experiment":
        """Reader and seed by the preset; the preset stays where a compressor's own values are still to be read."""
        point = replace(self, preset=None, temperature=1.0, top_p=1.0, reader_temperature=1.0).canonical()
        if not METHODS[point.method].decodes:
            return point
        if point.method == "recomp_abstractive":  # Its model states no sampling: it is greedy, as released.
            return replace(point, temperature=0.0, top_p=None)
        return replace(point, preset=self.preset, temperature=None, top_p=None)

    @property
    def calibrates(self) -> int:
        """How many questions, the data's last ones, a filter is calibrated on; 0 without one."""
        return self.calibration if self.method == "xcompress" and self.filter == "calibrated" else 0

    @property
    def samples(self) -> bool:
        """Whether anything is drawn at random."""
        decodes = METHODS[self.method].decodes
        return bool(self.reader_temperature or (self.temperature and decodes) or self._draws)

    @property
    def _draws(self) -> bool:
        """Whether candidates are drawn at random."""
        chooses = "sampler" in METHODS[self.method].reads
        return bool(chooses and self.sampler == "samples" and self.candidate_temperature)


_TRUTHS = {"true": True, "false": False}
FIELD_TYPES = typing.get_type_hints(Experiment)


def nearest(name: object, known: Iterable[str]) -> str:
    """A hint at the known name that looks most like this one, or nothing."""
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def check_field(name: str) -> None:
    """Raise ValueError, with the nearest name, if an experiment has no such field."""
    if name not in FIELD_TYPES:
        hint = nearest(name, FIELD_TYPES) or f"; the fields are {', '.join(FIELD_TYPES)}"
        raise ValueError(f"an experiment has no field {name!r}{hint}")


def parse_value(name: str, text: str) -> Any:
    """A typed-in value as the declared type of its field; "none" is None where the field allows it.

    Raises:
      ValueError: there is no such field, or the text is not of its type.
    """
    check_field(name)
    declared = FIELD_TYPES[name]
    kinds = typing.get_args(declared) if isinstance(declared, types.UnionType) else (declared,)
    if types.NoneType in kinds and text.lower() == "none":
        return None
    kinds = [kind for kind in kinds if kind is not types.NoneType]
    for kind in kinds:
        try:
            return _TRUTHS[text.lower()] if kind is bool else kind(text)
        except (ValueError, KeyError):
            continue
    raise ValueError(f"{name} is {text!r}; it is of type {' or '.join(kind.__name__ for kind in kinds)}")


def parse_assignment(text: str) -> tuple[str, Any]:
    """A field and its value from "key=value". Raises ValueError as `parse_value` does."""
    name, separator, value = text.partition("=")
    if not separator:
        raise ValueError(f"--set takes key=value, got {text!r}")
    return name.strip(), parse_value(name.strip(), value.strip())
