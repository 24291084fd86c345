"""The contract of every compressor: examples and a budget in, units with a status out.

A compressor is built with the tokenizer of the generator that will read its output, because every length in this
room is counted in the generator's tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from ragjax.data import Document, Example, parse_document
from ragjax.data.identity import with_ids

STATUSES = ("ok", "short_input", "too_small", "empty", "length")


@dataclass(frozen=True)
class Unit:
    """A piece of compressed evidence.

    `sources` are the ids of the sentences it declares to come from, None where the family declares none. `spans` are
    (document, start, end) character offsets into the originals, for families that copy.
    """

    text: str
    sources: tuple[str, ...] | None = None
    spans: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True)
class Budget:
    """How long the evidence may be: a fraction of the documents' tokens, or a number of tokens. Exactly one is set."""

    fraction: float | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        if (self.fraction is None) == (self.tokens is None):
            raise ValueError(f"a budget is a fraction or a number of tokens, got {self}")
        if self.fraction is not None and not 0 < self.fraction <= 1:
            raise ValueError(f"a budget's fraction lies in (0, 1], got {self.fraction}")
        if self.tokens is not None and self.tokens < 1:
            raise ValueError(f"a budget has at least 1 token, got {self.tokens}")

    @classmethod
    def of(cls, value: "Budget | float | int | None") -> "Budget | None":
        """None stays None, an int counts tokens, a float is a fraction."""
        if value is None or isinstance(value, Budget):
            return value
        return cls(tokens=value) if isinstance(value, int) else cls(fraction=value)

    def resolve(self, source_tokens: int) -> int:
        """Tokens allowed for a source of `source_tokens` tokens (floor of the fraction)."""
        if self.tokens is not None:
            return self.tokens
        # The product of the decimal fraction as written: in binary, 0.29 of 100 would be 28.
        return int(Fraction(str(self.fraction)) * source_tokens)


@dataclass(frozen=True, eq=False)
class Trace:
    """What decoded each token of one text. All arrays are [T], T the tokens of the text, unless said otherwise.

    `log_probs` are those of the mixture in nats; `member_log_probs` [M, T] those of each member for the chosen token;
    `member_argmax` [M, T] each member's own first choice; `winners` one of "compressor", "target", "both", "neither".
    `finish_reason` is "stop", "length" or "failed(...)".
    """

    tokens: np.ndarray
    log_probs: np.ndarray
    member_log_probs: np.ndarray
    member_argmax: np.ndarray
    winners: tuple[str, ...]
    pieces: tuple[str, ...]
    finish_reason: str


@dataclass(frozen=True, eq=False)
class Compressed:
    """One example's compressed evidence.

    `requested` and `achieved` are in the generator's tokens (requested is None without a budget); `prompt_tokens`
    those of the evidence as shown to the generator, numbers and titles included; `source_tokens` those of the
    documents joined by newlines. `status` is one of `STATUSES` or "failed(reason)". `dropped_documents` counts the
    documents left out of an over-long prompt. `choice` is there where this text was chosen among several. `decoded`
    counts the tokens of all texts that were written on the way to this one (None: those of the trace), and `resume` is
    what its family needs to draw others in its place.
    """

    units: tuple[Unit, ...]
    requested: int | None
    achieved: int
    prompt_tokens: int
    source_tokens: int
    status: str
    trace: Trace | None = None
    dropped_documents: int = 0
    notes: tuple[str, ...] = field(default_factory=tuple)
    choice: "Choice | None" = None
    decoded: int | None = None
    resume: Any = field(default=None, repr=False)

    @property
    def decoded_tokens(self) -> int:
        """How many tokens were decoded to make this text."""
        return self.decoded if self.decoded is not None else len(self.trace.tokens) if self.trace else 0

    @property
    def rate(self) -> float | None:
        """The share of the documents' tokens that is left; None where they had none."""
        return self.achieved / self.source_tokens if self.source_tokens else None

    @property
    def text(self) -> str:
        """The unit texts joined by newlines: what `achieved` counts."""
        return "\n".join(unit.text for unit in self.units)


@dataclass(frozen=True, eq=False)
class Choice:
    """How a text was chosen among several.

    `candidates` are the texts that were drawn, none where sampling was skipped; `scores` the selector's, lower is
    better, with the initial text's last where it took part; `chosen` the index of the winner, -1 for the initial
    text. `rho` is what the filter looked at. `skipped` says why nothing was drawn: "filter" or the initial status.
    `threshold` is the filter's, `subspace` the rank and the width of the subspace that SPS was measured against.
    """

    initial: "Compressed"
    candidates: tuple["Compressed", ...]
    scores: tuple[float, ...]
    chosen: int
    rho: float | None = None
    skipped: str | None = None
    threshold: float | None = None
    subspace: tuple[int, int] | None = None

    @property
    def distinct(self) -> int:
        """How many of the drawn texts differ."""
        return len({one.text for one in self.candidates})


class Compressor(Protocol):
    """What every family offers."""

    def compress(self, examples: Sequence[Example], budget: Budget | None = None) -> list[Compressed]:
        """Compress each example's documents; the result's order is the examples'."""
        ...

    def compress_budgets(self, examples: Sequence[Example], budgets: Sequence[Budget | None]) -> list[list[Compressed]]:
        """Compress at several budgets: result[budget][example], each as `compress` gives it.

        Families whose models need not run again for another budget run them once.
        """
        return [self.compress(examples, budget) for budget in budgets]

    def __call__(self, question: Any, documents: Any, budget: Budget | float | int | None = None) -> Any:
        """Compress one question's documents, or lists of both as one batch: see `ragjax.compress.base.call`."""
        return call(self, question, documents, budget)


class Writer(Compressor, Protocol):
    """What families that write their texts offer beside."""

    def sample(
        self,
        examples: Sequence[Example],
        candidates: int,
        *,
        temperature: float = 1.0,
        repetition_penalty: float = 1.0,
        budget: Budget | None = None,
        beams: bool = False,
        initial: Sequence[Compressed] | None = None,
    ) -> list[list[Compressed]]:
        """Several texts an example, drawn over one prompt cache: result[example][candidate].

        The first n of any number of samples are the same. With `beams` the candidates are the best beams, best first,
        whatever the temperature. `initial` is what `compress` made of the same examples, for families that it spares
        something. Where nothing is decoded (no documents, or documents that fit the budget whole) all candidates are
        that one result.
        """
        ...


def check_candidates(candidates: int) -> None:
    """Raise ValueError for a number of candidates below 1."""
    if candidates < 1:
        raise ValueError(f"candidates counts texts and is at least 1, got {candidates}")


_NO_SETTINGS = ("batch", "strict", "tokenizer")


def describe(compressor: Compressor) -> dict[str, Any]:
    """What defines a compressor's texts, as JSON values: its settings, with models and prompts by content."""
    return {"family": type(compressor).__name__, **_settings(compressor)}


def _settings(part: Any) -> Any:
    """A model by its fingerprint, a dataclass by its fields, any other value as it is."""
    if hasattr(part, "fingerprint"):
        return part.fingerprint
    if not is_dataclass(part):
        return part
    return {f.name: _settings(getattr(part, f.name)) for f in fields(part) if f.name not in _NO_SETTINGS}


def as_document(value: "str | dict | Document") -> Document:
    """A str is a text without a title; a dict has `text` and may have `title`.

    One of white space alone has an empty text: it keeps its place, so that spans count the documents as given.
    """
    return value if isinstance(value, Document) else parse_document(value) or Document("")


def call(
    compressor: Compressor, question: Any, documents: Any, budget: Budget | float | int | None = None
) -> "Compressed | list[Compressed]":
    """Compress one question's documents, or lists of both as one batch.

    Args:
      compressor: whose `compress` does it.
      question: a str, or a list of them.
      documents: the documents of the question, each a str or `{title, text}`; a list of such lists for a list of
        questions.
      budget: a fraction of the documents (float), a number of tokens (int), a `Budget`, or None.

    Returns:
      A `Compressed`, or a list of them. Examples are named by their content, so samples do not depend on order.

    Raises:
      ValueError: for a list of questions with more or fewer lists of documents.
    """
    single = isinstance(question, str)
    questions, lists = ([question], [documents]) if single else (list(question), list(documents))
    if len(questions) != len(lists):
        raise ValueError(f"{len(questions)} questions need as many lists of documents, got {len(lists)}")
    examples = [
        Example(id="", question=q, documents=tuple(map(as_document, docs)))
        for q, docs in zip(questions, lists, strict=True)
    ]
    found = compressor.compress(list(with_ids(examples)), Budget.of(budget))
    return found[0] if single else found
