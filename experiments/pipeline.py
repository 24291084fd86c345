"""One batch through a group's methods: evidence, answers, scored rows.

What the reader is shown is made by the group's `Maker` (`experiments.evidence`); here it is read and scored.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from experiments.evidence import Clock, Evidence, Maker, charge, significant, timed, total_of
from experiments.experiment import Experiment
from ragjax.compress.prompts import number_documents
from ragjax.data.records import Document, Example
from ragjax.evals.normalize import NORMALIZERS
from ragjax.evals.qa import Rules, hits, official_rules, score_prediction
from ragjax.evals.run import Outcome, Row, Tell


@dataclass(frozen=True)
class Read:
    """One question's reading, the score of its context, and what each of the two cost."""

    reading: Any
    score: Any | None
    reading_clock: Clock
    scoring_clock: Clock | None


@dataclass(frozen=True)
class Pipeline:
    """A group's points and examples, and the models' parts that turn them into rows: the `work` of a run's group.

    `maker` makes the evidence; `scorer` reads for the perplexity where the reader is not the model that measures it,
    whose tokens `count_measured` counts.
    """

    points: tuple[Experiment, ...]
    examples: tuple[Example, ...]
    maker: Maker
    reader: Any
    scorer: Any | None
    count_measured: Callable[[str], int]

    def __call__(self, points: Sequence[int], items: Sequence[int], tell: Tell) -> Outcome:
        """The rows [point][item] of some points and items, and the timing rows."""
        examples = [self.examples[i] for i in items]
        evidence, timings = self.maker.gather({p: self.points[p] for p in points}, examples, tell)
        rows, known = [], {}
        for n, (p, row) in enumerate(zip(points, evidence, strict=True), 1):
            tell(f"reading {n}/{len(points)}: {self.points[p].title}")
            read = self.read(examples, row, known)
            timings += [charge(stage, clock, p, 1.0, *of) for stage, clock, of in costs_of(read)]
            made = zip(examples, row, read, strict=True)
            rows.append([self.row(self.points[p], x, e, r) if r else dict(e.columns) for x, e, r in made])
        return rows, timings

    def read(
        self, examples: Sequence[Example], evidence: Sequence[Evidence], known: dict[tuple, "Read"]
    ) -> list["Read | None"]:
        """The reading of each question's evidence, None where that failed.

        What another point of the group showed for the same question is read once: `known` keeps it.
        """
        keys = [None if has_failed(one.columns) else key_of(i, one) for i, one in enumerate(evidence)]
        fresh = [i for i, key in enumerate(keys) if key is not None and key not in known]
        if fresh:
            found = self.read_fresh([examples[i] for i in fresh], [evidence[i].context for i in fresh])
            known.update(zip([keys[i] for i in fresh], found, strict=True))
        return [None if key is None else known[key] for key in keys]

    def read_fresh(self, examples: Sequence[Example], contexts: Sequence[Any]) -> list["Read"]:
        """Read each context for its question, each charged an equal share of the time."""
        questions, ids, own = [e.question for e in examples], [e.id for e in examples], self.scorer is None
        readings, clock = timed(lambda: self.reader.read(questions, contexts, ids=ids, score=own))
        scores, scoring = [reading.score for reading in readings], None
        if not own and any(contexts):
            scores, scoring = timed(lambda: self.scorer.score(questions, contexts))
        return [
            Read(reading, score, clock.share(len(examples)), scoring and scoring.share(len(examples)))
            for reading, score in zip(readings, scores, strict=True)
        ]

    def row(self, point: Experiment, example: Example, evidence: Evidence, read: "Read") -> Row:
        """One row: evidence, reading, scores, measures."""
        reading = read.reading
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
            "perplexity": perplexity_columns(read.score) if evidence.context else None,
        }

    def rate(self, example: Example, text: str) -> Row:
        """Tokens of the documents and of the compressed text, by the measuring model's tokenizer, and their ratio."""
        retrieved = self.count_measured("\n".join(document.text for document in example.documents))
        compressed = self.count_measured(text)
        ratio = significant(retrieved / compressed) if compressed else None
        return {"retrieved": retrieved, "compressed": compressed, "ratio": ratio}


def key_of(place: int, evidence: Evidence) -> tuple:
    """What tells a reading from the others of a batch: the question's place, and the context as shown."""
    return place, isinstance(evidence.context, str), shown_context(evidence.context, 0)


def costs_of(read: Sequence[Read | None]) -> list[tuple[str, Clock, tuple[int, int]]]:
    """The stages of some readings: name, time, and tokens and items."""
    done = [one for one in read if one is not None]
    scored = [one.scoring_clock for one in done if one.scoring_clock is not None]
    generated = sum(one.reading.generated_tokens for one in done)
    stages = [("read", [one.reading_clock for one in done], generated), ("score", scored, 0)]
    return [(name, total_of(clocks), (tokens, len(clocks))) for name, clocks, tokens in stages if clocks]


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


def has_failed(row: Mapping[str, Any]) -> bool:
    """Whether a row or its evidence is no result."""
    return row["status"].startswith("failed")
