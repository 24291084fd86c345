"""Choosing a token: which ids survive, how often each is drawn, and what a draw depends on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from ragjax.decode import loop, sampling
from ragjax.decode.engine import Sampling
from ragjax.decode.state import Knobs, Plan

restrict = jax.jit(sampling.restrict)
penalize = jax.jit(sampling.penalize)
sample = jax.jit(sampling.sample)
choose = jax.jit(loop.choose, static_argnums=0)

PLAN = Plan(groups=((0,),), configs=(), steps=(), mix="geometric", width=8, chunk=1, max_new=1)
"""All that choosing a token asks of a plan is how members mix."""

ROWS, WIDTH = 3, 16
SCORES = arrays(np.float32, (ROWS, WIDTH), elements=st.integers(-200, 200).map(lambda n: np.float32(n) / 10))


def every(value, kind, rows=ROWS):
    return np.full(rows, value, kind)


def keys(rows, seed=0):
    return sampling.row_keys(jnp.uint32(seed), jnp.arange(rows, dtype=jnp.uint32), *jnp.zeros((2, rows), jnp.int32))


@pytest.mark.parametrize("top_k", [0, 1, 7, 50, 80])
@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.999, 1.0])
def test_survivors_equal_those_of_transformers(top_k, top_p):
    from transformers import TopKLogitsWarper, TopPLogitsWarper

    scores = np.random.default_rng(0).standard_normal((20, 60)).astype(np.float32) * 3
    expected = torch.tensor(scores)
    if top_k:
        expected = TopKLogitsWarper(top_k)(None, expected)
    if top_p < 1:
        expected = TopPLogitsWarper(top_p)(None, expected)
    found = restrict(scores, every(top_k, np.int32, 20), every(top_p, np.float32, 20))
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected.numpy()))
    np.testing.assert_array_equal(np.asarray(found)[np.isfinite(found)], scores[np.isfinite(found)])


@settings(deadline=None, max_examples=200)
@given(SCORES, st.integers(0, 20), st.integers(1, 100).map(lambda n: n / 100))
def test_restrict_keeps_the_best_and_whatever_equals_it(scores, top_k, top_p):
    kept = np.isfinite(restrict(scores, every(top_k, np.int32), every(top_p, np.float32)))
    for row, mask in zip(scores, kept, strict=True):
        assert mask[row == row.max()].all()
        assert not (~mask).any() or row[mask].min() > row[~mask].max()
        at_most = WIDTH if not top_k else min(top_k, WIDTH)
        assert (row > row[mask].min()).sum() < at_most  # more than top_k only where the last place is shared
        if top_p == 1 and not top_k:
            assert mask.all()


@settings(deadline=None, max_examples=100)
@given(SCORES, arrays(bool, (ROWS, WIDTH)), st.integers(10, 40).map(lambda n: n / 10))
def test_penalty_never_raises_a_logit_and_touches_seen_ids_alone(logits, seen, penalty):
    found = np.asarray(penalize(logits, seen, every(penalty, np.float32)))
    assert (found <= logits + 1e-6).all()
    np.testing.assert_array_equal(found[~seen], logits[~seen])
    assert (np.sign(found) == np.sign(logits)).all()


def test_penalty_equals_that_of_transformers():
    from transformers import RepetitionPenaltyLogitsProcessor

    generator = np.random.default_rng(1)
    logits = generator.standard_normal((5, 40)).astype(np.float32) * 3
    ids = generator.integers(0, 40, (5, 12))
    seen = np.zeros((5, 40), bool)
    np.put_along_axis(seen, ids, True, axis=1)
    expected = RepetitionPenaltyLogitsProcessor(1.7)(torch.tensor(ids), torch.tensor(logits)).numpy()
    np.testing.assert_allclose(penalize(logits, seen, every(1.7, np.float32, 5)), expected, rtol=1e-6)


@pytest.mark.parametrize(("temperature", "top_k", "top_p"), [(1.0, 0, 1.0), (0.7, 0, 0.8), (1.6, 5, 1.0)])
def test_draws_follow_the_distribution(temperature, top_k, top_p):
    rows = 20_000
    logits = np.array([2.0, 1.5, 1.0, 0.3, 0.0, -0.5, -1.0, -2.0], np.float32)
    chances = np.exp(logits.astype(np.float64) / temperature)
    chances[top_k or len(logits) :] = 0
    chances /= chances.sum()
    chances[np.cumsum(chances) - chances >= top_p] = 0
    chances /= chances.sum()
    drawn = sample(
        np.tile(logits, (rows, 1)),
        keys(rows, 7),
        every(temperature, np.float32, rows),
        every(top_k, np.int32, rows),
        every(top_p, np.float32, rows),
    )
    counts = np.bincount(drawn, minlength=8)
    assert counts[chances == 0].sum() == 0
    possible = chances > 0
    assert stats.chisquare(counts[possible], rows * chances[possible]).pvalue > 1e-3


def test_B07_temperature_zero_is_greedy_bit_for_bit_and_tiny_ones_are_finite():
    scores = np.random.default_rng(2).standard_normal((64, 50)).astype(np.float32) * 5
    off = every(0, np.int32, 64), every(1, np.float32, 64)
    for temperature in (0.0, 1e-9, 1e-40):
        traced = jnp.full(64, temperature, jnp.float32)
        np.testing.assert_array_equal(sample(scores, keys(64), traced, *off), scores.argmax(-1))
    mixed = np.where(np.arange(64) % 2, 0.0, 1.0).astype(np.float32)
    found = sample(scores, keys(64), mixed, *off)
    np.testing.assert_array_equal(found[1::2], scores[1::2].argmax(-1))
    assert (found[::2] != scores[::2].argmax(-1)).any()


@pytest.mark.parametrize("kind", [float, np.float32, jnp.float32])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_B07_impossible_temperatures_are_refused(value, kind):
    with pytest.raises(ValueError, match="temperature must be finite and not negative"):
        Sampling(temperature=kind(value))


@pytest.mark.parametrize(
    ("knob", "message"),
    [
        ({"top_p": 0.0}, r"top_p lies in \(0, 1\], got 0"),
        ({"top_p": 1.1}, r"top_p lies in \(0, 1\], got 1.1"),
        ({"top_k": -1}, "top_k counts tokens"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be positive"),
        ({"repetition_penalty": float("inf")}, "repetition_penalty must be finite"),
        ({"penalty_scope": "all"}, "penalty_scope"),
        ({"seed": -1}, "a seed lies in"),
        ({"seed": 2**32}, "a seed lies in"),
    ],
)
def test_impossible_knobs_are_refused_by_name(knob, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**knob)


def test_B11_zero_is_a_seed_and_none_is_drawn():
    assert Sampling(seed=0).seeded().seed == 0
    drawn = {Sampling(seed=None).seeded().seed for _ in range(5)}
    assert len(drawn) > 1


def test_B10_a_key_depends_on_its_own_row_alone():
    ids, candidates, counts = (np.array(x) for x in ([5, 5, 9, 5], [0, 1, 0, 0], [3, 3, 3, 4]))
    all_rows = jax.random.key_data(sampling.row_keys(jnp.uint32(1), ids, candidates, counts))
    assert len(np.unique(all_rows, axis=0)) == 4
    alone = jax.random.key_data(sampling.row_keys(jnp.uint32(1), ids[2:3], candidates[2:3], counts[2:3]))
    np.testing.assert_array_equal(alone[0], all_rows[2])
    other = jax.random.key_data(sampling.row_keys(jnp.uint32(2), ids, candidates, counts))
    assert not (other == all_rows).all(axis=1).any()


@pytest.mark.parametrize(
    ("temperature", "top_p", "penalty"), [(1.0, 1.0, 1.0), (0.7, 1.0, 1.2), (1.5, 0.8, 1.0), (1.0, 0.75, 1.6)]
)
def test_G09_draws_follow_the_penalised_distribution(temperature, top_p, penalty):
    """The whole choice of a token, from raw logits: the reference is float64."""
    rows = 20_000
    logits = np.array([2.0, 1.5, 1.0, 0.3, 0.0, -0.5, -1.0, -2.0], np.float32)
    seen = np.array([True, False, False, True, False, False, True, False])
    wide = logits.astype(np.float64)
    wide = np.where(seen, np.where(wide > 0, wide / penalty, wide * penalty), wide) / temperature
    chances = np.exp(wide) / np.exp(wide).sum()
    order = np.argsort(-chances)
    before = np.cumsum(chances[order]) - chances[order]
    chances[order[before >= top_p]] = 0
    chances /= chances.sum()

    def row(value, kind):
        return np.full(rows, value, kind)

    knobs = Knobs(
        weights=np.ones((1, rows), np.float32),
        temperature=row(temperature, np.float32),
        top_k=row(0, np.int32),
        top_p=row(top_p, np.float32),
        penalty=row(penalty, np.float32),
        budget=row(1, np.int32),
        example=np.arange(rows, dtype=np.uint32),
        candidate=row(3, np.int32),
        seed=np.uint32(11),
        stops=np.full((rows, 1), -1, np.int32),
        allowed=np.ones(8, bool),
    )
    output, finite = choose(PLAN, knobs, np.tile(logits, (1, rows, 1)), np.tile(seen, (1, rows, 1)), row(0, np.int32))
    assert finite.all()
    counts, possible = np.bincount(output.token, minlength=8), chances > 0
    assert counts[~possible].sum() == 0
    assert stats.chisquare(counts[possible], rows * chances[possible]).pvalue > 1e-3
