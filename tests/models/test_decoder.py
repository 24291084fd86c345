"""The decoder against transformers, position by position: whole prompts, ragged batches, and one token at a time."""

import dataclasses
import json
import struct
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ragjax.decode.buckets import left_pad
from ragjax.decode.engine import Voice, decode_prompts
from ragjax.decode.prompt import Prompt
from ragjax.hub import LanguageModel
from ragjax.models import decoder
from ragjax.models.cache import SuffixCache, suffix_shape
from ragjax.models.config import DecoderConfig
from ragjax.models.rope import Rope
from ragjax.testing import random_params, tiny_config
from ragjax.weights.keymap import leaf_specs
from tests.oracle import our_logits, pair, run_forward

LLAMA3 = Rope(10000.0, "llama3", 8.0, 1.0, 4.0, 32)
LINEAR = Rope(10000.0, "linear", 4.0, 1.0, 4.0, 0)
ALL_BIASES = {"qkv_bias": True, "output_bias": True, "mlp_bias": True}

VARIANTS = {
    "A01_llama3_rope": {"rope": LLAMA3},
    "A05_all_seven_biases": ALL_BIASES,
    "linear_rope_tied_head": {"rope": LINEAR, "tied_head": True},
    "one_kv_head": {"num_kv_heads": 1, "num_layers": 1},
    "as_many_kv_heads": {"num_kv_heads": 4, "num_layers": 1},
}
LENGTHS = (500, 131, 9)


def texts(lengths, seed=0):
    generator = np.random.default_rng(seed)
    return [generator.integers(0, 261, length).tolist() for length in lengths]


def assert_same_logits(mine, theirs):
    """Within 1e-4 and of equal argmax, at every position."""
    np.testing.assert_allclose(mine, theirs, atol=1e-4, rtol=0)
    np.testing.assert_array_equal(mine.argmax(-1), theirs.argmax(-1))


@pytest.mark.parametrize("name", VARIANTS)
def test_left_padded_prefill_equals_transformers(name):
    both = pair(**VARIANTS[name])
    rows = texts(LENGTHS)
    for ids, found in zip(rows, our_logits(both.ours, rows, 512), strict=True):
        expected = both.logits(ids)
        assert expected.std() > 1
        assert_same_logits(found, expected)


@partial(jax.jit, static_argnames=("cfg", "width"))
def read_on(params, cfg, prompt, suffix, tokens, width):
    """Feed `tokens` [steps, R] one by one: the logits [steps, R, V] after each."""

    def one(suffix, fed):
        token, cursor = fed
        hidden, (suffix,) = decoder.step(params, cfg, token, (prompt,), (suffix,), cursor)
        return suffix, decoder.logits(params, hidden[0], width)

    return jax.lax.scan(one, suffix, (tokens, jnp.arange(len(tokens))))[1]


def stepped_logits(lm, rows, starts, slots):
    """The logits after each token of each row, prefilled up to `starts` and then fed token by token."""
    cfg = lm.config
    tokens, valid = left_pad([ids[:n] for ids, n in zip(rows, starts, strict=True)], len(rows), 64)
    _, first, prompt = run_forward(lm.params, cfg, tokens, valid, lm.vocab_width)
    empty = tuple(jnp.zeros(suffix_shape(cfg, len(rows), slots), lm.dtype) for _ in range(cfg.num_layers))
    fed = np.zeros((slots, len(rows)), np.int32)
    for column, (ids, n) in enumerate(zip(rows, starts, strict=True)):
        fed[: len(ids) - n, column] = ids[n:]
    later = read_on(lm.params, cfg, prompt, SuffixCache(empty, empty), fed, lm.vocab_width)
    return [
        np.concatenate([first[row, 64 - n :], later[: len(ids) - n, row]])
        for row, (ids, n) in enumerate(zip(rows, starts, strict=True))
    ]


@pytest.mark.parametrize("name", VARIANTS)
def test_cached_decode_equals_transformers(name):
    both = pair(**VARIANTS[name])
    rows = texts(LENGTHS, seed=1)
    for ids, found in zip(rows, stepped_logits(both.ours, rows, (20, 61, 1), 480), strict=True):
        assert_same_logits(found, both.logits(ids))


@pytest.mark.parametrize("biases", [{}, ALL_BIASES], ids=["llama", "with_biases"])
def test_A20_error_is_flat_over_positions(biases):
    both = pair(**biases)
    (ids,) = texts((128,), seed=2)
    error = np.abs(our_logits(both.ours, [ids], 128)[0] - both.logits(ids)).max(axis=1)
    assert error[64:].max() < 3 * max(error[:64].max(), 1e-6)
    assert error.max() < 1e-4


@pytest.mark.parametrize("layer", [-1, 3, 99])
def test_hidden_states_of_a_layer_that_is_not_there_are_refused(layer):
    lm = pair().ours
    with pytest.raises(ValueError, match="layer counts the blocks from 0 to 2"):
        decoder.forward(lm.params, lm.config, jnp.zeros((1, 4), jnp.int32), jnp.ones((1, 4), bool), layer)


def test_hidden_states_of_every_layer_equal_transformers():
    import torch

    both = pair()
    (ids,) = texts((40,), seed=3)
    with torch.no_grad():
        theirs = both.theirs(torch.tensor([ids]), output_hidden_states=True).hidden_states
    tokens, valid = left_pad([ids], 1, 64)
    count = both.ours.config.num_layers
    for layer in [*range(count), None]:
        hidden, kept = decoder.forward(both.ours.params, both.ours.config, tokens, valid, layer)
        expected = theirs[count if layer is None else layer][0].numpy()
        np.testing.assert_allclose(hidden[0, -40:], expected, atol=1e-4)
        assert len(kept.keys) == (count if layer is None else layer)


SHAPES = {
    "vocab_size": 280,
    "num_layers": 5,
    "hidden_size": 40,
    "intermediate_size": 72,
    "num_heads": 6,
    "num_kv_heads": 4,
    "head_dim": 8,
    "qkv_bias": True,
    "output_bias": True,
    "mlp_bias": True,
    "qk_norm": True,
    "post_norms": True,
    "num_experts": 3,
    "tied_head": True,
}
VALUES = {
    "rms_norm_eps": 0.1,
    "local_rope": LINEAR,
    "windows": (9, None),
    "norm_offset": True,
    "activation": "gelu_tanh",
    "query_scale": 0.5,
    "embedding_scale": 3.0,
    "experts_per_token": 1,
    **{
        f"rope.{name}": dataclasses.replace(LLAMA3, **{name: value})
        for name, value in {
            "theta": 500.0,
            "kind": "linear",
            "factor": 2.0,
            "low_freq_factor": 2.0,
            "high_freq_factor": 3.0,
            "original_max_positions": 64,
        }.items()
    },
}


def test_every_config_field_is_covered_here():
    fields = {f.name for f in dataclasses.fields(DecoderConfig)}
    rope = {f"rope.{f.name}" for f in dataclasses.fields(Rope)}
    label_and_limit = {"family", "max_positions"}  # the limit is tested with the prompts it refuses
    assert {*SHAPES, *VALUES} == (fields - {"rope"} - label_and_limit) | rope


@pytest.mark.parametrize("name", SHAPES)
def test_config_field_changes_the_parameters(name):
    base, changed = (decoder.abstract(c, jnp.float32) for c in (tiny_config(), tiny_config(**{name: SHAPES[name]})))
    shapes = [{path: spec.shape for path, spec in leaf_specs(tree).items()} for tree in (base, changed)]
    assert shapes[0] != shapes[1]


@pytest.mark.parametrize(
    "changes",
    [{**ALL_BIASES, "qk_norm": True, "post_norms": True}, {"num_experts": 3, "experts_per_token": 2}],
    ids=["all_parts", "experts"],
)
def test_every_parameter_that_a_field_adds_changes_the_logits(changes):
    """With the test before: no field of a shape adds what the forward pass leaves alone."""
    cfg = tiny_config(num_layers=1, **changes)
    tokens, valid = left_pad(texts((30,)), 1, 32)

    def spread(params):
        hidden, _ = decoder.forward(params, cfg, tokens, valid)
        return jnp.var(decoder.logits(params, hidden[:, -1], 261))

    gradients = leaf_specs(jax.jit(jax.grad(spread))(random_params(cfg)))
    assert len(gradients) == len(leaf_specs(decoder.abstract(cfg, jnp.float32)))
    assert [name for name, gradient in gradients.items() if np.abs(gradient).max() < 1e-4] == []


def test_config_value_changes_the_logits():
    base = tiny_config("mixtral", rope=LLAMA3, local_rope=LLAMA3, num_layers=2, windows=(8, None))
    params = random_params(base)
    tokens, valid = left_pad(texts((128,)), 1, 128)

    def last(cfg):
        hidden, _ = decoder.forward(params, cfg, tokens, valid)
        return np.asarray(decoder.logits(params, hidden[:, -1], 261))

    expected = last(base)
    for name, value in VALUES.items():
        cfg = dataclasses.replace(base, **{name.partition(".")[0]: value})
        assert np.abs(last(cfg) - expected).max() > 1e-2, name


@pytest.mark.parametrize("name", ["q_bias", "k_bias", "v_bias", "o_bias", "gate_bias", "up_bias", "down_bias"])
def test_A05_each_bias_takes_part(name):
    cfg = tiny_config(num_layers=1, **ALL_BIASES)
    params = random_params(cfg)
    block = params.layers[0]
    part = "mlp" if hasattr(block.mlp, name) else "attention"
    module = getattr(block, part)
    muted = module.replace(**{name: jnp.zeros_like(getattr(module, name))})
    without = params.replace(layers=(block.replace(**{part: muted}),))
    tokens, valid = left_pad(texts((30,)), 1, 32)
    found = [run_forward(p, cfg, tokens, valid, 261)[1][0, -1] for p in (params, without)]
    assert np.abs(found[0] - found[1]).max() > 1e-2


def test_B02_bfloat16_padding_is_finite_everywhere():
    cfg = tiny_config()
    params = random_params(cfg, dtype=jnp.bfloat16)
    (ids,) = texts((4,))
    with jax.debug_nans(True):
        states, logits, kept = run_forward(params, cfg, *left_pad([ids], 1, 64), 261)
        own, _, _ = run_forward(params, cfg, *left_pad([ids], 1, 4), 261)
    # The residual stream would carry a NaN of any layer to the last.
    for array in jax.tree.leaves((states, logits, kept.keys, kept.values)):
        assert np.isfinite(np.asarray(array, np.float32)).all()
    # Sums over another length round otherwise, by 2**-8 each; states have a standard deviation of about 1.
    np.testing.assert_allclose(*(np.asarray(x[0, -4:], np.float32) for x in (states, own)), atol=0.05)


def test_B16_bfloat16_agrees_with_torch_at_position_599():
    """Both round to 8 bits at other places. The yardstick is torch's own distance from float32 on these weights."""
    narrow = pair(dtype="bfloat16")
    (ids,) = texts((600,), seed=4)
    widened = jax.tree.map(lambda x: x.astype(jnp.float32), narrow.ours.params)
    wide = dataclasses.replace(narrow.ours, params=widened)
    exact, found = (our_logits(lm, [ids], 608)[0] for lm in (wide, narrow.ours))
    theirs = narrow.logits(ids)
    allowed = np.sqrt(np.mean((theirs - exact) ** 2, axis=1))
    error = np.sqrt(np.mean((found - exact) ** 2, axis=1))
    assert error[599] < 1.5 * allowed[500:].mean()
    assert error[500:].mean() < 1.2 * allowed[500:].mean()
    assert error[500:].mean() < 2 * error[:100].mean()  # and does not grow with the position


def test_members_of_one_model_step_as_each_would_alone():
    lm = pair().ours
    cfg, rows = lm.config, texts((20, 33), seed=5)
    prompts = [run_forward(lm.params, cfg, *left_pad([ids], 1, 64), 261)[2] for ids in rows]
    empty = tuple(jnp.zeros(suffix_shape(cfg, 1, 4)) for _ in range(cfg.num_layers))
    suffix, token = SuffixCache(empty, empty), jnp.asarray([7])
    step = jax.jit(decoder.step, static_argnames=("cfg",))
    both, _ = step(lm.params, cfg, token, tuple(prompts), (suffix, suffix), jnp.int32(0))
    for index, prompt in enumerate(prompts):
        alone, _ = step(lm.params, cfg, token, (prompt,), (suffix,), jnp.int32(0))
        np.testing.assert_allclose(both[index], alone[0], atol=1e-5)


def half_split(matrix, heads):
    """A projection [N*H, D] of the adjacent-pair rotary layout, its rows reordered for the half-split one."""
    width = matrix.shape[0] // heads
    return matrix.reshape(heads, width // 2, 2, -1).swapaxes(1, 2).reshape(matrix.shape)


def read_stories(path):
    """Config and parameters of a legacy llama2.c file: seven ints, then float32 matrices kind by kind."""
    data = path.read_bytes()
    dim, hidden, count, heads, kv_heads, vocab, length = struct.unpack("7i", data[:28])
    head, values, place = dim // heads, np.frombuffer(data[28:], np.float32), 0
    cfg = tiny_config(
        vocab_size=vocab, num_layers=count, hidden_size=dim, intermediate_size=hidden, num_heads=heads,
        num_kv_heads=kv_heads, head_dim=head, tied_head=True, max_positions=length,
    )  # fmt: skip

    def take(*shape):
        nonlocal place
        place += (size := int(np.prod(shape)))
        return values[place - size : place].reshape(shape)

    embedding, attention_norm = take(vocab, dim), take(count, dim)
    q, k, v = take(count, dim, dim), take(count, kv_heads * head, dim), take(count, kv_heads * head, dim)
    o, mlp_norm = take(count, dim, dim), take(count, dim)
    gate, down, up = take(count, hidden, dim), take(count, dim, hidden), take(count, hidden, dim)
    none = {f"{n}_bias": None for n in "qkvo"}, {f"{n}_bias": None for n in ("gate", "up", "down")}
    layers = []
    for i in range(count):
        mixer = decoder.Attention(
            q=half_split(q[i], heads).T.reshape(dim, heads, head),
            k=half_split(k[i], kv_heads).T.reshape(dim, kv_heads, head),
            v=v[i].T.reshape(dim, kv_heads, head),
            o=o[i].T.reshape(heads, head, dim),
            **none[0],
        )
        mlp = decoder.Mlp(gate=gate[i].T, up=up[i].T, down=down[i].T, **none[1])
        layers.append(decoder.Layer(attention_norm[i], mixer, mlp_norm[i], mlp))
    return cfg, jax.tree.map(jnp.asarray, decoder.Decoder(embedding, tuple(layers), take(dim), None))


@pytest.mark.shared
def test_stories260K_writes_its_expected_tokens(shared):
    cfg, params = read_stories(shared / "models" / "stories260K.bin")
    expected = json.loads((shared / "models" / "stories260K_expected.json").read_text())["greedy_token_ids"]
    names = {f"<{i}>": i for i in range(cfg.vocab_size)}
    stub = type("Names", (), {"get_vocab": lambda self: names, "added_tokens_decoder": {}})()
    lm = LanguageModel(params=params, config=cfg, tokenizer=stub, name="stories260K", fingerprint="", stop_ids=())
    found = decode_prompts([Voice(lm, [Prompt((1,), "")])], max_new=200)
    assert found.rows[0][0].tokens.tolist() == expected[1:]
