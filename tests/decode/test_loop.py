"""The decode loop: who ends when and why, what a row's tokens depend on, and what they never depend on."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ragjax.decode import buckets, loop
from ragjax.decode.engine import COMPACT_FROM, Execution, Sampling
from ragjax.decode.state import Knobs, Member, Plan
from ragjax.models.cache import PromptCache
from ragjax.testing import tiny_config, tiny_model
from tests.oracle import PLAIN, as_prompt, bigram_model, chain, decode, some_prompts, tokens_of

SIZE, STOP_ID, LAST = 20, 9, 19
"""Ids of the stub, the one that stops, and one that is never likely."""


def stub_step(table, cfg, token, prompts, suffixes, cursor):
    """No model: step n of the row named by its prompt's length reads entry [n + 1, row] of the table."""
    return table[cursor + 1][prompts[0].lengths][None], suffixes


def stub_head(table, hidden, width):
    return hidden[..., :width]


def run_stub(table, max_new=16, budget=None, compaction=False, **changes):
    """Decode rows whose logits at step n are `table[n, row]`, whatever is chosen."""
    table = np.concatenate([table, table[-1:]])
    rows = table.shape[1]
    cfg = tiny_config(num_layers=1)
    plan = Plan(((0,),), (cfg,), ((stub_step, stub_head),), "geometric", SIZE, 4, max_new)
    empty = jnp.zeros((rows, cfg.num_kv_heads, 4, cfg.head_dim))
    cache = PromptCache((empty,), (empty,), jnp.ones((rows, 4), bool), jnp.arange(rows))
    prefilled = loop.Prefilled(jnp.asarray(table[0]), cache, jnp.zeros((rows, SIZE), bool), None)

    def every(value, kind):
        return np.full(rows, value, kind)

    knobs = Knobs(
        weights=np.ones((1, rows), np.float32),
        temperature=every(0, np.float32),
        top_k=every(0, np.int32),
        top_p=every(1, np.float32),
        penalty=every(1, np.float32),
        budget=every(max_new, np.int32) if budget is None else np.asarray(budget, np.int32),
        example=np.arange(rows, dtype=np.uint32),
        candidate=every(0, np.int32),
        seed=np.uint32(0),
        stops=np.full((rows, 1), STOP_ID, np.int32),
        allowed=np.arange(SIZE) != LAST,
    )
    knobs = knobs.replace(**changes)
    state = loop.start(plan, [prefilled], rows, knobs.budget)
    members = (Member(cache, prefilled.seen),)
    return loop.decode_rows(plan, (jnp.asarray(table),), members, knobs, state, compact_from=1 if compaction else None)


def table_of(choices, steps=16):
    """Logits [steps, rows, SIZE] whose best id at step n of row r is `choices[r][n]`, the last one repeated."""
    table = np.zeros((steps, len(choices), SIZE), np.float32)
    for row, ids in enumerate(choices):
        for step in range(steps):
            table[step, row, ids[min(step, len(ids) - 1)]] = 5.0
    return table


@pytest.mark.parametrize("compaction", [False, True])
def test_B06_every_row_ends_on_its_own(compaction):
    choices = [[STOP_ID, 1], [2, 3, 4, 5, 6, STOP_ID, 7], [8], [1]]
    rows, steps = run_stub(table_of(choices), budget=[16, 16, 16, 0], compaction=compaction)
    assert [row.tokens.tolist() for row in rows] == [[], [2, 3, 4, 5, 6], [8] * 16, []]
    assert [row.finish_reason for row in rows[:3]] == ["stop", "stop", "length"]
    for row in rows:
        count = len(row.tokens)
        assert row.log_probs.shape == (count,)
        assert row.member_log_probs.shape == row.member_argmax.shape == (1, count)
    assert steps == 16
    expected = 5 - np.log(np.exp(5) + SIZE - 2)
    np.testing.assert_allclose(rows[1].log_probs, expected, rtol=1e-5)


def test_B06_the_loop_stops_within_a_chunk_of_the_longest_row():
    for length in (0, 3, 4, 5, 11):
        rows, steps = run_stub(table_of([[1] * length + [STOP_ID], [STOP_ID], [2, STOP_ID], [STOP_ID]]))
        assert len(rows[0].tokens) == length
        assert 0 <= steps - (length + 1) < 4  # the stop id takes a step of its own


def test_budgets_end_rows_one_by_one():
    rows, steps = run_stub(table_of([[1], [2], [3], [4]]), budget=[1, 4, 5, 7])
    assert [len(row.tokens) for row in rows] == [1, 4, 5, 7]
    assert {row.finish_reason for row in rows} == {"length"}
    assert steps == 8


BROKEN = {"all_minus_inf": -np.inf, "one_nan": np.nan, "plus_inf": np.inf}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_B09_a_non_finite_row_fails_alone(name, temperature):
    clean = table_of([[1], [2], [3], [4]])
    broken = clean.copy()
    broken[3, 2] = -np.inf if name == "all_minus_inf" else broken[3, 2]
    broken[3, 2, 11] = BROKEN[name]
    knobs = {"temperature": np.full(4, temperature, np.float32)}
    (expected, _), (found, _) = run_stub(clean, **knobs), run_stub(broken, **knobs)
    assert found[2].finish_reason == "failed(non-finite at step 3)"
    assert found[2].tokens.tolist() == expected[2].tokens.tolist()[:3]
    for row in (0, 1, 3):
        assert found[row].finish_reason == "length"
        assert found[row].tokens.tolist() == expected[row].tokens.tolist()


def test_B09_nothing_allowed_is_a_failure_and_masked_ids_may_be_anything():
    only_masked = np.full((16, 4, SIZE), -np.inf, np.float32)
    only_masked[..., LAST] = 0
    rows, _ = run_stub(only_masked)
    assert {row.finish_reason for row in rows} == {"failed(non-finite at step 0)"}
    impossible = table_of([[1], [2], [3], [4]])
    impossible[..., 5:8] = -np.inf
    rows, _ = run_stub(impossible)
    assert [row.tokens[0] for row in rows] == [1, 2, 3, 4]


def test_a_masked_id_is_never_chosen_though_it_is_the_likeliest():
    table = table_of([[LAST], [LAST], [LAST], [LAST]])
    table[..., 4] = 1
    for temperature in (0.0, 5.0):
        rows, _ = run_stub(table, temperature=np.full(4, temperature, np.float32))
        assert all(LAST not in row.tokens for row in rows)
    rows, _ = run_stub(table)
    assert all((row.tokens == 4).all() for row in rows)
    assert all((row.member_argmax == 4).all() for row in rows)


def test_B10_the_samples_of_a_flat_distribution_differ():
    flat = np.zeros((16, 4, SIZE), np.float32)
    sampled = {"temperature": np.ones(4, np.float32), "stops": np.full((4, 1), -1, np.int32)}
    rows, _ = run_stub(flat, example=np.zeros(4, np.uint32), candidate=np.arange(4, dtype=np.int32), **sampled)
    assert len({tuple(row.tokens) for row in rows}) == 4
    assert all(len(set(row.tokens)) > 4 for row in rows)  # one key for all steps would repeat one id
    again, _ = run_stub(flat, example=np.zeros(4, np.uint32), candidate=np.arange(4, dtype=np.int32), **sampled)
    assert [row.tokens.tolist() for row in again] == [row.tokens.tolist() for row in rows]


@pytest.fixture(scope="module")
def lm():
    return tiny_model()


def test_B01_greedy_tokens_do_not_depend_on_the_company(lm, monkeypatch):
    generator = np.random.default_rng(0)
    prompts = [as_prompt(generator.integers(0, 256, n)) for n in (3, 17, 64)]
    dummy = as_prompt(generator.integers(0, 256, 50))

    def run(which):
        return [rows[0] for rows in tokens_of(decode(lm, which, max_new=32))]

    together = run(prompts)
    assert len({tuple(row) for row in together}) == 3
    assert run(prompts[::-1]) == together[::-1]
    assert run([*prompts, dummy])[:3] == together
    assert [run([prompt])[0] for prompt in prompts] == together
    monkeypatch.setattr(buckets, "SHORTEST", 128)
    assert run(prompts) == together


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_that_end_at_different_steps_with_and_without_compaction(temperature):
    """Chains of tokens that reach the stop id after 2, 3, 9 and 12 or more steps."""
    lm = bigram_model(chain({}, strength=14.0))
    lm = dataclasses.replace(lm, stop_ids=(100, 101))
    prompts = [as_prompt([5] * 48 + [100 - n]) for n in (3, 10, 40, 4)]
    sampling = Sampling(temperature=temperature)
    found = [
        decode(lm, prompts, sampling=sampling, execution=Execution(batch=4, compaction=on)) for on in (False, True)
    ]
    assert tokens_of(found[0]) == tokens_of(found[1])
    assert [len(rows[0].tokens) for rows in found[0].rows] == [2, 9, 12, 3]
    assert [rows[0].finish_reason for rows in found[0].rows] == ["stop", "stop", "length", "stop"]
    for one, two in zip(found[0].rows, found[1].rows, strict=True):
        np.testing.assert_allclose(one[0].log_probs, two[0].log_probs, atol=1e-6)


def test_B10_G09_samples_depend_on_the_example_and_the_candidate_alone(lm):
    prompts = some_prompts(6)
    ids, order = [f"q{n}" for n in range(6)], [3, 0, 5, 1, 4, 2]

    def run(batch, which=range(6), candidates=3):
        found = decode(
            lm,
            [prompts[i] for i in which],
            max_new=4,
            ids=[ids[i] for i in which],
            weights=[(1.0,)] * candidates,
            sampling=Sampling(temperature=1.0, repetition_penalty=1.2, seed=7),
            execution=Execution(batch=batch, compaction=False),
        )
        return dict(zip(which, tokens_of(found), strict=True))

    expected = run(6)
    assert len({tuple(row) for rows in expected.values() for row in rows}) == 18
    assert run(1) == run(3) == run(6, order) == expected
    without = run(6, [0, 1, 3, 4, 5])
    assert without == {i: rows for i, rows in expected.items() if i != 2}
    assert {i: rows[:3] for i, rows in run(6, candidates=5).items()} == expected


def test_B10_equal_prompts_without_ids_get_samples_of_their_own(lm):
    (prompt, other) = some_prompts(2)
    settings = {"max_new": 12, "sampling": Sampling(temperature=1.0)}
    twice = tokens_of(decode(lm, [prompt, other, prompt], **settings))
    assert twice[0] != twice[2]
    assert tokens_of(decode(lm, [other, prompt, prompt], **settings)) == [twice[1], twice[0], twice[2]]


def test_B07_temperature_zero_equals_greedy_bit_for_bit(lm):
    """In one batch with sampled rows, and in the greedy mode of its own."""
    prompts = some_prompts(4)
    greedy = decode(lm, prompts)
    explicit = decode(lm, prompts, sampling=Sampling(temperature=0.0, top_k=3, top_p=0.5, seed=99))
    tiny = decode(lm, prompts, sampling=Sampling(temperature=1e-9))
    assert tokens_of(greedy) == tokens_of(explicit) == tokens_of(tiny)
    for one, two in zip(greedy.rows, explicit.rows, strict=True):
        np.testing.assert_array_equal(one[0].log_probs, two[0].log_probs)
    assert all(np.isfinite(rows[0].log_probs).all() for rows in tiny.rows)


def test_B11_zero_settings_are_values(lm):
    prompts = some_prompts(4)

    def run(seed):
        return tokens_of(decode(lm, prompts, sampling=Sampling(temperature=1.0, top_k=0, seed=seed)))

    assert run(0) == run(0) != run(1)
    assert run(None) != run(None)
    drawn = decode(lm, prompts, sampling=Sampling(temperature=1.0, seed=None))
    assert run(drawn.seed) == tokens_of(drawn)
    with pytest.raises(ValueError, match="max_new counts new tokens and is at least 1, got 0"):
        decode(lm, prompts, max_new=0)


def test_sampled_tokens_are_among_the_top_k(lm):
    prompts = some_prompts(4)
    result = decode(lm, prompts, weights=[(1.0,)] * 8, sampling=Sampling(temperature=3.0, top_k=2))
    seen = {tuple(row.tokens) for rows in result.rows for row in rows}
    assert len(seen) > 4
    for row in (row for rows in result.rows for row in rows):
        chance = np.exp(row.log_probs)
        assert (chance[row.tokens != row.member_argmax[0]] <= 0.5).all()


def test_B13_ids_beyond_the_tokenizer_are_never_emitted():
    table = chain({})
    table[:, 265] = 30.0  # a row of the padded table that would always win
    lm = bigram_model(table)
    prompts = some_prompts(4)
    greedy = tokens_of(decode(lm, prompts))
    assert greedy == [[[(p.ids[-1] + n) % 272 for n in range(1, 13)]] for p in prompts]
    sampled = decode(lm, prompts, weights=[(1.0,)] * 8, sampling=Sampling(temperature=2.0))
    assert max(row.tokens.max() for rows in sampled.rows for row in rows) < 261
    for rows in sampled.rows:
        for row in rows:
            assert (np.exp(row.log_probs) > 1e-4).all()  # the 261 ids share all the probability


@pytest.mark.parametrize("bad", [272, -1, 2**31, 2**40])
def test_A18_ids_outside_the_table_are_refused_before_the_device(lm, bad):
    good = as_prompt([1, 2, 3])
    with pytest.raises(ValueError, match=rf"row 1: token id {bad} is outside tiny-llama-0's 272 embeddings"):
        decode(lm, [good, as_prompt([1, bad, 3])])


def test_jobs_that_make_no_sense_are_refused(lm):
    prompts = some_prompts(1)
    with pytest.raises(ValueError, match="row 0: the prompt has no tokens"):
        decode(lm, [as_prompt([])])
    with pytest.raises(ValueError, match="mix is one of"):
        decode(lm, prompts, mix="logits")
    for weights in ([(0.5,)], [(1.0, 0.0)], [(-1.0,)], [(float("nan"),)]):
        with pytest.raises(ValueError, match="one share a member"):
            decode(lm, prompts, weights=weights)
    with pytest.raises(ValueError, match="1 examples of 1 candidates need as many ids and draws, got 2 and 1"):
        decode(lm, prompts, ids=["a", "b"])
    with pytest.raises(ValueError, match="got 1 and 2"):
        decode(lm, prompts, draws=(0, 1))


def test_B14_a_limit_counts_new_tokens_and_prompts_that_do_not_fit_are_refused():
    lm = tiny_model(max_positions=64)
    assert len(decode(lm, [as_prompt(range(50))], max_new=12).rows[0][0].tokens) == 12
    with pytest.raises(ValueError, match="row 0: 50 prompt tokens and 15 new ones exceed the 64 positions"):
        decode(lm, [as_prompt(range(50))], max_new=15)


def test_prefill_in_micro_batches_equals_one_batch(lm, monkeypatch):
    tokens, valid = buckets.left_pad([p.ids for p in some_prompts(4)], 4, 64)
    span = np.arange(64) > 40
    args = (lm.params, lm.config, tokens, valid, np.tile(span, (4, 1)))
    whole = loop.prefill(*args, width=261)
    monkeypatch.setattr(loop, "PREFILL_TOKENS", 128)
    parts = loop.prefill(*args, width=261)
    for one, two in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)


def test_execution_decides_compaction_by_the_device():
    alone = jax.default_backend() == "cpu" and jax.device_count() == 1
    assert Execution().compact_from == (COMPACT_FROM if alone else None)
    assert Execution(compaction=True).compact_from == 1
    assert PLAIN.compact_from is None
