"""Which questions skip the sampling: rho in numpy, thresholds by hand, and what a filter refuses."""

import dataclasses

import numpy as np
import pytest

from ragjax.compress import filters
from ragjax.compress.base import Budget
from ragjax.compress.favicomp import FaviComp
from ragjax.compress.filters import Filter, OnlinePool, calibrate_filter, concentration, measure
from ragjax.data.records import Example
from ragjax.decode.states import pool
from tests.oracle import SHORT


@pytest.fixture(scope="module")
def fixed(lm, compressor, examples):
    return calibrate_filter(compressor, lm, examples[:5], share=0.4, batch=4)


def test_rho_is_what_the_method_says():
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(2, 5, 6)).astype(np.float32)
    mask = np.array([[0, 1, 1, 1, 1], [0, 0, 0, 1, 1]], bool)
    pooled = pool(hidden, mask)
    rows = [hidden[0, 1:].astype(float), hidden[1, 3:].astype(float)]
    expected = [np.linalg.norm(h.mean(axis=0)) / np.abs(h.max(axis=0)).sum() for h in rows]
    np.testing.assert_allclose(concentration(pooled), expected, rtol=1e-5)
    expected = [np.linalg.norm(h, axis=1).mean() / np.abs(h).sum(axis=1).max() for h in rows]
    np.testing.assert_allclose(concentration(pooled, "token_norms"), expected, rtol=1e-5)
    with pytest.raises(ValueError, match="rho is one of"):
        concentration(pooled, "norm")


def test_the_top_share_of_the_calibration_questions_exceed_the_threshold(lm, compressor, fixed, examples):
    texts = [one.text for one in compressor.compress(examples[:5])]
    values = measure(lm, texts, rho="pooled", first_token="keep", layer=-2, batch=4)
    assert sum(values > fixed.threshold) == 2 == int(0.4 * 5)
    assert fixed.threshold in values
    assert fixed.keeps(np.array([np.nan, fixed.threshold, fixed.threshold + 1e-3])).tolist() == [False, False, True]


def test_a_share_is_meant_in_decimals(lm, compressor, monkeypatch, examples):
    monkeypatch.setattr(FaviComp, "compress", lambda self, examples, budget: [])
    monkeypatch.setattr(filters, "measure", lambda *_, **__: np.arange(100.0))
    # In binary 0.29 of 100 is less than 29.
    assert sum(np.arange(100.0) > calibrate_filter(compressor, lm, [], share=0.29).threshold) == 29


def test_a_filter_is_stored_with_its_key_and_never_replaced(fixed, tmp_path):
    path = tmp_path / "filter.json"
    fixed.save(path)
    assert Filter.load(path) == fixed
    with pytest.raises(FileExistsError, match=r"filter\.json"):
        fixed.save(path)
    with pytest.raises(FileExistsError, match=r"filter\.json"):
        calibrate_filter(None, None, [], path=path)
    path.write_text('{"threshold": 1}')
    with pytest.raises(ValueError, match=r"filter\.json: no filter of ours"):
        Filter.load(path)


def test_a_filter_refuses_its_own_questions_and_other_models_or_prompts(lm, compressor, fixed, examples):
    fixed.check(lm, compressor, examples[5:])
    with pytest.raises(ValueError, match="'q4' is one of those the filter was calibrated on"):
        fixed.check(lm, compressor, examples[4:])
    renamed = [dataclasses.replace(examples[0], id="other", answers=("changed",))]
    with pytest.raises(ValueError, match="'other' is one of those"):
        fixed.check(lm, compressor, renamed)
    with pytest.raises(ValueError, match="another reader"):
        fixed.check(dataclasses.replace(lm, fingerprint="other"), compressor, examples[5:])
    changes = {
        "max_new": 13,
        "alpha": 0.5,
        "prompts": dataclasses.replace(SHORT, compress_user="{question}{documents}"),
    }
    for name, value in changes.items():
        with pytest.raises(ValueError, match="another compressor"):
            fixed.check(lm, dataclasses.replace(compressor, target=lm, **{name: value}), examples[5:])
    fixed.check(lm, dataclasses.replace(compressor, batch=2), examples[5:])
    with pytest.raises(ValueError, match="another compressor or budget"):
        fixed.check(lm, compressor, examples[5:], Budget(tokens=9))


def test_calibration_needs_questions_and_a_share(lm, compressor, examples):
    with pytest.raises(ValueError, match="share lies in"):
        calibrate_filter(compressor, lm, examples, share=1.0)
    with pytest.raises(ValueError, match="0 of the 1 calibration questions have a summary"):
        calibrate_filter(compressor, lm, [Example("e", "Who?")])


def test_the_online_pool_is_the_published_codes():
    pool = OnlinePool(size=4, share=0.5)
    assert pool.keeps(np.array([3.0, 1.0, 2.0, 4.0])).tolist() == [False] * 4
    # The pool's value at rank 0.5 * 4 is 2: 2.5 is above it and replaces the highest value.
    assert pool.keeps(np.array([2.5])).tolist() == [True]
    assert sorted(pool.pool) == [1.0, 2.0, 2.5, 3.0]
    assert pool.keeps(np.array([0.5])).tolist() == [False]
    assert sorted(pool.pool) == [0.5, 2.0, 2.5, 3.0]
    assert pool.keeps(np.array([np.nan])).tolist() == [False]
    assert len(pool.pool) == 4
