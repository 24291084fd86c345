"""The correlation study: ranks, bins and what they hide, against hand-worked numbers, scipy and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import roc_auc_score

from ragjax.evals.correlation import correlate

QUICK = {"resamples": 50}


def means(found, quality="em"):
    """The mean quality of each rank."""
    return [one.value for one in found.bins[quality]]


def random_study(seed, questions=12, width=5, missing=0.0):
    """Scores with ties and gaps, EM and F1."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 6, (questions, width)).astype(float)
    scores[rng.random(scores.shape) < missing] = np.nan
    em = rng.integers(0, 2, scores.shape).astype(float)
    return scores, em, np.maximum(em, rng.integers(0, 5, scores.shape) / 4)


def test_hand_worked_bins_and_correlations():
    # Worst to best score: question 1 has EM 0, 0, 1 and F1 .2, .4, 1; question 2 has EM 0, 1, 1 and F1 0, 1, 1.
    scores = [[3.0, 1.0, 2.0], [10.0, 20.0, 30.0]]
    em = [[0, 1, 0], [1, 1, 0]]
    f1 = [[0.2, 1.0, 0.4], [1.0, 1.0, 0.0]]
    found = correlate(scores, em, f1, **QUICK)
    assert means(found) == [0.0, 0.5, 1.0]
    assert means(found, "f1") == pytest.approx([0.1, 0.7, 1.0])
    assert found.pearson["em"].value == pytest.approx(1.0)
    assert found.pearson["f1"].value == pytest.approx(0.9819805)  # .9 / sqrt(2 * .42)
    # Right at 1, 10, 20 and wrong at 2, 3, 30: of 3 * 3 pairs 3 + 1 + 1 are in order.
    assert found.auroc.value == pytest.approx(5 / 9)
    assert found.auroc_within.value == 1.0
    assert (found.questions, found.candidates, found.tied, found.left_out) == (2, 6, 0, {})


def test_tied_candidates_share_the_bins_of_their_ranks():
    # Ranks 1 and 2 are tied and hold EM 1 and 0; rank 3 is the best score's.
    found = correlate([[5.0, 5.0, 1.0]], [[1, 0, 0]], [[1, 0, 0.5]], **QUICK)
    assert means(found) == [0.5, 0.5, 0.0]
    assert means(found, "f1") == [0.5, 0.5, 0.5]
    assert found.pearson["f1"].value is None


def test_candidates_without_a_score_are_left_out_and_the_others_fill_all_bins():
    # Two of four are left: the worse fills the lower half, the better the upper. Two of three: the middle is shared.
    found = correlate([[9.0, None, 1.0, float("nan")]], [[0, 1, 1, 1]], [[0, 1, 1, 1]], **QUICK)
    assert means(found) == [0.0, 0.0, 1.0, 1.0]
    assert (found.candidates, found.unscored) == (2, 2)
    found = correlate([[9.0, None, 1.0]], [[0, 1, 1]], [[0, 1, 1]], **QUICK)
    assert means(found) == pytest.approx([0.0, 0.5, 1.0])


def test_what_is_left_out_is_counted_by_reason():
    scores = [[1.0, 2.0], [None, None], [1.0, 2.0], [1.0, None], [None, None]]
    em = [[1, 0], [1, 0], [None, None], [None, 1], [None, None]]
    found = correlate(scores, em, em, **QUICK)
    assert found.left_out == {
        "no answer to compare with a gold": 2,
        "no candidate has a score": 1,
        "no candidate has both": 1,
    }
    assert (found.questions, found.unscored, found.unanswered) == (1, 5, 5)
    assert (found.auroc.n, found.auroc.left_out) == (1, 4)
    assert found.auroc.value == 1.0
    assert found.auroc.low is None  # One question has no interval.


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_scipy_and_scikit_learn_agree(missing):
    scores, em, f1 = random_study(3, questions=40, width=6, missing=missing)
    found = correlate(scores, em, f1, **QUICK)
    there = ~np.isnan(scores)
    assert found.auroc.value == pytest.approx(roc_auc_score(em[there], -scores[there]), abs=1e-12)
    for name, of in (("em", em), ("f1", f1)):
        assert found.spearman[name].value == pytest.approx(stats.spearmanr(-scores[there], of[there])[0], abs=1e-12)
        r = stats.pearsonr(np.arange(1, 7), means(found, name))[0]
        assert found.pearson[name].value == pytest.approx(r, abs=1e-12)
    rows = [(-s[t], e[t], f[t]) for s, e, f, t in zip(scores, em, f1, there, strict=True) if len(set(s[t])) > 1]
    areas = [roc_auc_score(e, s) for s, e, _ in rows if len(set(e)) > 1]
    assert found.auroc_within.value == pytest.approx(np.mean(areas), abs=1e-12)
    assert (found.auroc_within.n, found.auroc_within.left_out) == (len(areas), 40 - len(areas))
    each = [stats.spearmanr(s, f)[0] for s, _, f in rows if len(set(f)) > 1]
    assert found.spearman_within["f1"].value == pytest.approx(np.mean(each), abs=1e-12)


def test_bins_of_distinct_scores_are_plain_means_over_ranks():
    rng = np.random.default_rng(0)
    scores = rng.permuted(np.tile(np.arange(10.0), (30, 1)), axis=1)
    em = rng.integers(0, 2, scores.shape)
    by_rank = np.take_along_axis(em, np.argsort(-scores, axis=1), axis=1)
    assert means(correlate(scores, em, em, **QUICK)) == pytest.approx(by_rank.mean(axis=0), abs=1e-12)


def test_G09_ties_and_empties_of_eight_candidates_are_ranked_without_luck():
    # Five equal texts (score 2), an empty one, and two others: 7 scored candidates fill 8 bins.
    scores = [2.0, 2.0, None, 2.0, 7.0, 2.0, 1.0, 2.0]
    em = [0, 0, 1, 0, 0, 0, 1, 0]
    found = correlate([scores], [em], [em], **QUICK)
    shuffled = [3, 6, 1, 0, 7, 5, 2, 4]
    again = correlate(
        [[scores[i] for i in shuffled]], [[em[i] for i in shuffled]], [[em[i] for i in shuffled]], **QUICK
    )
    assert found == again
    assert means(found) == pytest.approx([0, 0, 0, 0, 0, 0, 1 / 7, 1.0])
    assert found.auroc.value == 1.0


@pytest.mark.parametrize(
    ("scores", "em"),
    [
        ([[1.0, 2.0], [3.0, 1.0]], [[0, 0], [0, 0]]),  # no answer is right
        ([[1.0, 2.0], [3.0, 1.0]], [[1, 1], [1, 1]]),  # every answer is right
        ([[4.0, 4.0], [4.0, 4.0]], [[1, 0], [0, 1]]),  # the score never differs
        ([[1.0], [2.0]], [[1], [1]]),  # one candidate
        ([[None, None], [None, None]], [[1, 0], [0, 1]]),  # nothing has a score
        ([[1.0, 2.0], [3.0, 1.0]], [[None, None], [None, None]]),  # nothing has a gold
        ([], []),
    ],
)
def test_G09_what_does_not_exist_is_none(scores, em):
    found = correlate(scores, em, em, **QUICK)
    for one in (found.auroc, found.auroc_within, *found.pearson.values(), *found.spearman.values()):
        assert (one.value, one.low, one.high) == (None, None, None)
    assert all(one.value is None for one in found.spearman_within.values())
    assert not any(isinstance(one.value, float) and np.isnan(one.value) for of in found.bins.values() for one in of)


def test_one_distinct_candidate_a_question_still_tells_questions_apart():
    found = correlate([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]], [[1, 1], [1, 1], [0, 0]], [[1, 1], [1, 1], [0, 0]], **QUICK)
    assert found.tied == 3
    assert found.pearson["em"].value is None
    assert found.auroc_within.value is None
    assert found.auroc.value == 1.0


def test_intervals_are_over_questions_and_repeatable():
    """Copies of a question's candidates bring no certainty: the interval is that of the questions."""
    scores, em, f1 = random_study(1, questions=30, width=4)
    once = correlate(scores, em, f1)
    assert once == correlate(scores, em, f1)
    assert once != correlate(scores, em, f1, seed=1)
    twice = correlate(np.tile(scores, 5), np.tile(em, 5), np.tile(f1, 5))
    for name in ("auroc", "auroc_within"):
        one, other = getattr(once, name), getattr(twice, name)
        assert one.low < one.value < one.high
        assert other.value == pytest.approx(one.value, abs=1e-12)
        assert other.high - other.low == pytest.approx(one.high - one.low, rel=0.2)


def test_an_interval_holds_the_truth_as_often_as_it_says():
    """90 % intervals of AUROC for scores that say nothing, with questions of very different difficulty."""
    rng, held = np.random.default_rng(0), 0
    for _ in range(100):
        easy = rng.random((40, 1)) < 0.5
        em = (rng.random((40, 5)) < np.where(easy, 0.9, 0.1)).astype(float)
        scores = rng.normal(size=(40, 5)) + 2 * rng.normal(size=(40, 1))
        found = correlate(scores, em, em, resamples=100, confidence=0.9).auroc
        held += found.low <= 0.5 <= found.high
    assert 80 <= held <= 97


@pytest.mark.parametrize(
    ("scores", "em", "f1", "message"),
    [
        ([[1.0, 2.0]], [[1, 0]], [[1.0]], "one shape"),
        ([[1.0, 2.0], [1.0]], [[1, 0], [1]], [[1, 0], [1]], "one shape"),
        ([[1.0, 2.0]], [], [], "one shape"),
        ([[1.0, 2.0]], [[0.5, 0]], [[1, 0]], "EM is 0 or 1"),
        ([[1.0, 2.0]], [[1, 0]], [[50.0, 0]], r"F1 lies in \[0, 1\]"),
    ],
)
def test_bad_tables_are_refused(scores, em, f1, message):
    with pytest.raises(ValueError, match=message):
        correlate(scores, em, f1, **QUICK)


@st.composite
def studies(draw):
    """Small studies with ties and gaps."""
    questions, width = draw(st.integers(1, 5)), draw(st.integers(1, 4))

    def table(values):
        return st.lists(st.lists(values, min_size=width, max_size=width), min_size=questions, max_size=questions)

    scores = draw(table(st.one_of(st.none(), st.integers(-4, 4).map(float))))
    em = draw(table(st.sampled_from([0, 1, None])))
    return scores, em, [[None if e is None else max(e, 0.25) for e in row] for row in em]


@settings(max_examples=40, deadline=None)
@given(studies(), st.randoms(use_true_random=False))
def test_the_order_of_the_questions_and_increasing_maps_change_nothing(study, random):
    found = correlate(*study, resamples=20)
    order = list(range(len(study[0])))
    random.shuffle(order)
    assert correlate(*([table[i] for i in order] for table in study), resamples=20) == found
    mapped = [[None if s is None else np.exp(s) + 7 for s in row] for row in study[0]]
    assert correlate(mapped, *study[1:], resamples=20) == found


@settings(max_examples=40, deadline=None)
@given(studies())
def test_flipped_scores_flip_every_sign(study):
    scores, em, f1 = study
    found = correlate(scores, em, f1, resamples=1)
    flipped = correlate([[None if s is None else -s for s in row] for row in scores], em, f1, resamples=1)

    def same(value, other, change):
        return other == (None if value is None else pytest.approx(change(value), abs=1e-9))

    for name in ("pearson", "spearman", "spearman_within"):
        for quality, one in getattr(found, name).items():
            assert same(one.value, getattr(flipped, name)[quality].value, lambda value: -value), name
    for name in ("auroc", "auroc_within"):
        assert same(getattr(found, name).value, getattr(flipped, name).value, lambda value: 1 - value), name
    for quality, bins in found.bins.items():
        for one, other in zip(bins, reversed(flipped.bins[quality]), strict=True):
            assert same(one.value, other.value, lambda value: value), quality


def test_a_correlation_of_bins_near_one_can_hide_an_auroc_near_one_half():
    """What the published table shows: ten means rise with the rank, a single score says almost nothing."""
    rng = np.random.default_rng(5)
    scores = rng.permuted(np.tile(np.arange(10.0), (2000, 1)), axis=1)
    em = (rng.random(scores.shape) < 0.4 + 0.01 * (9 - scores)).astype(float)
    found = correlate(scores, em, em, resamples=20)
    assert found.pearson["em"].value > 0.85
    assert 0.5 < found.auroc.value < 0.54
