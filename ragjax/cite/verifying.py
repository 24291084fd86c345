"""Checking an answer claim by claim: does what it cites, pooled, support it, and what does asking cost?

Three modes differ in the evidence. The *summary* check takes the cited units' own text, which a compressor may have
made up. The *span* check takes declared source sentences alone, so that a claim on units that declare none is
unsupported without asking. The *recovered* check takes declared sources, or those that re-attribution finds.
"""

from collections.abc import Sequence

from ragjax.cite.entailment import Judge
from ragjax.cite.parsing import parse
from ragjax.cite.records import Cited, Scored, Tally, Verified
from ragjax.cite.resolving import TOP, check_top, declared_sources, recover, resolve
from ragjax.cite.rounds import Count, Talk, ask, converse
from ragjax.cite.scoring import claims_on, source_cases, unit_cases

CHECKS = ("summary", "span", "recovered")


def verify(
    examples: Sequence[Cited],
    judge: Judge,
    *,
    mode: str = "summary",
    tau: float = 0.5,
    count: Count | None = None,
    scored: Sequence[Scored] | None = None,
    top: int = TOP,
) -> list[Verified]:
    """Check the claims of each example's answer.

    Args:
      examples: all of them are asked about together.
      judge: of entailment.
      mode: one of `CHECKS`.
      tau: the probability from which evidence supports a claim.
      count: counts tokens in place of the judge.
      scored: what `score` made of the same examples: their statements and re-attribution are taken from there, and
        its tokens, which should be counted alike, count here as if it had been done again.
      top: as in `reattribute`.

    Returns:
      A `Verified` each. A claim that cites nothing valid is unsupported in every mode, without asking.

    Raises:
      ValueError: for an unknown mode, settings out of range, `scored` of other examples, and as `resolve`.
    """
    check_top(top)
    if mode not in CHECKS:
        raise ValueError(f"mode is one of {', '.join(CHECKS)}, got {mode!r}")
    if scored is not None and [one.id for one in scored] != [one.id for one in examples]:
        raise ValueError("scored is of other examples, or in another order")
    known = [None] * len(examples) if scored is None else scored
    talks = [_verify(example, mode, one, top) for example, one in zip(examples, known, strict=True)]
    return converse(talks, judge, tau, count)


def _verify(example: Cited, mode: str, scored: Scored | None, top: int) -> Talk[Verified]:
    answer = scored.answer if scored else parse(example.answer, len(example.units), language=example.language)
    spent = Tally()
    if mode == "summary":
        cases = unit_cases(example, answer)
    elif mode == "span":
        cases = source_cases(example, answer, declared_sources(example))
    else:
        recovered, spent = (scored.sources, scored.recovery) if scored else (yield from recover(example, top))
        cases = source_cases(example, answer, resolve(example, recovered))
    verdicts, asked = yield from ask(claims_on([(n, case, case.premise()) for n, case in enumerate(cases)]))
    numbers = range(len(cases))
    supported = tuple(verdicts.get(n, False) for n in numbers)
    return Verified(supported, tuple(n not in verdicts for n in numbers), spent + asked)
