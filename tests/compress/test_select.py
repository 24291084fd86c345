"""Choosing one of several texts: which score wins, what never does, on texts from anywhere."""

import math

import numpy as np
import pytest

from ragjax.compress.geometry import sps, sps_subspace
from ragjax.compress.select import SELECTORS, Candidates, Selector, choose
from ragjax.decode.text import perplexity
from ragjax.testing import tiny_model

NAN = math.nan
TEXTS = ("The lake of Zug lies in Switzerland.", "Ore is rock.", "Ore is rock.", "", "It is thirty years old, or more.")


@pytest.fixture(scope="module")
def reader():
    return tiny_model()


@pytest.mark.parametrize(
    ("scores", "wanted"),
    [
        ([3.0, 1.0, 2.0], 1),
        ([2.0, 1.0, 1.0], 1),
        ([NAN, 5.0, 6.0], 1),
        ([NAN, NAN], 0),
        ([math.inf, 4.0], 1),
        ([-math.inf, 4.0], 1),
        ([7.0], 0),
    ],
)
def test_S06_the_lowest_finite_score_wins_and_ties_go_to_the_lowest_index(scores, wanted):
    assert choose(scores) == wanted


def test_choosing_among_nothing_is_refused():
    with pytest.raises(ValueError, match="no candidate"):
        choose([])


def test_G09_equal_texts_tie_and_empty_ones_never_win(reader):
    same = ("Ore is rock.",) * 5
    sets = [
        Candidates((*same, "", "Zug lies by a lake.", "A novel.")),
        Candidates(("One text.",)),
        Candidates(("", "")),
    ]
    for kind in SELECTORS:
        selected = Selector(kind=kind, lm=reader).select(sets)
        assert [len(one.scores) for one in selected] == [8, 1, 2]
        assert math.isnan(selected[0].scores[5])
        assert selected[0].chosen != 5
        if kind in ("ppl", "sps", "mixture"):
            assert len(set(selected[0].scores[:5])) == 1
            assert selected[0].chosen in (0, 6, 7)
        assert [one.chosen for one in selected[1:]] == [0, 0]
    assert sets[0].distinct == 4


def test_first_and_random_need_no_model_and_random_goes_by_the_id():
    assert Selector(kind="first").select([Candidates(("", "b", "c"))])[0].chosen == 1
    sets = [Candidates(("a", "b", "c", "d"), id=f"q{n}") for n in range(200)]
    chosen = [one.chosen for one in Selector(kind="random", seed=1).select(sets)]
    assert min(np.bincount(chosen, minlength=4)) > 25
    backwards = [one.chosen for one in Selector(kind="random", seed=1).select(sets[::-1])]
    assert backwards[::-1] == chosen
    assert [one.chosen for one in Selector(kind="random", seed=2).select(sets)] != chosen


def test_the_scores_are_those_of_the_functions(reader):
    (scores,) = Selector(kind="sps", lm=reader, first_token="drop").score([Candidates(TEXTS)])
    expected = sps(reader, TEXTS, subspace=sps_subspace(reader), first_token="drop")
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    assert math.isnan(scores[3])
    assert scores[1] == scores[2]
    (scores,) = Selector(kind="ppl", lm=reader).score([Candidates(TEXTS)])
    expected = [np.nan if s.perplexity is None else s.perplexity for s in perplexity(reader, list(TEXTS))]
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    (given,) = Selector(kind="ppl", lm=reader, ppl_given="question").score([Candidates(TEXTS, question="Where?")])
    assert not np.allclose(given, scores, equal_nan=True)


def test_the_mixture_is_the_mean_rank(reader):
    sets = [Candidates(TEXTS)]
    ranks = []
    for kind in ("ppl", "sps"):
        (scores,) = Selector(kind=kind, lm=reader).score(sets)
        finite = [s for s in scores if not math.isnan(s)]
        ranks.append([(sum(f < s for f in finite) + sum(f <= s for f in finite) + 1) / 2 for s in scores])
    (found,) = Selector(kind="mixture", lm=reader).score(sets)
    kept = [0, 1, 2, 4]
    np.testing.assert_allclose(found[kept], np.mean(ranks, axis=0)[kept])
    assert math.isnan(found[3])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "best"}, "a selector is one of"),
        ({"kind": "sps"}, "needs a reader"),
        ({"kind": "first", "ppl_given": "all"}, "ppl_given"),
        ({"kind": "first", "pooling": "sum"}, "pooling"),
        ({"kind": "first", "first_token": "skip"}, "first_token"),
    ],
)
def test_a_selector_that_does_not_exist_is_refused_by_name(settings, message):
    with pytest.raises(ValueError, match=message):
        Selector(**settings)
