"""From an answer to the quality columns of a row of results, by the official rules of the dataset it belongs to."""

from collections.abc import Collection

from ragjax.data.records import Example
from ragjax.evals.asqa import score_asqa
from ragjax.evals.qasper import score_qasper


def answer_quality(example: Example, text: str, sids: Collection[str] | None = None) -> dict[str, float | None]:
    """The metrics of one answer, each in [0, 1] or None where there is no gold for it; {} for other datasets.

    Questions with `qa_pairs` are scored as ASQA's, those whose annotations name evidence as QASPER's: what an example
    keeps in `meta` tells which. Arguments and errors are those of `score_asqa` and `score_qasper`.
    """
    if example.meta.get("qa_pairs"):
        return score_asqa(example, text).columns()
    if any("evidence" in annotation for annotation in example.meta.get("annotations") or ()):
        return score_qasper(example, text, sids).columns()
    return {}
