"""The arithmetic of one layer against closed forms, plain numpy and transformers."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from ragjax.models import layers
from ragjax.models.rope import Rope


def rope(theta=10000.0, kind="default", factor=1.0, low=1.0, high=4.0, original=0):
    return Rope(theta, kind, factor, low, high, original)


LLAMA_32_1B = (rope(5e5, "llama3", 32.0, 1.0, 4.0, 8192), 64)
LLAMA_31_8B = (rope(5e5, "llama3", 8.0, 1.0, 4.0, 8192), 128)


@pytest.mark.parametrize(
    ("settings", "unchanged", "between", "factor"),
    [
        (LLAMA_32_1B, 15, [0.6056, 0.3037, 0.1034], 32),
        (LLAMA_31_8B, 29, [0.8282, 0.6437, 0.4935, 0.3711, 0.2714, 0.1902], 8),
    ],
    ids=["3.2-1B", "3.1-8B"],
)
def test_A01_rotary_table_of_published_models(settings, unchanged, between, factor):
    scaled, width = settings
    ratios = layers.inverse_frequencies(scaled, width) / layers.inverse_frequencies(rope(5e5), width)
    end = unchanged + len(between)
    assert ratios.shape == (width // 2,)
    np.testing.assert_array_equal(ratios[:unchanged], 1.0)
    np.testing.assert_allclose(ratios[unchanged:end], between, atol=5e-5)
    np.testing.assert_allclose(ratios[end:], 1 / factor, rtol=1e-6)


def test_linear_scaling_divides_every_frequency():
    ratios = layers.inverse_frequencies(rope(kind="linear", factor=4.0), 16) / layers.inverse_frequencies(rope(), 16)
    np.testing.assert_allclose(ratios, 0.25, rtol=1e-6)


@pytest.mark.parametrize("kind", ["default", "linear", "llama3"])
def test_rotary_angles_equal_those_of_transformers(kind):
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    ours = {"default": rope(), "linear": rope(kind="linear", factor=3.0), "llama3": LLAMA_32_1B[0]}[kind]
    stated = {"rope_type": kind, "rope_theta": ours.theta, "factor": ours.factor}
    if kind == "llama3":
        stated |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    config = LlamaConfig(
        hidden_size=64, num_attention_heads=1, head_dim=64, max_position_embeddings=131072, rope_parameters=stated
    )
    positions = np.arange(0, 600)
    theirs = LlamaRotaryEmbedding(config)(torch.zeros(1), torch.tensor(positions[None]))
    found = layers.rotary(ours, 64, jnp.asarray(positions), jnp.float32)
    for mine, their in zip(found, theirs, strict=True):
        np.testing.assert_allclose(mine, their[0, :, :32].numpy(), atol=1e-5)


def test_B16_bfloat16_angles_are_the_rounded_float32_ones():
    positions = jnp.arange(600)
    wide = layers.rotary(rope(), 16, positions, jnp.float32)
    narrow = layers.rotary(rope(), 16, positions, jnp.bfloat16)
    for exact, rounded in zip(wide, narrow, strict=True):
        assert rounded.dtype == jnp.bfloat16
        np.testing.assert_array_equal(np.asarray(rounded), np.asarray(exact.astype(jnp.bfloat16)))
    assert len(np.unique(np.asarray(wide[1][256:262, 0]))) == 6  # positions made in bfloat16 would collide here


def test_rotate_turns_element_i_with_element_i_plus_half():
    x = jnp.asarray([1.0, 2.0, 3.0, 4.0])
    cos, sin = jnp.asarray([0.6, 1.0]), jnp.asarray([0.8, 0.0])
    np.testing.assert_allclose(layers.rotate(x, cos, sin), [0.6 * 1 - 0.8 * 3, 2, 0.6 * 3 + 0.8 * 1, 4], rtol=1e-6)


def test_rms_norm_equals_transformers_in_both_dtypes():
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    generator = np.random.default_rng(0)
    x, scale = generator.standard_normal((5, 48)).astype(np.float32), generator.uniform(0.5, 2, 48).astype(np.float32)
    for kind in ("float32", "bfloat16"):
        norm = LlamaRMSNorm(48, eps=1e-2).to(getattr(torch, kind))
        norm.weight.data = torch.tensor(scale).to(getattr(torch, kind))
        theirs = norm(torch.tensor(x).to(getattr(torch, kind))).float().detach().numpy()
        mine = layers.rms_norm(jnp.asarray(x, kind), jnp.asarray(scale, kind), 1e-2).astype(jnp.float32)
        np.testing.assert_allclose(mine, theirs, rtol=1e-5 if kind == "float32" else 2**-7)


def test_softmax_of_a_row_without_keys_is_uniform():
    scores = jnp.asarray([[1.0, 2.0], [3.0, 4.0]])
    found = layers.masked_softmax(scores, jnp.asarray([[True, False], [False, False]]))
    np.testing.assert_allclose(found, [[1.0, 0.0], [0.5, 0.5]])


def plain_attention(q, k, v, mask):
    """softmax(q k / sqrt(H)) v in float64: q [B, N, T, H], k and v [B, K, S, H], mask [B, T, S]."""
    each = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, each, axis=1).astype(np.float64), np.repeat(v, each, axis=1).astype(np.float64)
    scores = np.where(mask[:, None], q.astype(np.float64) @ k.swapaxes(2, 3) / np.sqrt(q.shape[3]), -np.inf)
    weights = np.exp(scores - scores.max(axis=3, keepdims=True))
    return weights / weights.sum(axis=3, keepdims=True) @ v


@pytest.mark.parametrize("window", [None, 1, 37, 150, 1000])
def test_blocks_of_queries_equal_one_product_over_all(window):
    generator = np.random.default_rng(1)
    length = 2 * layers.QUERY_BLOCK + 41
    q = generator.standard_normal((2, 4, length, 8)).astype(np.float32)
    k, v = generator.standard_normal((2, 2, 2, length, 8)).astype(np.float32)
    valid = np.arange(length)[None] >= np.array([[0], [150]])
    attend = partial(layers.causal_attention, scale=8**-0.5, window=window)
    found = np.asarray(jax.jit(attend)(q, k, v, valid))
    mask = (np.tril(np.ones((length, length), bool)) & ~np.tri(length, k=-(window or length)).astype(bool))[None]
    mask = mask & valid[:, None]
    mask[1, :150] = True  # padding queries attend to nothing; their values mean nothing
    expected = plain_attention(q, k, v, mask)
    np.testing.assert_allclose(found[0], expected[0], atol=1e-5)
    np.testing.assert_allclose(found[1, :, 150:], expected[1, :, 150:], atol=1e-5)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("window", [None, 1, 2, 6, 100])
def test_candidates_share_a_prompt_as_if_each_had_its_own(window):
    generator = np.random.default_rng(2)
    batch, candidates, groups, heads, width, prompt, slots, cursor = 2, 3, 2, 6, 8, 11, 5, 2
    rows = batch * candidates
    q = generator.standard_normal((rows, heads, width)).astype(np.float32)
    prompt_k, prompt_v = generator.standard_normal((2, batch, groups, prompt, width)).astype(np.float32)
    suffix_k, suffix_v = generator.standard_normal((2, rows, groups, slots, width)).astype(np.float32)
    valid = np.arange(prompt)[None] >= np.array([[0], [4]])
    attend = partial(layers.step_attention, scale=width**-0.5, window=window)
    found = jax.jit(attend)(q, prompt_k, prompt_v, valid, suffix_k, suffix_v, jnp.int32(cursor))

    def joined(first, second):
        return np.concatenate([np.repeat(first, candidates, axis=0), second], axis=2)

    seen = np.tile(np.arange(slots) <= cursor, (rows, 1))
    mask = np.concatenate([np.repeat(valid, candidates, axis=0), seen], axis=1)
    mask = (mask & (np.arange(prompt + slots) > prompt + cursor - (window or np.inf)))[:, None]
    expected = plain_attention(q[:, :, None], joined(prompt_k, suffix_k), joined(prompt_v, suffix_v), mask)
    np.testing.assert_allclose(found, expected[:, :, 0], atol=1e-5)
