"""Citation precision and recall, against what the generator saw and against the source behind it.

A statement is recalled iff all that it cites, taken together, entails it. A citation is precise iff that holds and,
beside it, what it stands for entails the statement alone, or the rest no longer does (ALCE's definition, made
symmetric between views). Precision and recall are per answer: precise citations over all, recalled statements over
all; see `ragjax.cite.averages` for means.

*Generated*: a citation stands for its unit's text. *Grounded*: it stands for the source sentences that the unit
resolves to; taking it away takes those alone that no other citation of the statement resolves to. Evidence is a set
in its own order, units as they were shown, sentences as in the documents, joined by newlines.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ragjax.cite.entailment import Judge, Pair
from ragjax.cite.parsing import parse
from ragjax.cite.records import Answer, Cited, Scored, Statement, StatementScore, Tally, View
from ragjax.cite.resolving import TOP, Sources, check_top, recover, resolve, undeclared_units
from ragjax.cite.rounds import Count, Talk, ask, converse


def score(
    examples: Sequence[Cited],
    judge: Judge,
    *,
    tau: float = 0.5,
    mode: str = "strict",
    top: int = TOP,
    sources: Sequence[Sources] | None = None,
    count: Count | None = None,
) -> list[Scored]:
    """Score the citations of each example's answer.

    Args:
      examples: all of them go through the same rounds, each one call of the judge: re-attribution; all statements
        against all that they cite; citations alone; statements without a citation.
      judge: of entailment.
      tau: the probability from which a premise entails.
      mode: "strict": an invalid citation is one without precision. "alce": as ALCE counts, whose premises also repeat
        a unit that is cited twice; see `ragjax.cite.parse`.
      top: as in `reattribute`.
      sources: what re-attribution found before (by example, by unit), to hold it fixed while another judge scores.
      count: counts tokens in place of the judge.

    Returns:
      A `Scored` each. An answer without a statement, or without a citation, has precision and recall 0.

    Raises:
      ValueError: for settings out of range, for `sources` of another number of examples, and as `resolve`.
    """
    check_top(top)
    if sources is not None and len(sources) != len(examples):
        raise ValueError(f"{len(examples)} examples need as many maps of sources, got {len(sources)}")
    fixed = [None] * len(examples) if sources is None else sources
    answers = [parse(one.answer, len(one.units), mode=mode, language=one.language) for one in examples]
    talks = [_score(one, answer, known, top) for one, answer, known in zip(examples, answers, fixed, strict=True)]
    return converse(talks, judge, tau, count)


@dataclass(frozen=True)
class Case:
    """A statement and what each of its citations stands for, in one view: numbers of `texts`, in their own order.

    `as_cited`: evidence keeps the order and the repetitions of the citations.
    """

    statement: Statement
    evidence: tuple[tuple[int, ...], ...]
    texts: Sequence[str]
    as_cited: bool = False

    def premise(self, citations: Iterable[int] | None = None) -> str:
        """What some of the citations (default: all) stand for together; blank where that is nothing."""
        chosen = range(len(self.evidence)) if citations is None else citations
        pieces = [piece for citation in chosen for piece in self.evidence[citation]]
        ordered = pieces if self.as_cited else sorted(set(pieces))
        return "\n".join(self.texts[piece] for piece in ordered)

    def without(self, citation: int) -> str:
        """What all citations but one stand for together; of equal ones the first is gone, as in ALCE's script."""
        gone = self.evidence.index(self.evidence[citation])
        return self.premise(other for other in range(len(self.evidence)) if other != gone)


def unit_cases(example: Cited, answer: Answer, as_cited: bool = False) -> list[Case]:
    """Each statement against the units' texts."""
    texts = [unit.text for unit in example.units]
    return [Case(s, tuple((unit,) for unit in s.cited), texts, as_cited) for s in answer.statements]


def source_cases(example: Cited, answer: Answer, sources: Sources) -> list[Case]:
    """Each statement against the source sentences that its units resolve to."""
    texts = [sentence.text for sentence in example.sentences]
    places = {unit: tuple(example.places[sid] for sid in sids) for unit, sids in sources.items()}
    return [Case(s, tuple(places[unit] for unit in s.cited), texts) for s in answer.statements]


def _score(example: Cited, answer: Answer, known: Sources | None, top: int) -> Talk[Scored]:
    recovered, spent = (yield from recover(example, top)) if known is None else (known, Tally())
    sources = resolve(example, recovered)
    cases = unit_cases(example, answer, answer.mode == "alce") + source_cases(example, answer, sources)
    scores, asked = yield from _judge(cases)
    undeclared = undeclared_units(example)
    return Scored(
        id=example.id,
        answer=answer,
        generated=_view(scores[: len(answer.statements)], answer),
        grounded=_view(scores[len(answer.statements) :], answer),
        sources=sources,
        recovered=tuple(unit for unit in undeclared if sources[unit]),
        undeclared=undeclared,
        asked=spent + asked,
        recovery=spent,
    )


def _judge(cases: Sequence[Case]) -> Talk[tuple[list[StatementScore], Tally]]:
    """Whether each statement is recalled, and which of its citations are precise."""
    whole, first = yield from ask(claims_on([(n, case, case.premise()) for n, case in enumerate(cases)]))
    recalled = [n for n, entailed in whole.items() if entailed]
    citations = [(n, k) for n in recalled for k in range(len(cases[n].evidence))]
    alone, second = yield from ask(claims_on([((n, k), cases[n], cases[n].premise([k])) for n, k in citations]))
    doubted = [place for place in citations if not alone.get(place)]
    rest, third = yield from ask(claims_on([((n, k), cases[n], cases[n].without(k)) for n, k in doubted]))
    resolved = {(n, k) for n, k in citations if cases[n].premise([k]).strip()}
    precise = {place for place in resolved if alone[place] or not rest.get(place)}
    scores = [
        StatementScore(
            case.statement,
            bool(whole.get(n)),
            tuple(unit for k, unit in enumerate(case.statement.cited) if (n, k) in precise),
        )
        for n, case in enumerate(cases)
    ]
    return scores, first + second + third


def claims_on(asked: Iterable[tuple]) -> dict[object, Pair]:
    """The pairs of (name, case, premise), by name; a blank premise entails nothing, and is not asked about."""
    return {name: (premise, case.statement.text) for name, case, premise in asked if premise.strip()}


def _view(scores: Sequence[StatementScore], answer: Answer) -> View:
    """Precision and recall of an answer; where there is nothing to divide by, 0."""
    citations = answer.citations + (answer.invalid if answer.mode == "strict" else 0)
    precise = sum(len(one.precise) for one in scores)
    recalled = sum(one.recalled for one in scores)
    return View(precise / max(citations, 1), recalled / max(len(scores), 1), tuple(scores))
