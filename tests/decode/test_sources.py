"""Encoder-decoders on the shared loop: greedy, beams and samples about a source, one text or several at once."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from ragjax.compress.compact import CompAct
from ragjax.compress.ecr import ECR
from ragjax.compress.favicomp import FaviComp
from ragjax.compress.geometry import sps_subspace
from ragjax.decode import buckets, loop
from ragjax.decode.beams import decode_beams
from ragjax.decode.engine import Sampling, Voice, decode_prompts, score_prompts
from ragjax.decode.longppl import long_perplexity
from ragjax.decode.prompt import count_tokens, encode_alone, encode_source
from ragjax.decode.states import pooled_states
from ragjax.decode.text import generate, perplexity
from ragjax.evals.reader import Reader
from ragjax.models import t5
from ragjax.models.cache import SuffixCache, suffix_shape
from ragjax.retrieve.scorers import BM25
from ragjax.testing import byte_tokenizer, tiny_model, tiny_t5
from tests.oracle import PLAIN, as_prompt, decode, log_softmax, some_sources, source_pair, tokens_of

STOPS = tuple(range(0, 261, 16))
SOURCES = some_sources((60, 33, 40, 8), seed=2)


@pytest.fixture(scope="module", params=["1.0", "1.1"])
def exact(request):
    """A checkpoint without padded rows: transformers would give those a share of each step's probability."""
    return source_pair(request.param, vocab_size=261)


@pytest.fixture(scope="module")
def lm():
    return tiny_t5(num_encoder_layers=2)


def theirs(both, source, max_new, **settings):
    """transformers' texts about one source, each cut at its first stop id."""
    ids = torch.tensor([source.ids])
    found = both.theirs.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        decoder_start_token_id=both.ours.config.start_id,
        do_sample=False,
        max_new_tokens=max_new,
        eos_token_id=list(STOPS),
        pad_token_id=STOPS[0],
        **settings,
    )
    rows = found[:, 1:].tolist()
    return [row[: next((n for n, token in enumerate(row) if token in STOPS), len(row))] for row in rows]


@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_A13_greedy_tokens_equal_those_of_transformers(exact, penalty):
    """The penalty is that of the decoder's own tokens, its start token among them."""
    settings = {"repetition_penalty": penalty}
    ours = dataclasses.replace(exact.ours, stop_ids=STOPS)
    found = tokens_of(decode(ours, SOURCES, sampling=Sampling(**settings)))
    assert found == [theirs(exact, source, 12, **settings) for source in SOURCES]
    assert max(len(rows[0]) for rows in found) == 12


@pytest.mark.parametrize("use_cache", [True, False])
def test_A12_forty_tokens_with_and_without_their_cache(use_cache):
    both = source_pair("1.1", vocab_size=261)
    ours = dataclasses.replace(both.ours, stop_ids=())
    (row,) = tokens_of(decode(ours, SOURCES[:1], max_new=40))[0]
    ids = torch.tensor([SOURCES[0].ids])
    found = both.theirs.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        decoder_start_token_id=258,
        do_sample=False,
        max_new_tokens=40,
        eos_token_id=[-1],
        pad_token_id=258,
        use_cache=use_cache,
    )
    assert row == found[0, 1:].tolist()
    assert len(row) == 40


@pytest.mark.parametrize(("beams", "settings"), [(3, {}), (3, {"repetition_penalty": 1.2, "length_penalty": 0.3})])
def test_hypotheses_equal_those_of_transformers(exact, beams, settings):
    ours = dataclasses.replace(exact.ours, stop_ids=STOPS)
    found = decode_beams([Voice(ours, SOURCES)], beams=beams, max_new=10, execution=PLAIN, **settings)
    searched = {"num_beams": beams, "num_return_sequences": beams, "early_stopping": False, **settings}
    assert tokens_of(found) == [theirs(exact, source, 10, **searched) for source in SOURCES]


def test_log_probs_are_the_models_own(exact):
    ours = dataclasses.replace(exact.ours, stop_ids=STOPS)
    for source, (row,) in zip(SOURCES[:2], decode(ours, SOURCES).rows, strict=False):
        logs = log_softmax(exact.logits(source.ids, row.tokens))[: len(row.tokens)]
        np.testing.assert_allclose(row.log_probs, logs[np.arange(len(row.tokens)), row.tokens], atol=1e-4)


def test_B01_texts_do_not_depend_on_the_company(monkeypatch):
    lm = dataclasses.replace(tiny_t5(num_encoder_layers=2, num_layers=1), stop_ids=())
    sources = some_sources((3, 17, 64, 100), seed=5)
    three = sources[:3]
    alone = [tokens_of(decode(lm, [source], max_new=32))[0] for source in three]
    assert [len(rows[0]) for rows in alone] == [32] * 3
    assert tokens_of(decode(lm, three, max_new=32)) == alone
    assert tokens_of(decode(lm, three[::-1], max_new=32)) == alone[::-1]
    assert tokens_of(decode(lm, sources, max_new=32))[:3] == alone
    monkeypatch.setattr(buckets, "SHORTEST", 128)
    assert tokens_of(decode(lm, three, max_new=32)) == alone


def test_candidates_share_a_source_and_are_what_they_are_alone(lm):
    sampling = Sampling(temperature=1.0, seed=3)

    def draw(which, numbers):
        settings = {"weights": ((1.0,),) * len(numbers), "draws": numbers, "sampling": sampling}
        return tokens_of(decode(lm, which, **settings))

    several = draw(SOURCES, (0, 1, 2))
    assert all(len({tuple(text) for text in texts}) == 3 for texts in several)
    assert draw(SOURCES[::-1], (0, 1, 2)) == several[::-1]
    assert draw(SOURCES, (1,)) == [[texts[1]] for texts in several]


def test_a_source_is_kept_once_for_all_its_candidates(lm):
    """No array of a step is as large as a layer's keys of the source repeated for every row."""
    rows, batch = 5 * len(SOURCES), buckets.left_pad([s.ids for s in SOURCES], len(SOURCES), 64)
    cache = loop.prefill(lm.params, lm.config, *batch, width=261).cache
    empty = (jnp.zeros(suffix_shape(lm.config, rows, 12)),) * lm.config.num_layers
    step = jax.make_jaxpr(t5.step, static_argnums=1)
    traced = step(lm.params, lm.config, np.zeros(rows, int), (cache,), (SuffixCache(empty, empty),), np.int32(0))
    sizes = [math.prod(made.aval.shape) for equation in traced.eqns for made in equation.outvars]
    assert max(sizes) < rows * math.prod(cache.cross_keys[0].shape[1:])


def test_two_members_may_write_about_two_sources(lm):
    """An ensemble of one model with itself: at a share of 1 it is that member alone."""
    others = some_sources((50, 20, 35, 12), seed=9)
    voices = [Voice(lm, SOURCES), Voice(lm, others)]
    both = decode_prompts(voices, max_new=12, weights=((1.0, 0.0), (0.0, 1.0), (0.5, 0.5)), execution=PLAIN)
    found = tokens_of(both)
    assert [[rows[0]] for rows in found] == tokens_of(decode(lm, SOURCES, max_new=12))
    assert [[rows[1]] for rows in found] == tokens_of(decode(lm, others, max_new=12))
    assert [rows[2] for rows in found] not in ([rows[0] for rows in found], [rows[1] for rows in found])


def test_B09_a_non_finite_source_fails_alone(lm):
    poison = SOURCES[1].ids[0]
    others = [as_prompt([i for i in s.ids if i != poison]) for s in (SOURCES[0], *SOURCES[2:])]
    mixed = [others[0], SOURCES[1], *others[1:]]
    expected = decode(lm, mixed)
    params = lm.params.replace(embedding=lm.params.embedding.at[poison].set(jnp.nan))
    found = decode(dataclasses.replace(lm, params=params), mixed)
    assert found.rows[1][0].finish_reason == "failed(non-finite at step 0)"
    assert len(found.rows[1][0].tokens) == 0
    kept = [i for i in (0, 2, 3) if poison not in expected.rows[i][0].tokens]
    assert kept
    assert [tokens_of(found)[i] for i in kept] == [tokens_of(expected)[i] for i in kept]


@pytest.mark.parametrize("bad", [272, -1, 2**31])
def test_A18_ids_outside_the_table_are_refused(lm, bad):
    with pytest.raises(ValueError, match=f"row 1: token id {bad} is outside tiny-t5-0's 272 embeddings"):
        decode(lm, [SOURCES[0], as_prompt([3, bad, 257])])


def test_B05_each_stop_id_ends_a_text(lm):
    plain = tokens_of(decode(lm, SOURCES))
    stops = (plain[0][0][2], plain[1][0][3])
    stopped = decode(dataclasses.replace(lm, stop_ids=stops), SOURCES).rows
    for rows, (row,) in zip(plain[:2], stopped, strict=False):
        end = next(n for n, token in enumerate(rows[0]) if token in stops)
        assert (row.tokens.tolist(), row.finish_reason) == (rows[0][:end], "stop")


def test_generate_writes_about_a_text(lm):
    texts = ["Some text.", "Another </s> one, <eos> spelled out."]
    prompts = [as_prompt([*text.encode(), 257]) for text in texts]
    ids = [encode_source(lm.tokenizer, text) for text in texts]
    assert [len(i) for i in ids] == [len(p.ids) for p in prompts]
    assert [i.count(257) for i in ids] == [1, 1]
    assert encode_source(lm.tokenizer, "") == (257,)
    assert encode_source(byte_tokenizer(), "ab") == encode_alone(byte_tokenizer(), "ab")
    found = generate(lm, texts, max_new=12, batch=4)
    assert [one.prompt_tokens for one in found] == [11, 37]
    assert [[one.tokens.tolist()] for one in found] == tokens_of(decode(lm, [as_prompt(i) for i in ids]))


@pytest.mark.shared
def test_B04_a_unigram_vocabulary_does_not_find_its_special_tokens_in_a_text(shared):
    """T5's holds them as pieces; `<` is unknown to it, and unknown text is text."""
    from transformers import PreTrainedTokenizerFast

    path = shared / "models" / "t5-small-tokenizer.json"
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(path), eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
    )
    text = "a </s> b <extra_id_0><pad> é <unk>"
    ids = encode_source(tokenizer, text)
    specials = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special and i != 2}
    assert ids[-1] == 1
    assert specials.isdisjoint(ids[:-1])
    assert "extra_id_0" in tokenizer.decode(ids)
    assert count_tokens(tokenizer, text) == len(ids) - 1
    plain = "Who wrote Emma?\nJane Austen wrote it."
    assert list(encode_source(tokenizer, plain)) == tokenizer(plain)["input_ids"]
    assert encode_source(tokenizer, "") == (1,)


CAUSAL = {
    "FaviComp": lambda lm: FaviComp(compressor=tiny_model(), target=lm),
    "CompAct": lambda lm: CompAct(lm=lm),
    "a writer of clusters": lambda lm: ECR(tokenizer=lm.tokenizer, scorer=BM25(), writer=lm),
    "a reader": lambda lm: Reader(lm=lm),
    "a chat": lambda lm: generate(lm, [{"role": "user", "content": "Hello"}]),
    "perplexity": lambda lm: perplexity(lm, "a text"),
    "scoring a text": lambda lm: score_prompts(lm, SOURCES, "text"),
    "scoring a prompt": lambda lm: decode(lm, SOURCES, score="context"),
    "LongPPL": lambda lm: long_perplexity(lm, ["a"], given=["b"]),
    "pooling states": lambda lm: pooled_states(lm, ["a"]),
    "a reader's subspace": lambda lm: sps_subspace(lm, cache=False),
}


@pytest.mark.parametrize("role", CAUSAL)
def test_where_a_causal_model_is_needed_another_is_refused_by_name(lm, role):
    expected = f"{role} needs a causal language model, and tiny-t5-0 is of the kind EncoderDecoder"
    with pytest.raises(ValueError, match=expected):
        CAUSAL[role](lm)
