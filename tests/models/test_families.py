"""Every family against transformers, position by position: prompts, ragged batches, one token at a time, windows."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from ragjax import hub
from ragjax.decode.buckets import left_pad
from ragjax.decode.ensemble import VocabularyMismatch
from ragjax.models import decoder
from ragjax.models.architectures import parse_config
from ragjax.models.moe import route
from ragjax.models.rope import Rope
from ragjax.testing import (
    byte_tokenizer,
    disk_tensors,
    random_params,
    raw_config,
    tiny_config,
    tiny_model,
    write_checkpoint,
)
from tests.decode.test_ensemble import word_tokenizer
from tests.models.test_decoder import assert_same_logits, stepped_logits, texts
from tests.oracle import decode, decode_pair, log_softmax, our_logits, pair, run_forward, some_prompts, tokens_of

WINDOWED_QWEN = {"windows": (None, 8, 8)}
VARIANTS = {
    "A09_mistral": {"family": "mistral"},
    "A11_mixtral": {"family": "mixtral", "windows": (8, 8, 8)},
    "A04_qwen2": {"family": "qwen2"},
    "qwen2_window_switched_on": {"family": "qwen2", **WINDOWED_QWEN},
    "qwen3": {"family": "qwen3"},
    "qwen3_biases": {"family": "qwen3", "qkv_bias": True, "output_bias": True, "num_layers": 1},
    "A06_gemma3": {"family": "gemma3_text"},
}
SHALLOW = {
    "mistral": {"windows": (8, 8)},
    "mixtral": {"windows": (None, None)},
    "qwen2": {"windows": (None, 8)},
    "qwen3": {"windows": (None, None)},
    "gemma3_text": {"windows": (8, None)},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_left_padded_prefill_equals_transformers(name):
    both = pair(**VARIANTS[name])
    rows = texts((150, 40, 9))
    for ids, found in zip(rows, our_logits(both.ours, rows, 160), strict=True):
        expected = both.logits(ids)
        assert expected.std() > 1
        assert_same_logits(found, expected)


@pytest.mark.parametrize("name", VARIANTS)
def test_cached_decode_equals_transformers(name):
    both = pair(**VARIANTS[name])
    rows = texts((80, 61, 33), seed=1)
    for ids, found in zip(rows, stepped_logits(both.ours, rows, (50, 61, 1), 32), strict=True):
        assert_same_logits(found, both.logits(ids))


@pytest.mark.parametrize("name", ["A04_qwen2", "qwen3_biases"])
def test_A20_error_is_flat_over_positions(name):
    both = pair(**VARIANTS[name])
    (ids,) = texts((128,), seed=2)
    error = np.abs(our_logits(both.ours, [ids], 128)[0] - both.logits(ids)).max(axis=1)
    assert error[64:].max() < 3 * max(error[:64].max(), 1e-6)
    assert error.max() < 1e-4


@pytest.mark.parametrize("family", SHALLOW)
def test_B01_greedy_text_does_not_depend_on_the_company(family):
    lm = tiny_model(family=family, num_layers=2, **SHALLOW[family])
    short, middle, long, longer = (some_prompts(1, seed, size, size)[0] for seed, size in enumerate((3, 17, 64, 100)))
    three = [short, middle, long]
    alone = [tokens_of(decode(lm, [prompt], max_new=32))[0] for prompt in three]
    assert all(len(rows[0]) > 8 for rows in alone)
    assert tokens_of(decode(lm, three, max_new=32)) == alone
    assert tokens_of(decode(lm, three[::-1], max_new=32)) == alone[::-1]
    assert tokens_of(decode(lm, [*three, longer], max_new=32))[:3] == alone


@pytest.mark.parametrize("name", ["A09_mistral", "A11_mixtral", "A06_gemma3"])
def test_B02_bfloat16_padding_is_finite_everywhere(name):
    cfg = tiny_config(**VARIANTS[name])
    params = random_params(cfg, dtype=jnp.bfloat16)
    (ids,) = texts((4,))
    with jax.debug_nans(True):
        found = run_forward(params, cfg, *left_pad([ids], 1, 64), 261)
        own = run_forward(params, cfg, *left_pad([ids], 1, 4), 261)
    for array in jax.tree.leaves((found[0], found[1], found[2].keys, found[2].values)):
        assert np.isfinite(np.asarray(array, np.float32)).all()
    states = [np.asarray(x[0][0, -4:], np.float32) for x in (found, own)]
    np.testing.assert_allclose(*states, atol=0.05 * states[1].std())


def written(folder, cfg, params, raw):
    """The checkpoint of `cfg` whose config.json is `raw`, read by both sides: (ours, theirs)."""
    from transformers import AutoModelForCausalLM

    write_checkpoint(folder, cfg, params, byte_tokenizer())
    (folder / "config.json").write_text(json.dumps(raw))
    ours = hub.load(folder, dtype="float32")
    return ours, AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def their_logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0, :, :261].numpy()


@pytest.mark.parametrize("family", ["mistral", "mixtral"])
@pytest.mark.parametrize("window", [None, ..., 8, 4096], ids=["null", "absent", "8", "beyond"])
def test_A09_a_window_that_is_null_absent_or_long_hides_nothing(tmp_path, window, family):
    cfg = tiny_config(family, num_layers=1, windows=(8 if window == 8 else None,))
    params, (ids,) = random_params(cfg), texts((40,), seed=3)
    raw = {k: v for k, v in {**raw_config(cfg), "sliding_window": window}.items() if v is not ...}
    ours, theirs = written(tmp_path, cfg, params, raw)
    found = our_logits(ours, [ids], 64)[0]
    assert_same_logits(found, their_logits(theirs, ids))
    full = dataclasses.replace(ours, config=dataclasses.replace(cfg, windows=(None,)))
    same = np.abs(our_logits(full, [ids], 64)[0] - found).max(axis=1)
    assert same[:8].max() < 1e-5
    assert (same[8:].min() > 1e-2) if window == 8 else (same.max() < 1e-5)


def test_A06_geometry_alone_means_the_published_rest(tmp_path):
    """The official 12B states sizes, the window and the scaling of the full layers; all else follows."""
    cfg = tiny_config("gemma3_text", head_dim=256, query_scale=1 / 16, rms_norm_eps=1e-6, max_positions=131072)
    stated = ("model_type", "vocab_size", "num_hidden_layers", "hidden_size", "intermediate_size", "rope_scaling")
    stated += ("num_attention_heads", "num_key_value_heads", "sliding_window")
    full = raw_config(cfg)
    sparse = {key: full[key] for key in stated}
    assert parse_config(sparse) == parse_config(full) == cfg
    assert [window is None for window in cfg.windows] == [False] * 5 + [True, False]
    assert (cfg.rope.theta, cfg.rope.factor, cfg.local_rope.theta, cfg.local_rope.factor) == (1e6, 8.0, 1e4, 1.0)
    ours, theirs = written(tmp_path, cfg, random_params(cfg), sparse)
    rows = texts((40, 13), seed=4)
    for ids, found in zip(rows, our_logits(ours, rows, 64), strict=True):
        assert_same_logits(found, their_logits(theirs, ids))


def test_A06_each_kind_of_layer_has_its_base():
    cfg = tiny_config("gemma3_text")
    assert [cfg.rope_at(layer).theta for layer in range(7)] == [1e4] * 5 + [1e6, 1e4]


@pytest.mark.parametrize(("width", "factor"), [(640, 25.25), (1152, 34.0), (2560, 50.5), (3840, 62.0)])
def test_A07_embeddings_are_scaled_by_a_rounded_root_and_the_head_is_not(width, factor):
    cfg = tiny_config("gemma3_text", hidden_size=width, num_layers=1, vocab_size=32, intermediate_size=8)
    params = random_params(cfg, dtype=jnp.bfloat16)
    tokens, valid = left_pad([[3, 5, 7]], 1, 4)
    states, _ = decoder.forward(params, cfg, tokens, valid, layer=0)
    plain = params.embedding[jnp.asarray([3, 5, 7])]
    assert states.dtype == jnp.bfloat16
    np.testing.assert_array_equal(states[0, 1:], plain * jnp.bfloat16(factor))
    one = jnp.zeros(width, jnp.bfloat16).at[4].set(1)
    np.testing.assert_array_equal(decoder.logits(params, one, 32), params.embedding[:, 4].astype(jnp.float32))


def test_A08_the_text_tower_of_a_multimodal_checkpoint(tmp_path, caplog):
    """No vocab_size, a factor for the full layers alone, tensors of images: skipped, and told."""
    from safetensors.numpy import load_file, save_file
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    cfg = tiny_config("gemma3")
    params, raw = random_params(cfg), raw_config(cfg)
    write_checkpoint(tmp_path, cfg, params, byte_tokenizer())
    del raw["text_config"]["vocab_size"], raw["text_config"]["tie_word_embeddings"]
    raw |= {"eos_token_id": [1, 106], "boi_token_index": 5, "image_token_index": 262144, "mm_tokens_per_image": 256}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    (tmp_path / "generation_config.json").unlink()
    tensors = load_file(tmp_path / "model.safetensors")
    images = ("vision_tower.vision_model.post_layernorm.bias", "multi_modal_projector.mm_input_projection_weight")
    save_file(tensors | {name: np.ones((3, 4), np.float32) for name in images}, tmp_path / "model.safetensors")

    with caplog.at_level("INFO", logger="ragjax"):
        lm = hub.load(tmp_path, dtype="float32")
    (told,) = caplog.messages
    assert f"{tmp_path}: 2 stored tensors are no part of the model: " in told
    assert all(name in told for name in images)
    assert lm.config == cfg
    assert lm.stop_ids == (1, 106, lm.tokenizer.eos_token_id)
    assert [cfg.rope_at(layer).factor for layer in range(7)] == [1, 1, 1, 1, 1, 8, 1]

    from ragjax.weights.opening import open_published

    _, ledger = open_published(tmp_path).load_params(jnp.float32)
    assert set(ledger.skipped) == set(images)

    theirs = Gemma3ForCausalLM(Gemma3TextConfig(**raw["text_config"], vocab_size=cfg.vocab_size)).eval()
    text = {name.removeprefix("language_model."): torch.tensor(value) for name, value in tensors.items()}
    missing, unexpected = theirs.load_state_dict(text, strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], [])
    theirs.tie_weights()
    (ids,) = texts((40,), seed=5)
    assert_same_logits(our_logits(lm, [ids], 64)[0], their_logits(theirs, ids))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_A11_weights_of_the_chosen_experts(dtype):
    logits = jnp.asarray([[2.0, 1.0, 0.5, -1.0]], dtype)
    for renormalize, expected in ((True, [0.7311, 0.2689]), (False, [0.6095, 0.2242])):
        weights, chosen = route(logits, 2, renormalize=renormalize)
        assert weights.dtype == jnp.float32
        assert chosen.tolist() == [[0, 1]]
        np.testing.assert_allclose(weights[0], expected, atol=5e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_A11_padding_tokens_change_no_real_token(dtype):
    cfg = tiny_config("mixtral")
    params = random_params(cfg, dtype=jnp.dtype(dtype))
    rows = texts((40, 7), seed=6)
    tokens, valid = left_pad(rows, 2, 64)
    padding = np.random.default_rng(0).integers(0, 272, tokens.shape)
    filled = np.where(valid, tokens, padding).astype(np.int32)
    found = [np.asarray(run_forward(params, cfg, t, valid, 261)[1]) for t in (tokens, filled)]
    np.testing.assert_allclose(found[0][valid], found[1][valid], atol=1e-5)


@pytest.mark.parametrize("family", ["mistral", "mixtral", "qwen2", "qwen3", "gemma3_text", "gemma3"])
def test_A02_both_spellings_of_a_config_agree(family):
    """What transformers 5 makes of a published file, rope_parameters and layer_types included, parses to the same."""
    from transformers import AutoConfig

    windows = {"windows": (None, 8, 8)} if family.startswith("qwen") else {}
    raw = raw_config(tiny_config(family, **windows))
    raw.pop("layer_types", None)
    saved = json.loads(AutoConfig.for_model(**raw).to_json_string())
    text = saved.get("text_config", saved)
    assert "rope_parameters" in text
    assert "rope_theta" not in text
    assert parse_config(saved) == parse_config(raw) == tiny_config(family, **windows)


def test_A02_kinds_of_layers_without_a_table_get_the_published_base():
    raw = raw_config(tiny_config("gemma3_text"))
    del raw["rope_theta"], raw["rope_local_base_freq"], raw["rope_scaling"]
    nested = {"full_attention": {"rope_type": "linear", "factor": 4.0}, "sliding_attention": {"rope_theta": 500.0}}
    cfg = parse_config({**raw, "rope_parameters": nested})
    assert cfg.rope == Rope(1e6, "linear", 4.0, 1.0, 4.0, 0)
    assert cfg.local_rope == Rope(500.0, "default", 1.0, 1.0, 4.0, 0)


REFUSED = [
    ("mistral", "attention_bias", True),
    ("mistral", "sliding_window", 0),
    ("mistral", "layer_types", ["full_attention"] * 3),
    ("mistral", "rope_theta", None),
    ("mixtral", "norm_topk_prob", False),
    ("mixtral", "num_experts_per_tok", 6),
    ("mixtral", "hidden_act", "gelu"),
    ("qwen2", "attention_bias", False),
    ("qwen2", "layer_types", ["full_attention", "sliding_attention", "full_attention"]),
    ("qwen2", "layer_types", ["full_attention"]),
    ("qwen2", "rope_scaling", {"type": "yarn", "factor": 4.0}),
    ("qwen3", "num_experts", 8),
    ("gemma3_text", "attn_logit_softcapping", 50.0),
    ("gemma3_text", "final_logit_softcapping", 30.0),
    ("gemma3_text", "use_bidirectional_attention", True),
    ("gemma3_text", "hidden_activation", "gelu"),
    ("gemma3_text", "rope_parameters", {"rope_theta": 1e6, "rope_type": "default"}),
    ("gemma3_text", "rope_local_base_freq", 0),
    ("gemma3_text", "query_pre_attn_scalar", -1),
    ("gemma3", "tie_word_embeddings", False),
    ("gemma3", "mystery", 1),
    ("gemma3", "text_config", "none"),
    ("gemma3_text", "rope_parameters", "none"),
    ("mistral", "model_type", []),
    ("mistral", "rope_theta", [1e6]),
    ("qwen3", "layer_types", 3),
    ("gemma3", "text_config", {"hidden_size": 48, "mystery": 1}),
]


@pytest.mark.parametrize(("family", "key", "value"), REFUSED)
def test_what_would_change_a_family_is_refused_by_name(family, key, value):
    raw = raw_config(tiny_config(family))
    if key == "layer_types" and isinstance(value, list) and len(value) == 3:
        raw.pop("sliding_window")
    words = {
        "layer_types": "layer_types|sliding_window",
        "text_config": "mystery|text_config is",
        "rope_scaling": "yarn",
    }
    with pytest.raises(ValueError, match=f"config refused:.*({words.get(key, key)})"):
        parse_config({**raw, key: value})


def test_A04_a_bias_that_is_missing_or_over_is_named():
    from ragjax.weights.keymap import TensorInfo, leaf_specs
    from ragjax.weights.keymap import pair as pair_up
    from ragjax.weights.tables import DECODER_TABLES

    cfg = tiny_config("qwen2", num_layers=1)
    tensors = {name: TensorInfo(v.shape, "float32") for name, v in disk_tensors(cfg, random_params(cfg)).items()}
    del tensors["model.layers.0.self_attn.k_proj.bias"]
    tensors["model.layers.0.self_attn.o_proj.bias"] = TensorInfo((48,), "float32")
    with pytest.raises(ValueError, match="weights refused") as error:
        pair_up(DECODER_TABLES["qwen2"], tensors, leaf_specs(decoder.abstract(cfg, np.float32)))
    assert "tensor model.layers.0.self_attn.k_proj.bias is missing" in str(error.value)
    assert "tensor model.layers.0.self_attn.o_proj.bias [48] fills no leaf" in str(error.value)


def test_C01_two_sizes_of_qwen_with_unequal_tables_decode_together():
    tokenizer = byte_tokenizer(bos=False)
    small = tiny_model(0, family="qwen2", num_layers=1, vocab_size=264, tied_head=True)
    large = tiny_model(1, family="qwen2", num_layers=2, vocab_size=288, hidden_size=64)
    small, large = (dataclasses.replace(lm, tokenizer=tokenizer) for lm in (small, large))
    prompts = some_prompts(4, 0), some_prompts(4, 1)
    found = decode_pair(small, large, 0.5, prompts)
    assert tokens_of(found) == tokens_of(decode_pair(large, small, 0.5, prompts[::-1]))
    for index, rows in enumerate(found.rows):
        made, mixed = rows[0].tokens.tolist(), 0.0
        for lm, asked in zip((small, large), prompts, strict=True):
            ids = [*asked[index].ids, *made]
            mixed = mixed + 0.5 * log_softmax(our_logits(lm, [ids], 80)[0])[len(asked[index].ids) - 1 : -1]
        assert mixed.shape[1] == 261
        assert mixed.argmax(axis=1).tolist() == made


def test_C03_llama_with_qwen_is_refused_with_the_first_token():
    qwen = dataclasses.replace(tiny_model(1, family="qwen2"), tokenizer=word_tokenizer(), name="qwen")
    prompts = some_prompts(4)
    with pytest.raises(VocabularyMismatch, match=r"tiny-llama-0 and qwen do not share .* first id 0 is '.' and 'w0'"):
        decode_pair(tiny_model(), qwen, 0.5, (prompts, prompts))


def test_experts_fill_their_leaf_one_by_one(tmp_path):
    cfg = tiny_config("mixtral")
    params = random_params(cfg)
    folder = write_checkpoint(tmp_path / "mixtral", cfg, params, byte_tokenizer())
    lm = hub.load(folder, dtype="float32")
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(np.array_equal(a, b)), lm.params, params))
    tensors = disk_tensors(cfg, params)
    third = tensors["model.layers.1.block_sparse_moe.experts.3.w2.weight"]
    np.testing.assert_array_equal(third.T, params.layers[1].mlp.down[3])


def test_a_windowed_layer_keeps_only_what_later_tokens_see():
    cfg = tiny_config("gemma3_text")
    tokens, valid = left_pad(texts((40,)), 1, 64)
    _, _, kept = run_forward(random_params(cfg), cfg, tokens, valid, 261)
    assert [keys.shape[2] for keys in kept.keys] == [7] * 5 + [64, 7]
