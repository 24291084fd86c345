"""What the reader is shown for each question, and what it cost to make: the first half of a batch's way.

`Decoding` shows the documents as they are, or texts that one compressor writes at several weights of the target over
one prompt cache; `Fitting` what one compressor makes of them at several budgets. `ragjax`'s choosers have a file of
their own (`experiments.choosing`). Each stage's wall-clock time, compilation aside, is charged to the points that need
it.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from experiments.experiment import Experiment
from experiments.methods import METHODS
from ragjax.compress.base import Budget, Compressed, Trace, Unit
from ragjax.compress.units import document_unit, shown_documents
from ragjax.compress.writing import fit_written
from ragjax.data.overlap import matching_documents
from ragjax.data.records import Document, Example
from ragjax.evals.run import Row, Tell
from ragjax.retrieve.sentences import split_sentences
from ragjax.runtime import CompileClock

DIGITS = 6


@dataclass(frozen=True)
class Evidence:
    """What one method shows the reader for one question, its columns, and the number of tokens it decoded.

    `context` is a compressed text, whole documents, or None for nothing; `units` are what can be cited of it.
    """

    context: str | tuple[Document, ...] | None
    columns: Mapping[str, Any]
    generated: int = 0
    units: tuple[Unit, ...] = ()


class Maker(Protocol):
    """What makes a group's evidence."""

    def gather(
        self, points: Mapping[int, Experiment], examples: Sequence[Example], tell: Tell
    ) -> tuple[list[list[Evidence]], list[Row]]:
        """Each point's evidence, [point][example], and timing rows; `points` by their position in the group."""
        ...


@dataclass(frozen=True)
class Decoding:
    """Points that differ in the target's weight alone, or that decode no evidence (`compressor` is None).

    `count` counts the reader's tokens, of which `tokenizer` makes budgets.
    """

    compressor: Any | None
    count: Callable[[str], int]
    tokenizer: Any = None

    def gather(
        self, points: Mapping[int, Experiment], examples: Sequence[Example], tell: Tell
    ) -> tuple[list[list[Evidence]], list[Row]]:
        """As `Maker.gather`: one decode, charged to the points by their share of its tokens."""
        tell("compressing")
        chosen = list(points.values())
        (evidence, tokens), clock = timed(lambda: self._make(chosen, examples))
        generated = [sum(one.generated for one in row) for row in evidence]
        costs = zip(points, decoding_shares(chosen, tokens), generated, strict=True)
        return evidence, [charge("compress", clock, p, share, of, len(examples)) for p, share, of in costs]

    def _make(
        self, points: Sequence[Experiment], examples: Sequence[Example]
    ) -> tuple[list[list[Evidence]], dict[float, int]]:
        """Each point's evidence, [point][example], and the number of tokens decoded at each alpha."""
        if self.compressor is None:
            return [[self._uncompressed(point, example) for example in examples] for point in points], {}
        alphas = sorted({alpha for point in points for alpha in alphas_of(point)})
        decoded = self.compressor.compress_alphas(examples, alphas, None)
        by_alpha = dict(zip(alphas, decoded, strict=True))
        tokens = {alpha: decoded_tokens(of) for alpha, of in by_alpha.items()}
        evidence = [
            [as_evidence(self._within(by_alpha, i, e, point), self.count) for i, e in enumerate(examples)]
            for point in points
        ]
        return evidence, tokens

    def _within(
        self, written: Mapping[float, Sequence[Compressed]], i: int, example: Example, point: Experiment
    ) -> list[Compressed]:
        """The texts of one example at a point's alphas, within its budget."""
        budget, texts = Budget.of(point.budget), {alpha: written[alpha][i] for alpha in alphas_of(point)}
        return [fit_written(self.tokenizer, example, of, budget, reads=alpha < 1) for alpha, of in texts.items()]

    def _uncompressed(self, point: Experiment, example: Example) -> Evidence:
        """The documents as they are, the gold ones among them (all where none is), or nothing."""
        shown = example.documents if point.method in ("raw", "gold") else ()
        if point.method == "gold":
            shown = matching_documents(example.documents, example.gold_documents) or shown
        text = "\n".join(document.text for document in shown)
        columns = {
            "status": "empty" if METHODS[point.method].documents and not shown else "ok",
            "text": text,
            "requested": None,
            "achieved": self.count(text),
            "source_tokens": self.count("\n".join(document.text for document in example.documents)),
            "dropped_documents": 0,
            "finish_reason": None,
            "traces": [],
            "notes": [],
        }
        return Evidence(shown or None, columns, units=as_units(example, shown) if point.task == "cite" else ())


@dataclass(frozen=True)
class Fitting:
    """Points that differ in their budget alone: their models run once. `count` counts the reader's tokens."""

    compressor: Any
    count: Callable[[str], int]

    def gather(
        self, points: Mapping[int, Experiment], examples: Sequence[Example], tell: Tell
    ) -> tuple[list[list[Evidence]], list[Row]]:
        """As `Maker.gather`; every point needs all of the work."""
        tell("compressing")
        budgets = [Budget.of(point.budget) for point in points.values()]
        found, clock = timed(lambda: self.compressor.compress_budgets(examples, budgets))
        tokens = sum(max(one.decoded_tokens for one in of) for of in zip(*found, strict=True))
        evidence = [
            [copied_evidence(e, one, self.count) for e, one in zip(examples, row, strict=True)] for row in found
        ]
        return evidence, [charge("compress", clock, p, 1.0, tokens, len(examples)) for p in points]


def as_units(example: Example, shown: Sequence[Document]) -> tuple[Unit, ...]:
    """Documents of an example as units that declare all their sentences."""
    sentences = split_sentences(example.documents)
    places = [n for n, document in enumerate(example.documents) if any(document is one for one in shown)]
    return tuple(document_unit(example.documents, n, sentences) for n in places if example.documents[n].text.strip())


def as_evidence(parts: Sequence[Compressed], count: Callable[[str], int]) -> Evidence:
    """The evidence of one text, or of several joined by newlines; the worst status stands for all."""
    texts = [part.text for part in parts if part.text.strip()]
    status = max((part.status for part in parts), key=severity)
    joined = "\n".join(texts)
    columns = {
        "status": status,
        "text": joined,
        "requested": parts[0].requested,
        "achieved": count(joined),
        "source_tokens": parts[0].source_tokens,
        "dropped_documents": max(part.dropped_documents for part in parts),
        "finish_reason": "+".join(part.trace.finish_reason for part in parts if part.trace is not None) or None,
        "traces": [trace_columns(part.trace) for part in parts if part.trace is not None],
        "notes": list(dict.fromkeys(note for part in parts for note in part.notes)),
    }
    units = tuple(unit for part in parts for unit in part.units)
    return Evidence(joined if texts else None, columns, decoded_tokens(parts), units)


def copied_evidence(example: Example, found: Compressed, count: Callable[[str], int]) -> Evidence:
    """The evidence of one result; units with declared sources are shown as raw documents are, under their titles."""
    evidence = as_evidence([found], count)
    if not found.units or any(unit.sources is None for unit in found.units):
        return evidence
    return replace(evidence, context=shown_documents(found.units, example.documents))


def decoded_tokens(texts: Iterable[Compressed]) -> int:
    """How many tokens were decoded to make some texts."""
    return sum(one.decoded_tokens for one in texts)


def alphas_of(point: Experiment) -> tuple[float, ...]:
    """The target's weights whose texts, joined in this order, are the point's evidence."""
    return weights_of(point.method, point.alpha)


def weights_of(method: str, alpha: float | None) -> tuple[float, ...]:
    """As `alphas_of`, from the fields; empty for a method that decodes no evidence."""
    fixed = {"zero_shot": (0.0,), "generated": (1.0,), "concat": (1.0, 0.0)}
    return fixed.get(method, () if alpha is None else (alpha,))


def significant(value: float) -> float:
    """A number to `DIGITS` significant digits: what differs beyond is noise of the device."""
    return float(f"{float(value):.{DIGITS}g}")


def trace_columns(trace: Trace) -> Row:
    """What decoded each token, for the record."""
    return {
        "tokens": [int(token) for token in trace.tokens],
        "log_probs": [significant(value) for value in trace.log_probs],
        "winners": list(trace.winners),
        "pieces": list(trace.pieces),
    }


@dataclass(frozen=True)
class Clock:
    """Wall-clock seconds of a stage: running, and compiling."""

    seconds: float
    compile_seconds: float

    def share(self, parts: int) -> "Clock":
        """One of so many equal parts."""
        return Clock(self.seconds / parts, self.compile_seconds / parts)


def total_of(clocks: Sequence[Clock]) -> Clock:
    """Several times after each other."""
    return Clock(sum(clock.seconds for clock in clocks), sum(clock.compile_seconds for clock in clocks))


def timed(stage: Callable[[], Any]) -> tuple[Any, Clock]:
    """A stage's result and its times."""
    start = time.perf_counter()
    with CompileClock() as compiling:
        result = stage()
    spent = time.perf_counter() - start
    return result, Clock(max(spent - compiling.seconds, 0.0), compiling.seconds)


def decoding_shares(points: Sequence[Experiment], tokens: Mapping[float, int]) -> list[float]:
    """Each point's share of the time that a group took to decode, by the tokens of the texts at its alphas.

    A text that serves two points is charged to both, since each needs it: shares may add up to more than 1.
    """
    total = sum(tokens.values())
    return [sum(tokens[alpha] for alpha in alphas_of(p)) / total if total else 1 / len(points) for p in points]


def charge(stage: str, clock: Clock, point: int, share: float, tokens: int, items: int) -> Row:
    """The timing row of a stage: a point's share of its time."""
    seconds = {"seconds": clock.seconds * share, "compile_seconds": clock.compile_seconds * share}
    return {"stage": stage, "point": point, "items": items, "tokens": tokens, **seconds}


SEVERITY = ("empty", "short_input", "ok", "length", "too_small")


def severity(status: str) -> int:
    """How much of a text a status takes away; that of joined texts is the worst of theirs."""
    return SEVERITY.index(status) if status in SEVERITY else len(SEVERITY)
