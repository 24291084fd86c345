"""T5 against transformers: buckets, both versions, every step of a cached decode, half precision, published names."""

import dataclasses
import json
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from ragjax import hub
from ragjax.decode import loop
from ragjax.decode.buckets import left_pad
from ragjax.models import decoder, t5
from ragjax.models.architectures import abstract, parse_config
from ragjax.models.cache import SuffixCache, suffix_shape
from ragjax.testing import raw_config, tiny_t5, tiny_t5_config, write_checkpoint
from ragjax.weights.keymap import TensorInfo, leaf_specs, pair
from ragjax.weights.tables import table_of
from tests.oracle import decode, some_sources, source_pair

PUBLISHED = dataclasses.replace(tiny_t5_config(), num_buckets=32, max_distance=128)
VERSIONS = ("1.0", "1.1")


@pytest.mark.parametrize(
    ("distance", "bucket"), [(0, 0), (1, 17), (8, 24), (16, 26), (127, 31), (-1, 1), (-8, 8), (-16, 10), (-128, 15)]
)
def test_A12_buckets_of_the_encoder(distance, bucket):
    assert t5.relative_buckets(PUBLISHED, np.array([distance]), both_ways=True) == bucket


@pytest.mark.parametrize(("distance", "bucket"), [(-16, 16), (-20, 17), (-128, 31), (1, 0), (300, 0)])
def test_A12_buckets_of_the_decoder(distance, bucket):
    assert t5.relative_buckets(PUBLISHED, np.array([distance]), both_ways=False) == bucket


@pytest.mark.parametrize("both_ways", [True, False])
@pytest.mark.parametrize(("count", "most"), [(32, 128), (16, 24), (64, 256), (32, 100)])
def test_A12_every_bucket_is_that_of_transformers(count, most, both_ways):
    import torch
    from transformers.models.t5.modeling_t5 import T5Attention

    distance = np.arange(-300, 301)
    expected = T5Attention._relative_position_bucket(torch.tensor(distance), both_ways, count, most)
    cfg = dataclasses.replace(PUBLISHED, num_buckets=count, max_distance=most)
    np.testing.assert_array_equal(t5.relative_buckets(cfg, distance, both_ways=both_ways), expected)


def stepped_logits(lm, sources, targets):
    """Our logits [T + 1, V] after the start token and each token of each target, one token at a time."""
    tokens, valid = left_pad([s.ids for s in sources], len(sources), 160)
    filled = loop.prefill(lm.params, lm.config, tokens, valid, width=lm.vocab_width)
    rows = len(sources), len(targets[0])
    empty = tuple(jnp.zeros(suffix_shape(lm.config, *rows), lm.dtype) for _ in range(lm.config.num_layers))
    found = [filled.logits, *_feed(lm.params, lm.config, filled.cache, SuffixCache(empty, empty), np.array(targets).T)]
    return np.stack([np.asarray(step) for step in found], axis=1)


@partial(jax.jit, static_argnames=("cfg",))
def _feed(params, cfg, cache, suffix, tokens):
    def one(carry, token):
        suffix, cursor = carry
        hidden, (suffix,) = t5.step(params, cfg, token, (cache,), (suffix,), cursor)
        return (suffix, cursor + 1), decoder.logits(params, hidden[0], 261)

    return jax.lax.scan(one, (suffix, jnp.int32(0)), tokens)[1]


@pytest.mark.parametrize("version", VERSIONS)
def test_A13_cached_steps_equal_transformers_without_a_cache(version):
    """Sources and texts go far beyond the largest distance that has a bucket of its own; short rows are padded."""
    both = source_pair(version)
    sources = some_sources((150, 40, 8))
    targets = np.random.default_rng(1).integers(0, 256, (3, 60))
    for source, target, found in zip(sources, targets, stepped_logits(both.ours, sources, targets), strict=True):
        expected = both.logits(source.ids, target)
        assert expected.std() > 1
        np.testing.assert_allclose(found, expected, atol=1e-4)
        np.testing.assert_array_equal(found.argmax(-1), expected.argmax(-1))


def test_A12_the_bias_counts_in_every_layer_of_a_half_and_nowhere_else():
    """Without the encoder's bias the order of a source's tokens means nothing, whatever the layer."""
    lm = tiny_t5()
    flat = dataclasses.replace(lm, params=lm.params.replace(encoder_bias=jnp.ones_like(lm.params.encoder_bias)))
    source = some_sources((40,))[0].ids
    turned = (*source[:-1][::-1], source[-1])

    def states(model, ids):
        return np.asarray(t5.encode(model.params, model.config, *left_pad([ids], 1, 40)))[0]

    np.testing.assert_allclose(states(flat, turned)[:-1][::-1], states(flat, source)[:-1], atol=1e-4)
    assert np.abs(states(lm, turned)[-1] - states(lm, source)[-1]).max() > 0.1


def test_A13_only_a_tied_head_is_scaled():
    lm = tiny_t5(version="1.0")
    untied = dataclasses.replace(lm.config, tied_head=False)
    params = lm.params.replace(head=lm.params.embedding)
    batch = left_pad([some_sources((12,))[0].ids], 1, 16)
    scaled, plain = (
        loop.prefill(p, cfg, *batch, width=261).logits for p, cfg in ((lm.params, lm.config), (params, untied))
    )
    np.testing.assert_allclose(np.asarray(scaled) * 40**0.5, plain, rtol=1e-4)


def test_A14_beyond_the_range_of_float16():
    """One output matrix whose sums pass 65504: float32 and bfloat16 agree, and float16 is refused before it starts."""
    found = {}
    for dtype in (jnp.float32, jnp.bfloat16):
        lm = tiny_t5(dtype=dtype)
        last = lm.params.encoder[-1]
        mlp = last.mlp.replace(down=last.mlp.down * 1e5)
        assert jnp.abs(t5._feed_forward(mlp, lm.config, jnp.ones((1, 40), dtype))).max() > 65504
        params = lm.params.replace(encoder=(*lm.params.encoder[:-1], last.replace(mlp=mlp)))
        source = left_pad([some_sources((40,))[0].ids], 1, 48)
        found[dtype] = np.asarray(loop.prefill(params, lm.config, *source, width=261).logits)
    wide, narrow = found.values()
    assert np.isfinite(wide).all() and np.isfinite(narrow).all()
    assert np.abs(wide - narrow).max() < 0.1 * wide.std()
    assert wide.argmax() == narrow.argmax()
    with pytest.raises(ValueError, match="T5 is refused in float16"):
        abstract(tiny_t5_config(), "float16")


def test_A14_a_checkpoint_is_not_loaded_in_float16(tmp_path):
    lm = tiny_t5()
    write_checkpoint(tmp_path, lm.config, lm.params, lm.tokenizer)
    with pytest.raises(ValueError, match="T5 is refused in float16"):
        hub.load(tmp_path, dtype="float16")


def test_B02_bfloat16_padding_is_finite_everywhere():
    lm = tiny_t5(dtype=jnp.bfloat16)
    tokens, valid = left_pad([some_sources((4,))[0].ids], 2, 64)  # the second row is padding alone
    with jax.debug_nans(True):
        states = t5.encode(lm.params, lm.config, tokens, valid)
        hidden, cache = t5.read(lm.params, lm.config, tokens, valid)
        own = t5.encode(lm.params, lm.config, tokens[:1, -4:], valid[:1, -4:])
    assert all(np.isfinite(np.asarray(x, np.float32)).all() for x in jax.tree.leaves((states, hidden, cache)))
    real, alone = (np.asarray(x[0, -4:], np.float32) for x in (states, own))
    np.testing.assert_allclose(real, alone, atol=0.05 * alone.std())


def raw(**changes):
    found = {**raw_config(tiny_t5_config("1.0")), **changes}
    return {key: value for key, value in found.items() if value is not ...}


def test_configs_of_both_versions_in_all_spellings():
    old, new = tiny_t5_config("1.0"), tiny_t5_config("1.1")
    assert parse_config(raw()) == parse_config(raw(tie_word_embeddings=...)) == old
    assert parse_config(raw(tie_word_embeddings=True, scale_decoder_outputs=True)) == old
    gated = {"feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu_new", "is_gated_act": True}
    assert parse_config(raw(**gated, tie_word_embeddings=False)) == new
    assert parse_config(raw(**gated, tie_word_embeddings=True, scale_decoder_outputs=False)) == new
    shallow = parse_config(raw(num_decoder_layers=..., relative_attention_max_distance=..., decoder_start_token_id=...))
    assert (shallow.num_layers, shallow.max_distance, shallow.start_id) == (3, 128, 258)
    assert parse_config(raw(feed_forward_proj=...)) == old


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feed_forward_proj": "gated-silu"}, "feed_forward_proj is 'gated-silu'"),
        ({"dense_act_fn": "gelu_new"}, "dense_act_fn is 'gelu_new', but feed_forward_proj 'relu' means 'relu'"),
        ({"is_gated_act": True}, "is_gated_act is True, but"),
        ({"tie_word_embeddings": False, "scale_decoder_outputs": True}, "only a tied head scales"),
        ({"is_encoder_decoder": False}, "is_encoder_decoder is False"),
        ({"architectures": ["T5EncoderModel"]}, "architectures is"),
        ({"decoder_start_token_id": 272}, "decoder_start_token_id is 272, no id of 272"),
        ({"decoder_start_token_id": True}, "decoder_start_token_id is True"),
        ({"relative_attention_num_buckets": 10}, "10 buckets for distances up to 24"),
        ({"relative_attention_max_distance": 8}, "16 buckets for distances up to 8"),
        ({"d_kv": ...}, "d_kv is missing"),
        ({"encoder_window": 8}, "encoder_window is 8; this attribute is not known"),
        ({"is_decoder": True}, "is_decoder is True"),
    ],
)
def test_a_config_that_says_something_else_is_refused(changes, message):
    with pytest.raises(ValueError, match=f"config refused: .*{re.escape(message)}"):
        parse_config(raw(**changes))


FACTS = {
    "google-t5__t5-small": (32128, 6, 6, 512, 2048, 8, 64, 1e-6, 32, 128, "relu", False, True, 0),
    "google-t5__t5-large": (32128, 24, 24, 1024, 4096, 16, 64, 1e-6, 32, 128, "relu", False, True, 0),
    "google__flan-t5-large": (32128, 24, 24, 1024, 2816, 16, 64, 1e-6, 32, 128, "gelu_tanh", True, False, 0),
    "google__t5_xxl_true_nli_mixture": (32128, 24, 24, 4096, 10240, 64, 64, 1e-6, 32, 128, "gelu_tanh", True, False, 0),
    "fangyuan__nq_abstractive_compressor": (32128, 24, 24, 1024, 4096, 16, 64, 1e-6, 32, 128, "relu", False, True, 0),
}


@pytest.mark.shared
def test_A13_every_real_config_parses(shared):
    stated = {path.stem: json.loads(path.read_text()) for path in (shared / "models" / "configs").glob("*.json")}
    found = {name: parse_config(text) for name, text in stated.items() if text.get("model_type") == "t5"}
    assert {name: dataclasses.astuple(cfg) for name, cfg in found.items()} == FACTS


@pytest.mark.shared
def test_published_names_fill_every_leaf_once(shared):
    configs = shared / "models" / "configs"
    sections = re.split("^## ", (configs / "names_t5.txt").read_text(), flags=re.M)[1:]
    counts = {}
    for section in sections:
        name = section.split()[0].replace("/", "__")
        rows = [line.split("\t") for line in section.splitlines() if "\t" in line]
        tensors = {tensor: TensorInfo(tuple(json.loads(shape)), "float32") for tensor, shape in rows}
        cfg = parse_config(json.loads((configs / f"{name}.json").read_text()))
        ledger = pair(table_of(cfg, tensors), tensors, leaf_specs(abstract(cfg, jnp.float32)))
        counts[name] = len(ledger.entries), len(ledger.skipped)
    expected = {"google-t5__t5-small": (131, 1), "google-t5__t5-large": (509, 1), "google__flan-t5-large": (558, 0)}
    assert counts == expected


UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"


@pytest.mark.parametrize("version", VERSIONS)
def test_aliases_are_compared_and_the_unused_bias_is_left_alone(tmp_path, version):
    lm = tiny_t5(version=version)
    write_checkpoint(tmp_path, lm.config, lm.params, lm.tokenizer)
    stored = load_file(tmp_path / "model.safetensors")
    aliases = ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"]
    aliases += ["lm_head.weight"] if version == "1.0" else []
    more = {name: stored["shared.weight"] for name in aliases} | {UNUSED: np.ones((16, 3), np.float32)}
    save_file(stored | more, tmp_path / "model.safetensors")
    loaded = hub.load(tmp_path, dtype="float32")
    assert isinstance(loaded, hub.EncoderDecoder)
    assert (loaded.stop_ids, loaded.vocab_width) == ((257, 260), 261)
    for mine, theirs in zip(jax.tree.leaves(loaded.params), jax.tree.leaves(lm.params), strict=True):
        np.testing.assert_array_equal(mine, theirs)

    other = {name: value for name, value in (stored | more).items() if name != "shared.weight"}
    save_file(other, tmp_path / "model.safetensors")
    np.testing.assert_array_equal(hub.load(tmp_path, dtype="float32").params.embedding, lm.params.embedding)

    for name in aliases:
        save_file(stored | {name: stored["shared.weight"] + 1}, tmp_path / "model.safetensors")
        with pytest.raises(ValueError, match=f"ties {re.escape(name)} to shared.weight, but the file stores other"):
            hub.load(tmp_path, dtype="float32")


def test_a_converted_checkpoint_is_the_model(tmp_path):
    from ragjax.weights.convert import convert_model

    lm = tiny_t5(version="1.0")
    write_checkpoint(tmp_path / "published", lm.config, lm.params, lm.tokenizer)
    folder, _ = convert_model(str(tmp_path / "published"), str(tmp_path / "converted"))
    loaded = hub.load(folder, dtype="float32")
    assert isinstance(loaded, hub.EncoderDecoder)
    source = some_sources((30,))
    assert decode(loaded, source).rows[0][0].tokens.tolist() == decode(lm, source).rows[0][0].tokens.tolist()


def test_a_config_of_another_kind_has_no_missing_head(tmp_path):
    """transformers 5 writes both kinds with tied embeddings; without its matrix an untied head is refused by name."""
    lm = tiny_t5()
    write_checkpoint(tmp_path, lm.config, lm.params, lm.tokenizer)
    stored = load_file(tmp_path / "model.safetensors")
    save_file(
        {name: value for name, value in stored.items() if name != "lm_head.weight"}, tmp_path / "model.safetensors"
    )
    with pytest.raises(ValueError, match=r"tensor lm_head.weight is missing \(leaf head\)"):
        hub.load(tmp_path, dtype="float32")
