"""Encoders against transformers, position by position: ragged batches, heads, every variant of attention."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from ragjax.models import bert, deberta
from ragjax.models.encoder import sequence_logits, token_logits
from ragjax.testing import random_encoder_params, tiny_encoder_config
from tests.oracle import encoder_pair

LENGTHS = (300, 171, 40, 1)
VARIANTS = {
    "bert": {"family": "bert"},
    "bert_gelu_new": {"family": "bert", "activation": "gelu_tanh", "num_layers": 1},
    "bert_relu": {"family": "bert", "activation": "relu", "num_layers": 1},
    "roberta": {"family": "roberta"},
    "xlm-roberta": {"family": "xlm-roberta", "position_offset": 5, "max_positions": 300},
    "A15_deberta": {"family": "deberta-v2", "buckets": 256},
    "deberta_short_buckets": {"family": "deberta-v2", "max_distance": 64},
    "deberta_plain_distances": {"family": "deberta-v2", "buckets": None, "max_distance": 100},
    "deberta_own_projections": {"family": "deberta-v2", "shared_projections": False, "normed_distances": False},
    "deberta_c2p": {"family": "deberta-v2", "position_to_content": False},
    "deberta_p2c": {"family": "deberta-v2", "content_to_position": False, "shared_projections": False},
}
FORWARD = {"bert": bert.forward, "roberta": bert.forward, "xlm-roberta": bert.forward, "deberta-v2": deberta.forward}


def ragged(vocab: int, padding: int, lengths=LENGTHS, width=300) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random texts padded on the right: tokens, mask and types (the second half of each text is the second)."""
    generator = np.random.default_rng(0)
    valid = np.arange(width) < np.array(lengths)[:, None]
    tokens = np.where(valid, generator.integers(6, vocab, valid.shape), padding).astype(np.int32)
    return tokens, valid, (valid & (np.arange(width) >= np.array(lengths)[:, None] // 2)).astype(np.int32)


@partial(jax.jit, static_argnames="cfg")
def run(params, cfg, tokens, valid, types):
    """States, and the logits of the head if there is one."""
    states = FORWARD[cfg.family](params, cfg, tokens, valid, types)
    read = {None: lambda: None, "token": lambda: token_logits(params.head, states)}
    return states, read.get(cfg.head, lambda: sequence_logits(params.head, cfg, states))()


def both(pair, types_used: bool):
    """Ours and theirs on the same ragged batch, and its mask."""
    tokens, valid, types = ragged(pair.ours.config.vocab_size, pair.ours.tokenizer.pad_token_id)
    types = types if types_used else np.zeros_like(types)
    ours = run(pair.ours.params, pair.ours.config, tokens, valid, types)
    return ours, pair.outputs(tokens, valid, types), valid


@pytest.mark.parametrize("name", VARIANTS)
def test_states_equal_transformers_at_every_position(name):
    pair = encoder_pair(**VARIANTS[name])
    (found, _), (expected, _), valid = both(pair, types_used=name == "bert")
    assert expected[valid].std() > 0.8
    np.testing.assert_allclose(np.asarray(found)[valid], expected[valid], atol=1e-4)
    assert np.isfinite(found).all()
    if VARIANTS[name]["family"] in ("bert", "deberta-v2"):
        np.testing.assert_allclose(found, expected, atol=1e-4)  # Padding is read alike too.


@pytest.mark.parametrize("head", ["sequence", "token"])
@pytest.mark.parametrize("family", FORWARD)
def test_heads_equal_transformers(family, head):
    pair = encoder_pair(family, head, num_layers=1)
    (_, found), (_, expected), valid = both(pair, types_used=family == "bert")
    kept = valid if head == "token" else ...
    assert expected[kept].std() > 0.1
    np.testing.assert_allclose(np.asarray(found)[kept], expected[kept], atol=1e-4)
    assert (np.asarray(found)[kept].argmax(-1) == expected[kept].argmax(-1)).all()


def test_A15_log_buckets():
    published = {127: 127, 128: 128, 129: 129, 200: 169, 256: 192, 400: 233, 511: 255}
    distances = np.array([*published])
    assert deberta.log_bucket(distances, 256, 512).tolist() == [*published.values()]
    assert deberta.log_bucket(-distances, 256, 512).tolist() == [-bucket for bucket in published.values()]
    every = np.arange(-511, 512)
    for buckets, longest in ((256, 512), (16, 512), (32, 128), (64, 512)):
        theirs = make_log_bucket_position(torch.tensor(every), buckets, longest).long().numpy()
        np.testing.assert_array_equal(deberta.log_bucket(every, buckets, longest), theirs)


def test_A15_a_score_reads_the_row_of_query_minus_key():
    """Content that tells nothing and a table that marks one distance: who looks at whom is seen from the values."""
    cfg = tiny_encoder_config("deberta-v2", num_layers=1, buckets=256)
    generator = np.random.default_rng(0)
    x, table = generator.standard_normal((1, 4, 9, 12)), generator.standard_normal((4, 512, 12))
    found = [deberta._by_distance(cfg, jnp.float32(x), jnp.float32(table), slice(2, 7), sign) for sign in (1, -1)]
    for sign, scores in zip((1, -1), found, strict=True):
        for row in range(5):
            for other in range(9):
                expected = np.einsum("nh,nh->n", x[0, :, 2 + row], table[:, 256 + sign * (2 + row - other)])
                np.testing.assert_allclose(scores[0, :, row, other], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FORWARD)
def test_a_text_does_not_depend_on_padding_or_company(family):
    cfg = tiny_encoder_config(family)
    params = random_encoder_params(cfg)
    tokens, valid, types = ragged(cfg.vocab_size, 0, (60, 17), 64)
    types = types if family == "bert" else np.zeros_like(types)
    together, _ = run(params, cfg, tokens, valid, types)
    alone, _ = run(params, cfg, tokens[1:, :17], valid[1:, :17], types[1:, :17])
    np.testing.assert_allclose(together[1, :17], alone[0], atol=1e-5)
    other = np.where(valid, tokens, 7)
    np.testing.assert_allclose(run(params, cfg, other, valid, types)[0][1, :17], alone[0], atol=1e-5)


@pytest.mark.parametrize("family", ["xlm-roberta", "deberta-v2"])
def test_B02_bfloat16_is_finite_everywhere_and_near_float32(family):
    cfg = tiny_encoder_config(family, num_layers=1)
    params = random_encoder_params(cfg)
    tokens, valid, types = ragged(cfg.vocab_size, 0, (200, 4, 0), 200)
    types = np.zeros_like(types)
    narrow = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
    with jax.debug_nans(True):
        found, _ = run(narrow, cfg, tokens, valid, types)
    assert found.dtype == jnp.bfloat16
    wide, _ = run(params, cfg, tokens, valid, types)
    assert np.isfinite(np.asarray(found, np.float32)).all()
    error = np.abs(np.asarray(found, np.float32) - wide)[valid]
    assert error.mean() < 0.1 * np.asarray(wide)[valid].std()


CHANGES = {
    "bert": [
        {"norm_eps": 1e-2},
        {"activation": "gelu_tanh"},
        {"activation": "relu"},
        {"head_activation": "gelu"},
        {"position_offset": 2, "max_positions": 510},
        {"num_heads": 2, "head_dim": 24},
    ],
    "deberta-v2": [
        {"norm_eps": 1e-2},
        {"activation": "gelu_tanh"},
        {"head_activation": "tanh"},
        {"max_distance": 64},
        {"buckets": None, "max_distance": 16},
        {"content_to_position": False},
        {"position_to_content": False},
    ],
}


@pytest.mark.parametrize(("family", "change"), [(f, c) for f, changes in CHANGES.items() for c in changes])
def test_each_field_of_a_config_changes_the_output(family, change):
    """With the very same weights (heads are cut anew where their number changes)."""
    cfg = tiny_encoder_config(family, "sequence", num_layers=1)
    changed = dataclasses.replace(cfg, **change)
    params = random_encoder_params(cfg)
    shapes = jax.eval_shape(lambda: random_encoder_params(changed))
    assert jax.tree.structure(shapes) == jax.tree.structure(params)
    tokens, valid, types = ragged(cfg.vocab_size, 0, (100,), 100)
    types = types if family == "bert" else np.zeros_like(types)
    _, before = run(params, cfg, tokens, valid, types)
    same = jax.tree.map(lambda leaf, shape: leaf.reshape(shape.shape), params, shapes)
    _, after = run(same, changed, tokens, valid, types)
    assert np.abs(np.asarray(before) - after).max() > 1e-5
