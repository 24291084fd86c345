"""Means over answers: what counts, what is left out, and what is told of both."""

import pytest

from ragjax.cite.averages import average, laundering_gaps, reattribution_shares
from ragjax.cite.records import PrecisionRecall
from ragjax.cite.scoring import score
from tests.cite.keyword_judge import KeywordJudge, cited

UNITS = [("ALPHA", ["0.0"])]
DOCUMENTS = ["ALPHA."]
ZERO = PrecisionRecall(0.0, 0.0)


def scored(answers, units=UNITS, mode="strict"):
    return score([cited(a, units, DOCUMENTS, str(n)) for n, a in enumerate(answers)], KeywordJudge(), mode=mode)


def test_F07_an_empty_answer_counts_as_zero():
    means = average(scored(["ALPHA [1].", "", " \n"]))
    assert means.generated == means.grounded == PrecisionRecall(1 / 3, 1 / 3)
    assert (means.n, means.empties, means.share_citing) == (3, 2, 1 / 3)
    means = average(scored(["", " "]))
    assert means.generated == means.grounded == ZERO
    assert (means.n, means.empties) == (2, 2)


def test_F07_no_answers_have_no_mean():
    means = average([])
    assert means.generated is means.grounded is means.laundering is means.share_citing is None
    assert (means.n, means.empties, means.reattribution_rate) == (0, 0, None)


def test_F07_alce_leaves_empty_answers_out():
    means = average(scored(["ALPHA [1].", "", " \n"], mode="alce"))
    assert means.generated == PrecisionRecall(1.0, 1.0)
    assert (means.n, means.empties, means.share_citing) == (1, 2, 1 / 3)
    assert average(scored([""], mode="alce")).generated is None


def test_answers_scored_in_different_modes_have_no_mean():
    with pytest.raises(ValueError, match="alce and strict"):
        average(scored(["A."]) + scored(["A."], mode="alce"))


def test_every_answer_counts_once():
    means = average(scored(["ALPHA [1]. ALPHA [1]. BETA [1].", "BETA [1][7].", "No."]))
    assert means.generated == PrecisionRecall(2 / 3 / 3, 2 / 3 / 3)
    assert (means.statements, means.citations, means.invalid, means.share_citing) == (5, 4, 1, 2 / 3)


def test_laundering_is_paired_by_answer():
    both = scored(["ALPHA [1].", "OMEGA [1]."], units=["ALPHA OMEGA"]) + scored(["ALPHA [1]."])
    assert laundering_gaps(both) == [1.0, 1.0, 0.0]
    assert average(both).laundering == 2 / 3


def test_the_rate_of_reattribution_is_a_mean_over_answers_that_have_something_to_attribute():
    both = scored(["A."], units=["ALPHA", "OMEGA", "ALPHA"]) + scored(["A."]) + scored(["A."], units=["OMEGA"])
    assert reattribution_shares(both) == [2 / 3, None, 0.0]
    means = average(both)
    assert (means.reattribution_rate, means.left_out) == (1 / 3, 1)
    # Units that declare are in neither part of the share.
    assert reattribution_shares(scored(["A."], units=[*UNITS, "ALPHA", "OMEGA", ("x", [])])) == [1 / 2]
