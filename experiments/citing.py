"""One batch through a group's methods where answers cite their evidence: units, answers, statements, verdicts.

What the reader is shown are the evidence's units, numbered; what it writes is taken apart into statements with their
citations, and each is judged against what was shown and against the source.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.evidence import Evidence, Maker, charge, timed
from experiments.experiment import Experiment
from experiments.methods import METHODS
from experiments.pipeline import has_failed
from ragjax.cite.attaching import attach_citations
from ragjax.cite.entailment import Judge
from ragjax.cite.records import Cited, Scored, Verified
from ragjax.cite.scoring import score
from ragjax.cite.verifying import CHECKS, verify
from ragjax.compress.units import shown_documents
from ragjax.data.records import Document, Example
from ragjax.evals.run import Outcome, Row, Tell

Quality = Callable[[Example, str, Sequence[str]], Row | None]


@dataclass(frozen=True)
class CitingPipeline:
    """A group's points and examples, and the parts that turn them into rows: the `work` of a run's group.

    `judge` says whether a premise entails a statement; `quality` scores an answer (and the sentences that its evidence
    declares) by the rules of the example's dataset, None where there are none.
    """

    points: tuple[Experiment, ...]
    examples: tuple[Example, ...]
    maker: Maker
    reader: Any
    judge: Any
    quality: Quality

    def __call__(self, points: Sequence[int], items: Sequence[int], tell: Tell) -> Outcome:
        """The rows [point][item] of some points and items, and the timing rows."""
        examples = [self.examples[i] for i in items]
        evidence, timings = self.maker.gather({p: self.points[p] for p in points}, examples, tell)
        rows = []
        for n, (p, row) in enumerate(zip(points, evidence, strict=True), 1):
            tell(f"reading {n}/{len(points)}: {self.points[p].title}")
            made, costs = self.answer(p, examples, row, tell)
            rows.append(made)
            timings += costs
        return rows, timings

    def answer(
        self, p: int, examples: Sequence[Example], evidence: Sequence[Evidence], tell: Tell
    ) -> tuple[list[Row], list[Row]]:
        """A point's rows and the timing rows of reading and judging."""
        point = self.points[p]
        rest = [i for i, one in enumerate(evidence) if not has_failed(one.columns)]
        readings, reading = timed(lambda: self.read([examples[i] for i in rest], [evidence[i] for i in rest]))
        found = [Answered(point, examples[i], evidence[i], r) for i, r in zip(rest, readings, strict=True)]
        good = [one for one in found if not one.failed]
        tell(f"judging: {point.title}")
        (scored, verified), judging = timed(lambda: self.judged(point, [one.cited for one in good]))
        verdicts = {
            one.example.id: (scored[n], {mode: verified[mode][n] for mode in CHECKS}) for n, one in enumerate(good)
        }
        rows = [dict(one.columns) for one in evidence]
        for i, one in zip(rest, found, strict=True):
            rows[i] = {**rows[i], **self.columns(one, verdicts.get(one.example.id))}
        tokens = sum(one.reading.generated_tokens for one in found)
        costs = [charge("read", reading, p, 1.0, tokens, len(rest)), charge("judge", judging, p, 1.0, 0, len(good))]
        return rows, [cost for cost in costs if cost["items"]]

    def read(self, examples: Sequence[Example], evidence: Sequence[Evidence]) -> list[Any]:
        """The reader's paragraph on each question, from the numbered units."""
        if not examples:
            return []
        contexts = [shown(example, one) or None for example, one in zip(examples, evidence, strict=True)]
        return self.reader.read([e.question for e in examples], contexts, ids=[e.id for e in examples], score=False)

    def judged(self, point: Experiment, cited: Sequence[Cited]) -> tuple[list[Scored], dict[str, list[Verified]]]:
        """The citations' scores, and the statements' verdicts by each mode of verification."""
        if not cited:
            return [], {mode: [] for mode in CHECKS}
        scored = score(cited, self.judge, tau=point.tau, mode=point.counting)
        verified = {mode: verify(cited, self.judge, mode=mode, tau=point.tau, scored=scored) for mode in CHECKS}
        return scored, verified

    def columns(self, one: "Answered", verdict: tuple[Scored, Mapping[str, Verified]] | None) -> Row:
        """What a row has beside its evidence's columns."""
        point, reading = one.point, one.reading
        units = one.cited.units
        # Of a method that declares nothing, no units are no empty declaration.
        declares = any(u.sources is not None for u in units) if units else METHODS[point.method].declares
        declared = sorted({sid for unit in units for sid in unit.sources or ()}) if declares else None
        return {
            "status": reading.finish_reason if one.failed else one.evidence.columns["status"],
            "prompt_tokens": reading.context_tokens,
            "generator_tokens": reading.prompt_tokens,
            "dropped_units": reading.dropped_documents,
            "generated_tokens": one.evidence.generated + reading.generated_tokens,
            "units": [{"text": u.text, "sources": u.sources, "spans": u.spans} for u in one.cited.units],
            "answer": {"text": one.cited.answer, "finish_reason": reading.finish_reason, "citer": point.citer}
            | ({} if verdict is None else {"statements": statement_columns(*verdict)}),
            "citation": None if verdict is None else citation_columns(point, self.judge, *verdict),
            "quality": None if verdict is None else self.quality(one.example, claims_of(verdict[0]), declared) or None,
        }


@dataclass(frozen=True)
class Answered:
    """An example, its evidence and what the reader made of it."""

    point: Experiment
    example: Example
    evidence: Evidence
    reading: Any

    @property
    def failed(self) -> bool:
        """Whether there is no answer."""
        return self.reading.finish_reason.startswith("failed")

    @property
    def cited(self) -> Cited:
        """The answer with its citations, and the units that they count."""
        units = self.evidence.units
        units = units[: len(units) - self.reading.dropped_documents]
        text = self.reading.text
        answer = attach_citations(text, units) if self.point.citer == "posthoc" else text
        return Cited(self.example.id, self.example.question, answer, units, self.example.documents)


def shown(example: Example, evidence: Evidence) -> tuple[Document, ...]:
    """The units as documents for the reader."""
    return shown_documents(evidence.units, example.documents)


def claims_of(scored: Scored) -> str:
    """The answer without its markers: a short answer "1" must not be found in "[1]"."""
    return " ".join(statement.text for statement in scored.answer.statements)


def statement_columns(scored: Scored, verified: Mapping[str, Verified]) -> list[Row]:
    """Each statement with its citations and every verdict on it."""
    rows = []
    for n, statement in enumerate(scored.answer.statements):
        views = {name: getattr(scored, name).statements[n] for name in ("generated", "grounded")}
        rows.append(
            {
                "text": statement.text,
                "start": statement.start,
                "end": statement.end,
                "cited": list(statement.cited),
                "invalid": list(statement.invalid),
                **{name: {"recalled": v.recalled, "precise": list(v.precise)} for name, v in views.items()},
                "verified": {mode: of.supported[n] for mode, of in verified.items()},
                "structural": verified["span"].refused[n],
            }
        )
    return rows


def citation_columns(point: Experiment, judge: Judge, scored: Scored, verified: Mapping[str, Verified]) -> Row:
    """The scores of an answer's citations, and what defines them."""
    names = ("claims", "unsupported", "structural", "verifier_tokens")
    asked = [scored.asked, *(of.asked for of in verified.values())]
    return {
        "judge": judge.name,
        "judge_settings": judge.describe(),
        "tau": point.tau,
        "cites": scored.answer.cites,
        "citations": scored.answer.citations,
        "invalid": scored.answer.invalid,
        **{
            name: {"precision": getattr(scored, name).precision, "recall": getattr(scored, name).recall}
            for name in ("generated", "grounded")
        },
        "undeclared": len(scored.undeclared),
        "reattributed": len(scored.recovered),
        "sources": {str(unit): list(sids) for unit, sids in scored.sources.items()},
        "pairs": sum(tally.pairs for tally in asked),
        "truncated_pairs": sum(tally.truncated for tally in asked),
        "unread_pairs": sum(tally.unread for tally in asked),
        "verification": {mode: {name: getattr(of, name) for name in names} for mode, of in verified.items()},
    }
