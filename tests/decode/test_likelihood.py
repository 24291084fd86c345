"""Likelihoods become perplexities: which tokens count, how they are averaged, and what has no perplexity."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from ragjax.decode.engine import score_prompts
from ragjax.decode.likelihood import Score, score_span, summarize
from ragjax.decode.prompt import Prompt
from tests.oracle import bigram_stub


def of(nlls):
    return Score(math.fsum(nlls), len(nlls), 10)


def test_D02_pooled_and_mean_are_both_named():
    texts = [of([0.1, 0.2, 0.1]), of([0.3, 0.5, 0.1, 0.4, 0.2])]
    assert [round(s.perplexity, 4) for s in texts] == [1.1426, 1.3499]
    found = summarize(texts)
    assert (round(found.pooled, 4), round(found.mean, 4), found.count, found.skipped) == (1.2681, 1.2462, 2, 0)


def test_D02_interquartile_mean_drops_a_quarter_at_each_end():
    texts = [Score(math.log(p), 1, 1) for p in (100, 2, 3, 4, 5, 6, 7, 1)]
    found = summarize(texts)
    assert found.interquartile_mean == pytest.approx((3 + 4 + 5 + 6) / 4)
    assert found.median == pytest.approx(4.5)
    assert found.mean == pytest.approx(16)


def test_D07_texts_without_a_perplexity_are_skipped_and_counted():
    empty = score_span(np.zeros(5), 2, 2, "")
    blank = score_span(np.ones(5), 2, 4, " \n")
    single = score_span(np.ones(1), 0, 1, "A")
    broken = score_span(np.array([0, np.nan]), 1, 2, "B")
    reasons = [s.reason for s in (empty, blank, single, broken)]
    assert reasons == ["empty text", "empty text", "no token with anything before it", "non-finite likelihood"]
    assert all(s.perplexity is None and s.bits_per_byte is None for s in (empty, blank, single, broken))
    found = summarize([empty, blank, single, broken, None, of([1.0])])
    assert (found.count, found.skipped) == (1, 5)
    assert found.mean == pytest.approx(math.e)
    assert summarize([empty, None]) == summarize([None, None])
    assert summarize([empty]).mean is None


def test_D11_bits_per_byte_do_not_depend_on_the_tokens():
    coarse, fine = Score(6.0, 2, 12), Score(6.0, 12, 12)
    assert coarse.perplexity != fine.perplexity
    assert coarse.bits_per_byte == fine.bits_per_byte == pytest.approx(6 / math.log(2) / 12)


def test_the_first_token_of_a_row_is_not_counted():
    nll = np.array([0.0, 2.0, 3.0])
    assert score_span(nll, 0, 3, "abc") == Score(5.0, 2, 3)
    assert score_span(nll, 2, 3, "é") == Score(3.0, 1, 2)


@pytest.fixture(scope="module")
def successor():
    """The next id, modulo 10, has probability 0.9; the other nine share the rest."""
    table = np.zeros((10, 10), np.float32)
    table[np.arange(10), (np.arange(10) + 1) % 10] = math.log(81)
    return bigram_stub(table)


def score_ids(model, ids, start):
    text = " ".join(map(str, ids[start:]))
    return score_prompts(model, [Prompt(tuple(ids), "", {"text": text}, {"text": (start, len(ids))})], "text")[0]


def test_D06_targets_are_those_after_the_prompt(successor):
    good, bad = score_ids(successor, [0, 1, 2, 3, 4, 5], 3), score_ids(successor, [0, 1, 2, 3, 9, 5], 3)
    assert good.nll == pytest.approx(-3 * math.log(0.9), abs=1e-5)
    assert good.count == bad.count == 3
    assert bad.nll == pytest.approx(-math.log(0.9) - 2 * math.log(0.1 / 9), abs=1e-5)


def test_D10_id_zero_is_a_token_like_any_other(successor):
    ids, renamed = [0, 1, 0, 3, 0, 1], [4, 5, 4, 7, 4, 5]
    assert score_ids(successor, ids, 1).count == 5
    assert score_ids(successor, ids, 1).nll == pytest.approx(score_ids(successor, renamed, 1).nll, abs=1e-6)


def test_D06_a_span_across_blocks_of_positions_is_scored_whole(successor):
    ids = [n % 10 for n in range(300)]
    found = score_ids(successor, ids, 100)
    assert (found.count, found.nll) == (200, pytest.approx(-200 * math.log(0.9), abs=1e-3))


@pytest.mark.parametrize("bad", [10, -1, 2**31, 2**40])
def test_A18_ids_outside_the_table_are_refused(successor, bad):
    good = Prompt((1, 2), "", {"text": "x"}, {"text": (1, 2)})
    wrong = Prompt((1, bad), "", {"text": "x"}, {"text": (1, 2)})
    with pytest.raises(ValueError, match=rf"row 1: token id {bad} is outside stub's 10 embeddings"):
        score_prompts(successor, [good, wrong], "text")


def test_prompts_longer_than_the_model_are_refused(successor):
    short = SimpleNamespace(**{**vars(successor), "config": successor.config})
    ids = [1] * (short.config.max_positions + 1)
    with pytest.raises(ValueError, match="row 0: 2049 prompt tokens"):
        score_ids(short, ids, 2)
