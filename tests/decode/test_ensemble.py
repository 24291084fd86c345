"""Two models, one text: the mixture's arithmetic, which vocabularies may mix, and that alpha 0 and 1 are one model."""

import dataclasses
import math
from itertools import chain as chained

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ragjax.decode.engine import Execution, Sampling
from ragjax.decode.ensemble import VocabularyMismatch, mix_log_probs, share_vocabulary
from ragjax.testing import byte_tokenizer, random_params, tiny_model
from tests.oracle import (
    bigram_model,
    chain,
    decode,
    decode_pair,
    log_softmax,
    pair,
    plain_loop,
    some_prompts,
    tokens_of,
)

mixed = jax.jit(mix_log_probs, static_argnames=("kind",))
Z1, Z2 = np.array([3, 0, 2], np.float32), np.array([0, 3, 2.2], np.float32)


def mix(logits, shares, kind, allowed=None):
    logs = jax.nn.log_softmax(jnp.asarray(logits)[:, None])
    every = np.ones(logs.shape[-1], bool) if allowed is None else allowed
    return np.asarray(mixed(logs, jnp.asarray(shares)[:, None], every, kind=kind))[0]


@pytest.mark.parametrize(("kind", "winner"), [("geometric", 2), ("arithmetic", 0)])
def test_C07_the_two_mixtures_choose_differently(kind, winner):
    found = mix([Z1, Z2], [0.5, 0.5], kind)
    one, two = log_softmax(Z1), log_softmax(Z2)
    exact = 0.5 * one + 0.5 * two if kind == "geometric" else np.log(0.5 * np.exp(one) + 0.5 * np.exp(two))
    np.testing.assert_allclose(found, exact, atol=1e-6)
    assert found.argmax() == winner
    np.testing.assert_allclose(mix([Z1, Z2 + 100], [0.5, 0.5], kind), exact, atol=2e-5)
    assert mix([Z1, Z2 + 100], [0.5, 0.5], kind).argmax() == winner


@pytest.mark.parametrize("kind", ["geometric", "arithmetic"])
def test_masked_and_impossible_ids_are_minus_infinity_never_nan(kind):
    with_hole = np.array([3, -np.inf, 2], np.float32)
    for shares in ([0.5, 0.5], [1.0, 0.0], [0.0, 1.0]):
        found = mix([with_hole, Z2], shares, kind, np.array([True, True, False]))
        assert not np.isnan(found).any()
        assert found[2] == -np.inf
    assert mix([with_hole, Z2], [0.0, 1.0], kind)[1] == pytest.approx(log_softmax(Z2)[1])
    broken = np.full(3, np.nan, np.float32)
    np.testing.assert_allclose(mix([broken, Z2], [0.0, 1.0], kind), log_softmax(Z2), atol=1e-6)


@settings(deadline=None, max_examples=60)
@given(
    arrays(np.float32, (2, 12), elements=st.integers(-300, 300).map(lambda n: np.float32(n) / 10)),
    st.integers(0, 20).map(lambda n: n / 20),
)
def test_mixing_commutes_and_lies_between_the_members(logits, alpha):
    for kind in ("geometric", "arithmetic"):
        found = mix(logits, [1 - alpha, alpha], kind)
        np.testing.assert_allclose(found, mix(logits[::-1], [alpha, 1 - alpha], kind), atol=1e-4)
        logs = log_softmax(logits)
        assert (found >= logs.min(axis=0) - 1e-4).all()
        assert (found <= logs.max(axis=0) + 1e-4).all()


# Vocabularies.


def word_tokenizer(size=120, swapped=(), eos="w1", added=()):
    """A tokenizer of `size` words; `swapped` exchanges the ids of two, `added` are further special tokens."""
    from tokenizers import AddedToken, Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    ids = {f"w{n}": n for n in range(size)}
    if swapped:
        one, two = swapped
        ids[one], ids[two] = ids[two], ids[one]
    backend = Tokenizer(models.WordLevel(ids, unk_token="w0"))
    backend.add_special_tokens([AddedToken(text, special=True) for text in added])
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="w0", eos_token=eos)


def word_model(rows, seed, tokenizer=None, **changes):
    lm = tiny_model(seed, vocab_size=rows, **changes)
    return dataclasses.replace(lm, tokenizer=tokenizer or word_tokenizer(), stop_ids=(1,), name=f"words-{rows}")


def cut(lm, rows):
    """The same model with only the first rows of its tables."""
    params = lm.params.replace(embedding=lm.params.embedding[:rows], head=lm.params.head[:rows])
    return dataclasses.replace(lm, params=params, config=dataclasses.replace(lm.config, vocab_size=rows))


def word_prompts(seed=0):
    prompts = some_prompts(4, seed)
    return [dataclasses.replace(p, ids=tuple(i % 120 for i in p.ids)) for p in prompts]


def test_C01_tables_of_different_height_mix_over_the_shared_tokens():
    small, large = word_model(128, 0), word_model(136, 1)
    for lm in (small, large):  # the last rows would win everywhere if they took part
        assert lm.vocab_width == 120
    params = large.params.replace(head=large.params.head.at[130].mul(50.0))
    large = dataclasses.replace(large, params=params)
    prompts = word_prompts(0), word_prompts(1)
    found = decode_pair(small, large, 0.3, prompts)
    swapped = decode_pair(large, small, 0.7, prompts[::-1])
    assert tokens_of(found) == tokens_of(swapped)
    assert tokens_of(found) == tokens_of(decode_pair(cut(small, 120), cut(large, 120), 0.3, prompts))
    assert len({tuple(rows[0].tokens) for rows in found.rows}) == 4
    for one, two in zip(found.rows, swapped.rows, strict=True):
        np.testing.assert_allclose(one[0].log_probs, two[0].log_probs, atol=1e-5)
        np.testing.assert_allclose(one[0].member_log_probs, two[0].member_log_probs[::-1], atol=1e-5)


def test_C03_ids_that_mean_other_strings_are_refused():
    first, other = word_model(128, 0), word_model(128, 1, word_tokenizer(swapped=("w7", "w30")))
    message = r"do not share a vocabulary: 2 ids differ, first id 7 is 'w7' and 'w30'; id 30 is 'w30' and 'w7'"
    prompts = word_prompts()
    with pytest.raises(VocabularyMismatch, match=message):
        decode_pair(first, other, 0.5, (prompts, prompts))
    with pytest.raises(VocabularyMismatch, match=message):
        share_vocabulary([first, other], admit_added=True)
    with pytest.raises(VocabularyMismatch, match="do not share a vocabulary"):
        share_vocabulary([first, tiny_model()])
    with pytest.raises(VocabularyMismatch, match="id 119 is 'w119' and None"):
        share_vocabulary([first, word_model(128, 1, word_tokenizer(119))])


def test_C03_other_special_ids_are_refused():
    first, other = word_model(128, 0), word_model(128, 1, word_tokenizer(eos="w5"))
    with pytest.raises(VocabularyMismatch, match="eos_token_id is 1 and 5"):
        share_vocabulary([first, other])
    assert share_vocabulary([first, other], admit_added=True).masked == ()


def test_C05_two_tokenizers_are_never_bridged_through_text():
    """There is no mode that re-tokenises one model's text for another: such a pair is refused, added tokens or not."""
    words, characters = word_model(128, 0), tiny_model()
    for pairs in ([words, characters], [characters, words]):
        for admitted in (False, True):
            with pytest.raises(VocabularyMismatch, match="do not share a vocabulary"):
                share_vocabulary(pairs, admit_added=admitted)


def test_C04_pairs_that_differ_in_added_tokens_mix_only_by_name():
    base = word_model(128, 0, word_tokenizer(added=("<a>", "<b>", "<c>")))
    instruct = word_model(128, 1, word_tokenizer(added=("<x>", "<b>", "<z>")))
    prompts = word_prompts(), word_prompts(1)
    with pytest.raises(VocabularyMismatch, match="2 ids differ, first id 120 is '<a>' and '<x>'"):
        decode_pair(base, instruct, 0.5, prompts)
    vocabulary = share_vocabulary([base, instruct], admit_added=True)
    assert (vocabulary.width, vocabulary.masked) == (123, (120, 122))
    head = base.params.head.at[jnp.array([120, 122])].mul(40.0)
    loud = dataclasses.replace(base, params=base.params.replace(head=head))
    found = decode_pair(loud, instruct, 0.5, prompts, admit_added=True)
    assert not {120, 122} & {int(i) for rows in found.rows for i in rows[0].tokens}
    longer = word_model(128, 1, word_tokenizer(added=("<a>", "<b>", "<c>", "<d>")))
    assert share_vocabulary([base, longer], admit_added=True).width == 123


def test_C08_the_stop_ids_of_all_members_stop():
    first = dataclasses.replace(bigram_model(chain({})), stop_ids=(5, 5))
    second = dataclasses.replace(bigram_model(chain({}), name="second"), stop_ids=(5, 9))
    prompts = [
        dataclasses.replace(p, ids=(*p.ids[:-1], last)) for p, last in zip(some_prompts(4), (6, 2, 3, 7), strict=True)
    ]
    found = decode_pair(first, second, 0.5, (prompts, prompts))
    assert tokens_of(found) == [[[7, 8]], [[3, 4]], [[4]], [[8]]]
    assert {rows[0].finish_reason for rows in found.rows} == {"stop"}


def test_C08_a_candidate_stops_as_the_members_that_have_a_share_in_it():
    first = dataclasses.replace(bigram_model(chain({})), stop_ids=(5,))
    second = dataclasses.replace(bigram_model(chain({}), name="second"), stop_ids=(9,))
    prompts = [dataclasses.replace(p, ids=(*p.ids[:-1], 3)) for p in some_prompts(2)]
    found = decode_pair(first, second, (0.0, 0.5, 1.0), (prompts, prompts))
    assert tokens_of(found) == [[[4], [4], [4, 5, 6, 7, 8]]] * 2


# Whole decodes of two models.


@pytest.fixture(scope="module")
def models():
    return tiny_model(0), tiny_model(1)


@pytest.fixture(scope="module")
def prompts():
    return some_prompts(4, 0), some_prompts(4, 1)


@pytest.mark.parametrize("penalty", [1.0, 1.4])
def test_alpha_zero_and_one_are_the_models_alone(models, prompts, penalty):
    settings = {"sampling": Sampling(repetition_penalty=penalty)}
    found = decode_pair(*models, [0.0, 0.5, 1.0], prompts, **settings)
    for member, candidate in ((0, 0), (1, 2)):
        alone = decode(models[member], prompts[member], **settings)
        assert [rows[candidate] for rows in tokens_of(found)] == [rows[0] for rows in tokens_of(alone)]
        for rows, (row,) in zip(found.rows, alone.rows, strict=True):
            np.testing.assert_allclose(rows[candidate].log_probs, row.log_probs, atol=1e-5)


@pytest.mark.parametrize("kind", ["geometric", "arithmetic"])
def test_an_ensemble_equals_a_plain_loop_over_transformers(kind):
    pairs, prompts = (pair(0), pair(1)), (some_prompts(4, 0), some_prompts(4, 1))
    alphas = (0.3, 0.5, 0.7) if kind == "geometric" else (0.5,)
    found = decode_pair(pairs[0].ours, pairs[1].ours, alphas, prompts, mix=kind)
    stops = pairs[0].ours.stop_ids
    for index, (one, two) in enumerate(zip(*prompts, strict=True)):
        for candidate, alpha in enumerate(alphas):
            members = [(pairs[0], one.ids, 1 - alpha), (pairs[1], two.ids, alpha)]
            assert tokens_of(found)[index][candidate] == plain_loop(members, 12, stops, kind)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_several_alphas_are_each_alpha_alone(models, prompts, temperature):
    alphas = (0.3, 0.5, 1.0)
    settings = {"sampling": Sampling(temperature=temperature)}
    together = tokens_of(decode_pair(*models, alphas, prompts, draws=(0, 0, 0), **settings))
    for candidate, alpha in enumerate(alphas):
        alone = tokens_of(decode_pair(*models, alpha, prompts, **settings))
        assert [rows[candidate] for rows in together] == [rows[0] for rows in alone]


def test_identical_members_are_the_single_model(models, prompts):
    lm, (own, _) = models[0], prompts
    single = tokens_of(decode(lm, own))
    for kind in ("geometric", "arithmetic"):
        assert tokens_of(decode_pair(lm, lm, 0.5, (own, own), mix=kind)) == single


@pytest.mark.parametrize("penalty", [1.0, 1.4])
def test_stacked_and_unstacked_members_agree(models, prompts, penalty):
    lm, sampling = models[0], Sampling(repetition_penalty=penalty)
    apart = Execution(batch=4, compaction=False, share_weights=False)
    stacked = decode_pair(lm, lm, 0.5, prompts, sampling=sampling)
    unstacked = decode_pair(lm, lm, 0.5, prompts, sampling=sampling, execution=apart)
    assert tokens_of(stacked) == tokens_of(unstacked)
    for one, two in zip(stacked.rows, unstacked.rows, strict=True):
        np.testing.assert_allclose(one[0].member_log_probs, two[0].member_log_probs, atol=1e-5)


def test_B13_ids_beyond_the_tokenizer_are_never_emitted_by_a_pair():
    loud = chain({})
    loud[:, 265] = 40.0
    first, second = bigram_model(loud), bigram_model(chain({}), name="second")
    found = decode_pair(first, second, [0.0, 0.5, 1.0], (some_prompts(4), some_prompts(4)))
    assert max(int(row.tokens.max()) for rows in found.rows for row in rows) < 261


def test_B09_a_member_without_a_share_cannot_fail_a_row(models, prompts):
    first, second = models
    broken = dataclasses.replace(second, params=jax.tree.map(lambda x: x * np.nan, second.params))
    found = decode_pair(first, broken, [0.0, 0.5, 1.0], prompts)
    alone = decode(first, prompts[0])
    assert [rows[:1] for rows in tokens_of(found)] == tokens_of(alone)
    for rows in found.rows:
        assert [row.finish_reason for row in rows] == ["length", *["failed(non-finite at step 0)"] * 2]


def test_C07_a_member_in_bfloat16_is_mixed_in_float32(prompts):
    """Each member keeps the dtype of its own cache, whichever comes first: alpha 0 and 1 are still it alone."""
    narrow, wide = tiny_model(0, dtype=jnp.bfloat16), tiny_model(1)
    for pair_of, order in (((narrow, wide), prompts), ((wide, narrow), prompts[::-1])):
        found = decode_pair(*pair_of, [0.0, 0.5, 1.0], order)
        for row in (row for rows in found.rows for row in rows):
            assert row.log_probs.dtype == np.float32
        for member, candidate in ((0, 0), (1, 2)):
            if pair_of[member] is wide:
                alone = decode(wide, order[member])
                assert [rows[candidate] for rows in tokens_of(found)] == [rows[0] for rows in tokens_of(alone)]
                for rows, (row,) in zip(found.rows, alone.rows, strict=True):
                    np.testing.assert_allclose(rows[candidate].log_probs, row.log_probs, atol=1e-5)


def test_C09_one_checkpoint_in_both_roles_is_held_once(tmp_path, prompts):
    from ragjax import hub
    from ragjax.testing import tiny_config, write_checkpoint

    cfg = tiny_config(hidden_size=96, intermediate_size=400)
    write_checkpoint(tmp_path / "m", cfg, random_params(cfg, 3), byte_tokenizer())

    def held():
        return sum(x.nbytes for x in jax.live_arrays())

    before = held()
    first, second = hub.load(tmp_path / "m"), hub.load(tmp_path / "m")
    size = sum(x.nbytes for x in jax.tree.leaves(first.params))
    assert first.params is second.params
    assert held() - before < 1.05 * size
    assert size > 1_000_000


def test_C09_shared_parameters_give_what_two_copies_give(models, prompts):
    lm = models[0]
    copy = dataclasses.replace(lm, params=jax.tree.map(jnp.copy, lm.params))
    assert tokens_of(decode_pair(lm, lm, 0.5, prompts)) == tokens_of(decode_pair(lm, copy, 0.5, prompts))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_compaction_moves_candidates_and_members_together(temperature):
    """Two examples end after 2 and 3 tokens, two go on: with two candidates and two members, nothing else changes."""
    towards_stop = bigram_model(chain({}, strength=14.0))
    first, second = (dataclasses.replace(towards_stop, stop_ids=(100, 101), name=name) for name in ("one", "two"))
    second = dataclasses.replace(second, params=jax.tree.map(jnp.copy, second.params))
    ends = []
    for seed in (0, 1):
        listed = zip(some_prompts(4, seed), (3, 40, 4, 9), strict=True)
        ends.append([dataclasses.replace(p, ids=(*p.ids[:-1], 100 - n)) for p, n in listed])
    sampling = Sampling(temperature=temperature, repetition_penalty=1.1)
    found = [
        decode_pair(
            first, second, [0.3, 0.6], ends, sampling=sampling, execution=Execution(batch=4, compaction=compaction)
        )
        for compaction in (False, True)
    ]
    assert tokens_of(found[0]) == tokens_of(found[1])
    assert [[len(row.tokens) for row in rows] for rows in found[1].rows] == [[2, 2], [12, 12], [3, 3], [8, 8]]
    for one, two in zip(*(chained.from_iterable(result.rows) for result in found), strict=True):
        np.testing.assert_allclose(one.member_log_probs, two.member_log_probs, atol=1e-6)


def test_members_must_have_prompts_for_the_same_examples(models, prompts):
    with pytest.raises(ValueError, match="one prompt an example"):
        decode_pair(*models, 0.5, (prompts[0], prompts[1][:3]))


def test_mixture_log_probs_are_normalised(models, prompts):
    """alpha between 0 and 1 mixes logarithms: the sum over ids is not 1 until it is normalised."""
    found = decode_pair(*models, 0.5, prompts)
    for (row,) in found.rows:
        parts = row.member_log_probs.mean(axis=0)
        assert (row.log_probs > parts).all()
        assert (row.log_probs <= 0).all()
    assert math.isfinite(found.rows[0][0].log_probs.sum())
