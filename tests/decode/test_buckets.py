"""Batches and their padding: every example once, nothing cut, few lengths, little waste."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragjax.decode import buckets

LENGTHS = st.lists(st.tuples(st.integers(1, 4000), st.integers(1, 700)), min_size=1, max_size=120)


def test_the_ladder_is_powers_of_two_and_the_halves_between():
    assert [buckets.bucket(n) for n in (1, 32, 33, 48, 49, 64, 65, 97, 500, 513)] == [
        32, 32, 48, 48, 64, 64, 96, 128, 512, 768,
    ]  # fmt: skip


@given(st.integers(1, 200_000))
def test_a_bucket_holds_its_length_and_is_at_most_half_as_long_again(length):
    size = buckets.bucket(length)
    assert size >= length
    assert size == buckets.SHORTEST or size < 1.5 * length
    assert buckets.bucket(size) == size


@given(LENGTHS, st.integers(1, 12))
def test_a_plan_holds_every_example_once_and_every_prompt_whole(lengths, batch):
    plan = buckets.plan_batches(lengths, batch)
    assert sorted(i for b in plan.batches for i in b.indices) == list(range(len(lengths)))
    assert {b.rows for b in plan.batches} == {plan.batches[0].rows}
    for b in plan.batches:
        assert len(b.indices) <= b.rows <= batch
        for member, padded in enumerate(b.lengths):
            assert max(lengths[i][member] for i in b.indices) <= padded
    for member in range(2):
        assert len({b.lengths[member] for b in plan.batches}) <= buckets.MAX_BUCKETS
    assert plan.real_tokens == sum(map(sum, lengths))
    assert plan.padded_tokens == sum(b.rows * sum(b.lengths) for b in plan.batches)


@given(LENGTHS, st.randoms())
def test_a_plan_depends_on_lengths_not_on_their_order(lengths, random):
    shuffled = random.sample(lengths, len(lengths))
    plans = [buckets.plan_batches(x, 4) for x in (lengths, shuffled)]
    shapes = [sorted((b.rows, *b.lengths[:1]) for b in plan.batches) for plan in plans]
    assert shapes[0] == shapes[1]


def test_H05_padding_ratio_of_a_usual_job():
    lengths = np.random.default_rng(0).integers(10, 501, 60)[:, None]
    assert buckets.plan_batches(lengths, 8).padding_ratio <= 1.6


def test_more_lengths_than_buckets_are_raised_never_lowered():
    lengths = [[n] for n in np.linspace(10, 30_000, 64).astype(int)]
    plan = buckets.plan_batches(lengths, 2)
    assert len({b.lengths for b in plan.batches}) == buckets.MAX_BUCKETS
    assert all(b.lengths[0] >= max(lengths[i][0] for i in b.indices) for b in plan.batches)


def test_small_and_empty_jobs():
    assert buckets.plan_batches([], 4).batches == ()
    assert buckets.plan_batches([], 4).padding_ratio == 0
    (only,) = buckets.plan_batches([[40]] * 3, 8).batches
    assert (only.rows, only.lengths) == (4, (48,))
    with pytest.raises(ValueError, match="at least 1 row"):
        buckets.plan_batches([[1]], 0)


@given(st.lists(st.lists(st.integers(0, 9), max_size=20), max_size=5), st.integers(0, 3), st.integers(0, 4))
def test_left_pad_keeps_every_token_at_the_right_end(prompts, more_rows, more):
    rows, length = len(prompts) + more_rows, max(map(len, prompts), default=0) + more
    tokens, valid = buckets.left_pad(prompts, rows, length)
    assert tokens.shape == valid.shape == (rows, length)
    assert [row[mask].tolist() for row, mask in zip(tokens, valid, strict=True)] == [*prompts, *[[]] * more_rows]
    # Real tokens are contiguous and end the row: the mask never falls again.
    assert (np.diff(valid.astype(int), axis=1) >= 0).all()


def test_a_prompt_longer_than_its_row_is_an_error_not_a_cut():
    with pytest.raises(ValueError, match="broadcast"):
        buckets.left_pad([[1, 2, 3]], 1, 2)
