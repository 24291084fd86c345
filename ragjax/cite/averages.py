"""From scored answers to what a report says of them: means over answers, each answer counted once.

An answer without a statement is an answer: its precision and recall are 0, and it is counted. Scored as ALCE counts,
it is left out, as ALCE's script does. Values by example are given for intervals and paired tests over them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ragjax.cite.records import PrecisionRecall, Scored, View


@dataclass(frozen=True)
class Averages:
    """Means over `n` answers; None where there is nothing to average.

    `empties` counts the answers without a statement, which are among the n unless scored as ALCE counts. `laundering`
    is the mean of generated minus grounded precision. `reattribution_rate` is the mean share of an answer's undeclared
    units for which sources were recovered; `left_out` answers have no such unit. `share_citing` is the share of all
    answers with a valid citation. `statements`, `citations` and `invalid` (citations) are numbers in all.
    """

    n: int
    empties: int
    generated: PrecisionRecall | None
    grounded: PrecisionRecall | None
    laundering: float | None
    reattribution_rate: float | None
    left_out: int
    share_citing: float | None
    statements: int
    citations: int
    invalid: int


def average(scored: Sequence[Scored]) -> Averages:
    """The means of some scored answers. Raises ValueError where they were scored in different modes."""
    modes = {one.answer.mode for one in scored}
    if len(modes) > 1:
        raise ValueError(f"answers scored in different modes have no mean: {' and '.join(sorted(modes))}")
    counted = [one for one in scored if one.answer.statements or one.answer.mode == "strict"]
    shares = reattribution_shares(counted)
    return Averages(
        n=len(counted),
        empties=sum(not one.answer.statements for one in scored),
        generated=_mean_view([one.generated for one in counted]),
        grounded=_mean_view([one.grounded for one in counted]),
        laundering=_mean(laundering_gaps(counted)),
        reattribution_rate=_mean(share for share in shares if share is not None),
        left_out=shares.count(None),
        share_citing=_mean(float(one.answer.cites) for one in scored),
        statements=sum(len(one.answer.statements) for one in counted),
        citations=sum(one.answer.citations for one in counted),
        invalid=sum(one.answer.invalid for one in counted),
    )


def laundering_gaps(scored: Sequence[Scored]) -> list[float]:
    """Generated minus grounded precision [n] of each answer: what looks cited and is not in the source."""
    return [one.generated.precision - one.grounded.precision for one in scored]


def reattribution_shares(scored: Sequence[Scored]) -> list[float | None]:
    """The share [n] of each answer's undeclared units for which sources were recovered; None where it has none."""
    return [len(one.recovered) / len(one.undeclared) if one.undeclared else None for one in scored]


def _mean_view(views: Sequence[View]) -> PrecisionRecall | None:
    precision, recall = (_mean(getattr(view, name) for view in views) for name in ("precision", "recall"))
    return None if precision is None or recall is None else PrecisionRecall(precision, recall)


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return sum(found) / len(found) if found else None
