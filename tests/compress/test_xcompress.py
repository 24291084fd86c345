"""xCompress: which candidates are drawn, which wins, and what the choice records."""

import dataclasses

import numpy as np
import pytest

import ragjax
from ragjax.compress.base import Compressed
from ragjax.compress.favicomp import FaviComp
from ragjax.compress.filters import OnlinePool, calibrate_filter
from ragjax.compress.select import Candidates, Selector
from ragjax.compress.xcompress import XCompress
from ragjax.data.records import Example
from tests.oracle import SHORT, bigram_model, chain

NOTHING = Example("none", "Who is it?")


@pytest.fixture(scope="module")
def examples(examples):
    return examples[:4]


@pytest.fixture(scope="module")
def found(lm, compressor, examples):
    return XCompress(compressor, lm, candidates=5, batch=4).compress([*examples, NOTHING])


def test_the_lowest_score_of_the_drawn_candidates_wins(lm, found):
    for one in found[:4]:
        choice = one.choice
        assert len(choice.candidates) == len(choice.scores) == 5
        texts = tuple(candidate.text for candidate in choice.candidates)
        (scores,) = Selector(kind="sps", lm=lm, batch=4).score([Candidates(texts)])
        np.testing.assert_allclose(choice.scores, scores, rtol=1e-5)
        assert choice.chosen == int(np.nanargmin(choice.scores))
        assert one.text == texts[choice.chosen]
        assert choice.distinct == len(set(texts)) > 1
        assert choice.skipped is None
        assert choice.subspace[1] == lm.config.hidden_size


def test_a_question_without_documents_draws_nothing(found):
    assert found[4].status == found[4].choice.skipped == "empty"
    assert found[4].choice.candidates == ()
    assert found[4].choice.chosen == -1


def test_B10_the_first_candidates_do_not_depend_on_how_many_are_drawn(lm, compressor, found, examples):
    fewer = XCompress(compressor, lm, candidates=3, batch=2).compress(examples[::-1])[::-1]
    for three, five in zip(fewer, found, strict=False):
        assert [c.text for c in three.choice.candidates] == [c.text for c in five.choice.candidates[:3]]


def test_S06_one_candidate_is_returned_with_its_score(lm, compressor, examples):
    (one,) = XCompress(compressor, lm, candidates=1, batch=4).compress(examples[:1])
    assert one.choice.chosen == 0
    assert np.isfinite(one.choice.scores[0])


def test_the_initial_summary_may_join(lm, compressor, found, examples):
    joined = XCompress(compressor, lm, candidates=2, initial_joins=True, selector="ppl", batch=4)
    for one in joined.compress(examples):
        assert len(one.choice.scores) == 3
        assert one.text == ([*one.choice.candidates, one.choice.initial][one.choice.chosen]).text
    initial = [one.choice.initial for one in found[:4]]
    empty = Compressed((), None, 0, 0, 9, "empty")
    for one, first in zip(
        joined.choose(examples, initial, [[empty, empty]] * 4, [None] * 4, np.full(4, np.nan)), initial, strict=True
    ):
        assert one.choice.chosen == -1
        assert one.text == first.text
        assert np.isnan(one.choice.scores[:2]).all()


def test_a_filter_keeps_initial_summaries_and_saves_their_drawing(lm, compressor, examples, monkeypatch):
    fixed = calibrate_filter(compressor, lm, examples[2:], share=0.5, batch=4)
    for threshold, skipped in ((-1.0, "filter"), (10.0, None)):
        kept = XCompress(compressor, lm, filter=dataclasses.replace(fixed, threshold=threshold), batch=4)
        for one in kept.compress(examples[:2]):
            assert one.choice.skipped == skipped
            assert 0 < one.choice.rho < 1
            assert bool(one.choice.candidates) == (skipped is None)
            if skipped:
                assert one.text == one.choice.initial.text
    monkeypatch.setattr(FaviComp, "compress", None)  # What cannot be served is refused before any model runs.
    with pytest.raises(ValueError, match="'q2' is one of those the filter was calibrated on"):
        XCompress(compressor, lm, filter=fixed, batch=4).compress(examples)


def test_the_online_pool_draws_for_its_first_questions(lm, compressor, examples):
    pooled = XCompress(compressor, lm, filter=OnlinePool(size=2), candidates=2, batch=4)
    found = pooled.compress(examples)
    assert [one.choice.skipped for one in found[:2]] == [None, None]
    assert XCompress(compressor, lm, filter="online_pool")._filter.size == 50


def test_a_failed_candidate_never_wins(lm, compressor, found, examples):
    good = found[0].choice.initial
    failed = dataclasses.replace(good, units=(), status="failed(non-finite at step 1)")
    chooser = XCompress(compressor, lm, selector="first", batch=4)
    (one,) = chooser.choose(examples[:1], [good], [[failed, good]], [None], np.full(1, np.nan))
    assert (one.choice.chosen, one.text) == (1, good.text)


def test_where_all_candidates_failed_the_result_has_failed(examples):
    table = chain({n: 120 for n in range(272)})
    table[120] = np.nan
    lm = bigram_model(table)
    (one,) = XCompress(
        FaviComp(compressor=lm, alpha=0.0, max_new=12, batch=4, prompts=SHORT), lm, selector="first", candidates=2
    ).compress(examples[:1])
    assert one.status.startswith("failed")
    assert all(np.isnan(one.choice.scores))


def test_the_call_takes_one_question_or_lists(lm, compressor, found):
    xcompress = ragjax.XCompress(compressor, lm, batch=4)
    single = xcompress("Who is 1?", ["Number 1 is 1."])
    several = xcompress(["Who is 1?", "Who is 2?"], [["Number 1 is 1."], ["Number 2 is 4."]])
    assert single.text == several[0].text
    assert single.choice.initial.text == found[1].choice.initial.text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"candidates": 0}, "candidates counts summaries"),
        ({"sampler": "beam"}, "sampler is one of"),
        ({"filter": "fixed"}, "filter is None, a Filter"),
        ({"selector": "best"}, "a selector is one of"),
        ({"temperature": -1.0}, "temperature"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(lm, compressor, settings, message):
    with pytest.raises(ValueError, match=message):
        XCompress(compressor, lm, **settings)
