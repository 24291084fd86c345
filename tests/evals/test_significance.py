"""Intervals and tests against known values, and with nothing, one or equal values."""

import dataclasses
import json

import numpy as np
import pytest

from ragjax.evals.significance import (
    Interval,
    bootstrap_interval,
    holm,
    interquartile_mean,
    paired_comparison,
    ratio_interval,
)


def ids(n: int) -> list[str]:
    return [f"q{i}" for i in range(n)]


def test_interval_of_a_proportion_is_near_the_normal_one():
    values = [1.0] * 60 + [0.0] * 140
    interval = bootstrap_interval(values)
    half = 1.96 * np.sqrt(0.3 * 0.7 / 200)
    assert interval.value == pytest.approx(0.3)
    assert interval.low == pytest.approx(0.3 - half, abs=0.01)
    assert interval.high == pytest.approx(0.3 + half, abs=0.01)


def test_the_seed_alone_decides():
    values = np.random.default_rng(1).random(40)
    assert bootstrap_interval(values, seed=3) == bootstrap_interval(values, seed=3)
    assert bootstrap_interval(values, seed=3) != bootstrap_interval(values, seed=4)


def test_missing_values_are_left_out_and_counted():
    with_missing = bootstrap_interval([1, None, 0, float("nan"), 1, 0])
    assert with_missing == dataclasses.replace(bootstrap_interval([1, 0, 1, 0]), left_out=2)
    assert with_missing.n == 4


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], Interval(None, None, None, 0, 0)),
        ([None], Interval(None, None, None, 0, 1)),
        ([0.25], Interval(0.25, None, None, 1, 0)),
        ([0.5] * 7, Interval(0.5, 0.5, 0.5, 7, 0)),
        ([0, 0], Interval(0, 0, 0, 2, 0)),
    ],
)
@pytest.mark.parametrize("statistic", ["mean", "median", "interquartile_mean"])
def test_none_one_and_equal_values(values, expected, statistic, recwarn):
    assert bootstrap_interval(values, statistic=statistic) == expected
    assert not recwarn.list
    json.dumps(dataclasses.asdict(expected), allow_nan=False)


def test_interquartile_mean_drops_a_quarter_at_each_end():
    assert interquartile_mean(np.array([100.0, 1, 2, 3, 4, 5, 6, -50])) == pytest.approx((2 + 3 + 4 + 5) / 4)
    assert interquartile_mean(np.array([1.0, 2, 6])) == pytest.approx(3)
    assert bootstrap_interval([1e9, 1, 2, 3], statistic="interquartile_mean").value == pytest.approx(2.5)


def test_D02_the_mean_of_texts_and_the_pooled_value_have_two_names():
    losses = [[0.1, 0.2, 0.1], [0.3, 0.5, 0.1, 0.4, 0.2]]
    per_text = [float(np.exp(np.mean(text))) for text in losses]
    assert per_text == pytest.approx([1.1426, 1.3499], abs=1e-4)
    assert bootstrap_interval(per_text, statistic="mean").value == pytest.approx(1.2462, abs=1e-4)
    pooled = ratio_interval([sum(text) for text in losses], [len(text) for text in losses])
    assert np.exp(pooled.value) == pytest.approx(np.exp(1.9 / 8))
    assert np.exp(pooled.value) == pytest.approx(1.2681, abs=1e-4)


def test_compression_rate_is_a_ratio_of_sums():
    rate = ratio_interval([100, 300, 50], [10, 50, None])
    assert (rate.value, rate.n, rate.left_out) == (pytest.approx(400 / 60), 2, 1)
    assert rate.low == pytest.approx(6)
    assert rate.high == pytest.approx(10)


def test_compression_rate_counts_empty_summaries_and_never_divides_by_nothing(recwarn):
    assert ratio_interval([100, 100], [0, 50]).value == pytest.approx(4)
    assert ratio_interval([100, 100], [0, 50]).high is None
    assert ratio_interval([100, 100], [0, 0]).value is None
    assert ratio_interval([], []) == Interval(None, None, None, 0, 0)
    assert not recwarn.list
    with pytest.raises(ValueError, match="zip"):
        ratio_interval([1, 2], [1])


def test_pairs_are_matched_by_id_and_incomplete_ones_counted():
    result = paired_comparison([1, 0, 1, None], [0, 1, 1, 1], ["a", "b", "c", "d"], ["b", "a", "d", "e"])
    assert (result.n, result.left_out) == (2, 3)  # a and b; c and e in one only, d failed
    assert result.difference == 0


def test_known_p_values_of_binary_outcomes():
    result = paired_comparison([1] * 6 + [0] * 4, [0] * 5 + [1] + [0] * 4, ids(10), ids(10))
    assert (result.only_a, result.only_b) == (5, 0)
    assert result.p_mcnemar == pytest.approx(2 / 2**5)
    assert result.p_permutation == pytest.approx(2 / 2**5)
    assert result.difference == pytest.approx(0.5)
    assert result.low <= 0.5 <= result.high


def test_real_valued_outcomes_have_no_mcnemar():
    rng = np.random.default_rng(0)
    b = rng.random(60)
    result = paired_comparison(b + 0.1 + 0.01 * rng.standard_normal(60), b, ids(60), ids(60))
    assert (result.p_mcnemar, result.only_a, result.only_b) == (None, None, None)
    assert result.p_permutation < 0.001
    assert 0.09 < result.low < result.high < 0.11


def test_equal_methods_do_not_differ():
    result = paired_comparison([1, 0, 1], [1, 0, 1], ids(3), ids(3))
    assert (result.difference, result.p_permutation, result.p_mcnemar) == (0, 1, 1)


@pytest.mark.parametrize("values", [[], [None]])
def test_no_pair_has_no_result(values):
    result = paired_comparison(values, values, ids(len(values)), ids(len(values)))
    assert (result.n, result.left_out) == (0, len(values))
    assert (result.difference, result.low, result.p_permutation, result.p_mcnemar) == (None, None, None, None)


def test_one_pair_shows_nothing():
    result = paired_comparison([1], [0], ["a"], ["a"])
    assert (result.difference, result.low, result.p_permutation, result.p_mcnemar) == (1, None, 1, 1)


def test_repeated_ids_are_refused():
    with pytest.raises(ValueError, match="'a'"):
        paired_comparison([1, 0], [1, 0], ["a", "a"], ["a", "b"])


def test_holm():
    assert holm([0.01, 0.04, 0.03, None, 0.005]) == [
        pytest.approx(0.03),
        pytest.approx(0.06),
        pytest.approx(0.06),
        None,
        pytest.approx(0.02),
    ]
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_questions_of_one_paper_are_resampled_and_flipped_together():
    values, papers = [1.0, 1.0, 1.0, 0.0, 0.0, 1.0], ["a", "a", "a", "b", "b", "c"]
    alone, together = bootstrap_interval(values), bootstrap_interval(values, clusters=papers)
    assert alone.value == together.value == pytest.approx(4 / 6)
    assert (together.low, together.high) == (0.0, 1.0)
    assert together.high - together.low > alone.high - alone.low
    assert together.n == 6
    ids = [f"q{n}" for n in range(6)]
    a, b = [1.0] * 6, [0.0] * 6
    free = paired_comparison(a, b, ids, ids)
    held = paired_comparison(a, b, ids, ids, clusters=dict(zip(ids, papers, strict=True)))
    assert free.difference == held.difference == 1.0
    assert free.p_permutation == pytest.approx(2 / 2**6)
    assert held.p_permutation == pytest.approx(2 / 2**3)  # Three papers change their signs, not six questions.
    assert bootstrap_interval([None, *values], clusters=["a", *papers]).left_out == 1
    with pytest.raises(ValueError, match="clusters are resampled for the mean"):
        bootstrap_interval(values, clusters=papers, statistic="median")
