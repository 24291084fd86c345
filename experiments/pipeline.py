"""One batch through a group's methods: documents to evidence, evidence to answers, answers to scored rows.

The methods of a group differ only in the target's weight, so one compressor decodes them all over one prompt cache.
Each stage's wall-clock time, compilation aside, is charged to the points by their share of the generated tokens.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from experiments.experiment import METHODS, Experiment
from ragjax.compress.base import Budget, Compressed, Trace
from ragjax.compress.prompts import number_documents
from ragjax.data.overlap import matching_documents
from ragjax.data.records import Document, Example
from ragjax.evals.normalize import NORMALIZERS
from ragjax.evals.qa import Rules, hits, official_rules, score_prediction
from ragjax.evals.run import Outcome, Row, Tell
from ragjax.runtime import CompileClock

DIGITS = 6


@dataclass(frozen=True)
class Evidence:
    """What one method shows the reader for one question, its columns, and the number of tokens it decoded.

    `context` is a compressed text, whole documents, or None for nothing.
    """

    context: str | tuple[Document, ...] | None
    columns: Mapping[str, Any]
    generated: int = 0


@dataclass(frozen=True)
class Pipeline:
    """A group's points and examples, and the models' parts that turn them into rows: the `work` of a run's group.

    `compressor` is None where no point decodes evidence; `scorer` reads for the perplexity where the reader is not
    the model that measures it. `count_shown` counts the reader's tokens, `count_measured` those of that model.
    """

    points: tuple[Experiment, ...]
    examples: tuple[Example, ...]
    compressor: Any | None
    reader: Any
    scorer: Any | None
    count_shown: Callable[[str], int]
    count_measured: Callable[[str], int]

    def __call__(self, points: Sequence[int], items: Sequence[int], tell: Tell) -> Outcome:
        """The rows [point][item] of some points and items, and the timing rows."""
        examples = [self.examples[i] for i in items]
        tell("compressing")
        chosen = [self.points[p] for p in points]
        (evidence, tokens), clock = timed(lambda: self.gather(chosen, examples))
        generated = [sum(one.generated for one in row) for row in evidence]
        shares = decoding_shares(chosen, tokens)
        costs = zip(points, shares, generated, strict=True)
        timings = [charge("compress", clock, p, share, tokens, len(items)) for p, share, tokens in costs]
        rows = []
        for n, (p, row) in enumerate(zip(points, evidence, strict=True), 1):
            tell(f"reading {n}/{len(points)}: {self.points[p].title}")
            read, read_timings = self.read(p, examples, row)
            rows.append(read)
            timings += read_timings
        return rows, timings

    def gather(
        self, points: Sequence[Experiment], examples: Sequence[Example]
    ) -> tuple[list[list[Evidence]], dict[float, int]]:
        """Each point's evidence, [point][example], and the number of tokens decoded at each alpha."""
        if self.compressor is None:
            return [[self.uncompressed(point, example) for example in examples] for point in points], {}
        alphas = sorted({alpha for point in points for alpha in alphas_of(point)})
        decoded = self.compressor.compress_alphas(examples, alphas, Budget.of(points[0].budget))
        by_alpha = dict(zip(alphas, decoded, strict=True))
        tokens = {alpha: sum(len(one.trace.tokens) for one in of if one.trace) for alpha, of in by_alpha.items()}
        evidence = [
            [self.compressed([by_alpha[alpha][i] for alpha in alphas_of(point)]) for i in range(len(examples))]
            for point in points
        ]
        return evidence, tokens

    def uncompressed(self, point: Experiment, example: Example) -> Evidence:
        """The documents as they are, the gold ones among them (all where none is), or nothing."""
        shown = example.documents if point.method in ("raw", "gold") else ()
        if point.method == "gold":
            shown = matching_documents(example.documents, example.gold_documents) or shown
        text = "\n".join(document.text for document in shown)
        columns = {
            "status": "empty" if METHODS[point.method].documents and not shown else "ok",
            "text": text,
            "requested": None,
            "achieved": self.count_shown(text),
            "source_tokens": self.count_shown("\n".join(document.text for document in example.documents)),
            "dropped_documents": 0,
            "finish_reason": None,
            "traces": [],
            "notes": [],
        }
        return Evidence(shown or None, columns)

    def compressed(self, parts: Sequence[Compressed]) -> Evidence:
        """The evidence of one text, or of several joined by newlines; the worst status stands for all."""
        texts = [part.text for part in parts if part.text.strip()]
        status = max((part.status for part in parts), key=severity)
        joined = "\n".join(texts)
        columns = {
            "status": status,
            "text": joined,
            "requested": parts[0].requested,
            "achieved": self.count_shown(joined),
            "source_tokens": parts[0].source_tokens,
            "dropped_documents": max(part.dropped_documents for part in parts),
            "finish_reason": "+".join(part.trace.finish_reason for part in parts if part.trace is not None) or None,
            "traces": [trace_columns(part.trace) for part in parts if part.trace is not None],
            "notes": list(dict.fromkeys(note for part in parts for note in part.notes)),
        }
        generated = sum(len(trace["tokens"]) for trace in columns["traces"])
        return Evidence(joined if texts else None, columns, generated)

    def read(self, p: int, examples: Sequence[Example], evidence: Sequence[Evidence]) -> tuple[list[Row], list[Row]]:
        """The rows of one point, scored where its evidence did not fail, and the timings of its reading."""
        good = [i for i, one in enumerate(evidence) if not has_failed(one.columns)]
        rows: list[Row] = [dict(one.columns) for one in evidence]
        scored, timings = (
            self.read_good(p, [examples[i] for i in good], [evidence[i] for i in good]) if good else ([], [])
        )
        for i, row in zip(good, scored, strict=True):
            rows[i] = row
        return rows, timings

    def read_good(
        self, p: int, examples: Sequence[Example], evidence: Sequence[Evidence]
    ) -> tuple[list[Row], list[Row]]:
        """As `read`, of evidence that did not fail."""
        questions, contexts = [example.question for example in examples], [one.context for one in evidence]
        ids, own = [example.id for example in examples], self.scorer is None
        readings, clock = timed(lambda: self.reader.read(questions, contexts, ids=ids, score=own))
        generated = sum(reading.generated_tokens for reading in readings)
        timings = [charge("read", clock, p, 1.0, generated, len(examples))]
        scores = [reading.score for reading in readings]
        if not own and any(contexts):
            scores, clock = timed(lambda: self.scorer.score(questions, contexts))
            timings.append(charge("score", clock, p, 1.0, 0, len(examples)))
        rows = [self.row(self.points[p], *parts) for parts in zip(examples, evidence, readings, scores, strict=True)]
        return rows, timings

    def row(self, point: Experiment, example: Example, evidence: Evidence, reading: Any, score: Any | None) -> Row:
        """One row: evidence, reading, scores, measures."""
        rules, answers = rules_of(point, example), list(example.answers)
        scores = score_prediction(reading.text, answers, rules)
        del scores["raw"]  # `reading` holds it.
        failed = reading.finish_reason.startswith("failed")
        dropped = evidence.columns["dropped_documents"] + reading.dropped_documents
        given = evidence.context if isinstance(evidence.context, tuple) else example.documents
        return {
            **evidence.columns,
            "status": reading.finish_reason if failed else evidence.columns["status"],
            "notes": list(dict.fromkeys([*evidence.columns["notes"], *reading.notes])),
            "prompt_tokens": reading.context_tokens,
            "documents": len(given) - dropped,
            "dropped_documents": dropped,
            "context": shown_context(evidence.context, reading.dropped_documents),
            "generated_tokens": evidence.generated + reading.generated_tokens,
            "reading": reading_columns(reading),
            "scores": {**scores, "rules": asdict(rules)},
            "hits": hits(example.documents, answers, NORMALIZERS[rules.normalizer]),
            "rate": self.rate(example, evidence.columns["text"]),
            "perplexity": perplexity_columns(score) if evidence.context else None,
        }

    def rate(self, example: Example, text: str) -> Row:
        """Tokens of the documents and of the compressed text, by the measuring model's tokenizer, and their ratio."""
        retrieved = self.count_measured("\n".join(document.text for document in example.documents))
        compressed = self.count_measured(text)
        ratio = significant(retrieved / compressed) if compressed else None
        return {"retrieved": retrieved, "compressed": compressed, "ratio": ratio}


def shown_context(context: str | tuple[Document, ...] | None, dropped: int) -> str | None:
    """The context as the reader's prompt has it, after it dropped documents from the end."""
    if context is None or isinstance(context, str):
        return context
    return number_documents(context[: len(context) - dropped])


def rules_of(point: Experiment, example: Example) -> Rules:
    """How an example's answers are compared. Raises ValueError where "official" meets an unknown dataset."""
    if point.normalizer != "official":
        return Rules(normalizer=point.normalizer)
    return official_rules(point.dataset or str(example.meta.get("dataset")))


def alphas_of(point: Experiment) -> tuple[float, ...]:
    """The target's weights whose texts, joined in this order, are the point's evidence (METHODS section 1)."""
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


def reading_columns(reading: Any) -> Row:
    """The reader's reply, for the record; the answer in it stands with the scores."""
    names = ("text", "finish_reason", "prompt_tokens", "generated_tokens")
    return {name: getattr(reading, name) for name in names}


def perplexity_columns(score: Any | None) -> Row:
    """Perplexity of the evidence given all before it, or the reason why it has none; nats and tokens beside it."""
    if score is None:
        return {"perplexity": None, "bits_per_byte": None, "nll": None, "count": 0, "reason": "not measured"}
    finite = score.reason is None
    return {
        "perplexity": significant(score.perplexity) if finite else None,
        "bits_per_byte": significant(score.bits_per_byte) if finite else None,
        "nll": significant(score.nll) if finite else None,
        "count": int(score.count),
        "reason": score.reason,
    }


@dataclass(frozen=True)
class Clock:
    """Wall-clock seconds of a stage: running, and compiling."""

    seconds: float
    compile_seconds: float


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


def has_failed(row: Mapping[str, Any]) -> bool:
    """Whether a row or its evidence is no result."""
    return row["status"].startswith("failed")
