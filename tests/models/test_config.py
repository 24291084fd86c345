"""Strict reading of config.json: spellings, refusals, real files."""

import dataclasses
import json
import re

import pytest

from ragjax.models.architectures import PARSERS, parse_config
from ragjax.models.config import DECODER_PARSERS, DecoderConfig
from ragjax.models.rope import Rope
from ragjax.testing import raw_config, tiny_config

LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
PLAIN = Rope(50000.0, "default", 1.0, 1.0, 4.0, 0)


def changed(**changes):
    """The raw config of the tiny Llama with some keys changed; a value of `...` takes the key out."""
    raw = {**raw_config(tiny_config()), "rope_theta": 50000.0, **changes}
    return {key: value for key, value in raw.items() if value is not ...}


def refusal(**changes) -> str:
    with pytest.raises(ValueError, match="config refused") as error:
        parse_config(changed(**changes))
    return str(error.value)


@pytest.mark.parametrize(
    "spelling",
    [
        {"rope_scaling": None},
        {"rope_scaling": ...},
        {"rope_scaling": {"type": "default"}},
        {"rope_scaling": {"rope_type": "default"}},
        {"rope_theta": ..., "rope_scaling": ..., "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0}},
        {"rope_theta": ..., "rope_scaling": {"rope_type": "default", "rope_theta": 50000}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 50000}},
        {"rope_theta": ..., "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 50000.0}}},
    ],
)
def test_A02_spellings_of_a_plain_table_agree(spelling):
    assert parse_config(changed(**spelling)).rope == PLAIN


@pytest.mark.parametrize(
    "spelling",
    [
        {"rope_scaling": {"type": "llama3", **LLAMA3}},
        {"rope_scaling": {"rope_type": "llama3", **LLAMA3}},
        {"rope_scaling": {"rope_type": "llama3", "type": "llama3", **LLAMA3}},
        {"rope_theta": ..., "rope_parameters": {"rope_type": "llama3", "rope_theta": 50000.0, **LLAMA3}},
        {
            "rope_theta": ...,
            "rope_parameters": {"full_attention": {"rope_type": "llama3", "rope_theta": 50000.0, **LLAMA3}},
        },
        {
            "original_max_position_embeddings": 32,
            "rope_scaling": {"rope_type": "llama3", **LLAMA3, "original_max_position_embeddings": None},
        },
    ],
)
def test_A02_spellings_of_a_scaled_table_agree(spelling):
    assert parse_config(changed(**spelling)).rope == Rope(50000.0, "llama3", 8.0, 1.0, 4.0, 32)


def test_A02_linear_factor_is_kept():
    rope = parse_config(changed(rope_scaling={"type": "linear", "factor": 4})).rope
    assert rope == dataclasses.replace(PLAIN, kind="linear", factor=4.0)


@pytest.mark.parametrize("kind", ["yarn", "dynamic", "longrope", "su"])
@pytest.mark.parametrize("key", ["type", "rope_type"])
def test_A02_unknown_rope_kind_is_refused_by_name(kind, key):
    assert repr(kind) in refusal(rope_scaling={key: kind, "factor": 2.0})


def test_A02_theta_is_the_published_one_only_where_the_file_states_none():
    assert parse_config(changed(rope_theta=...)).rope.theta == 10000.0
    assert "rope_theta is 0" in refusal(rope_theta=0)


def test_A02_contradicting_settings_are_refused():
    assert "50000.0 and 7.0" in refusal(rope_parameters={"rope_theta": 7.0})
    two = {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": {"rope_type": "default"}}
    assert "contradict" in refusal(**two)
    assert "contradict" in refusal(rope_scaling={"type": "linear", "rope_type": "default", "factor": 2.0})
    assert "sliding_attention" in refusal(rope_parameters={"full_attention": {}, "sliding_attention": {}})


def test_A02_a_setting_that_its_kind_does_not_read_is_refused():
    assert "factor is 8.0" in refusal(rope_scaling={"type": "default", "factor": 8.0})
    assert "attention_factor is 2.0" in refusal(rope_scaling={"type": "linear", "factor": 8.0, "attention_factor": 2.0})
    assert "factor is missing" in refusal(rope_scaling={"type": "linear"})
    assert "low_freq_factor is missing" in refusal(rope_scaling={"type": "llama3", "factor": 8.0})


def test_A05_attention_bias_means_four_and_mlp_bias_three():
    cfg = parse_config(changed(attention_bias=True, mlp_bias=True))
    assert (cfg.qkv_bias, cfg.output_bias, cfg.mlp_bias) == (True, True, True)
    cfg = parse_config(changed(attention_bias=..., mlp_bias=...))
    assert (cfg.qkv_bias, cfg.output_bias, cfg.mlp_bias) == (False, False, False)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("pretraining_tp", 2),
        ("hidden_act", "gelu"),
        ("rope_interleaved", True),
        ("is_llama_config", False),
        ("sliding_window", 4096),
        ("quantization_config", {"bits": 4}),
        ("residual_multiplier", 0.5),
        ("partial_rotary_factor", 0.5),
        ("repetition_penalty", 1.1),
        ("is_decoder", True),
        ("attn_logit_softcapping", 50.0),
        ("architectures", ["LlamaForSequenceClassification"]),
        ("num_key_value_heads", 3),
        ("head_dim", 15),
        ("vocab_size", 0),
        ("num_hidden_layers", "3"),
        ("rms_norm_eps", ...),
        ("hidden_size", None),
        ("attention_bias", "yes"),
    ],
)
def test_what_would_change_the_model_is_refused_by_name(key, value):
    words = {"num_key_value_heads": "key/value heads"}
    assert words.get(key, key) in refusal(**{key: value})


def test_all_problems_are_told_at_once():
    message = refusal(hidden_act="gelu", rope_scaling={"type": "yarn"}, mystery=1)
    assert all(word in message for word in ("hidden_act", "yarn", "mystery"))


def test_neutral_and_harmless_keys_pass():
    saved = {"temperature": 1.0, "top_k": 50, "num_beams": 1, "is_decoder": False, "pruned_heads": {}, "max_length": 20}
    kept = {"torch_dtype": "bfloat16", "dtype": "float32", "bos_token_id": 1, "transformers.js_config": {"a": 1}}
    assert parse_config(changed(**saved, **kept, unheard_of=None)) == parse_config(changed())


def test_head_dim_follows_from_the_width_only_where_it_is_absent():
    assert parse_config(changed(head_dim=...)).head_dim == 12
    assert parse_config(changed(head_dim=None)).head_dim == 12
    assert parse_config(changed(head_dim=16)).head_dim == 16
    assert "not a multiple" in refusal(head_dim=..., hidden_size=50)


def test_absent_key_value_heads_mean_one_per_query_head():
    assert parse_config(changed(num_key_value_heads=...)).num_kv_heads == 4


@pytest.mark.parametrize("kind", ["default", "linear", "llama3"])
def test_a_written_config_parses_to_itself(kind):
    rope = {
        "default": PLAIN,
        "linear": Rope(1e4, "linear", 4.0, 1.0, 4.0, 0),
        "llama3": Rope(5e5, "llama3", 8, 1, 4, 32),
    }
    cfg = tiny_config(rope=rope[kind], tied_head=True, qkv_bias=True, output_bias=True, mlp_bias=True)
    assert parse_config(json.loads(json.dumps(raw_config(cfg)))) == cfg
    assert hash(cfg) == hash(dataclasses.replace(cfg))


def test_a_resave_by_transformers_parses():
    transformers = pytest.importorskip("transformers")
    saved = transformers.LlamaConfig(num_key_value_heads=8, rope_theta=50000.0).to_dict()
    cfg = parse_config(json.loads(json.dumps(saved)))
    assert (cfg.num_kv_heads, cfg.head_dim, cfg.rope.theta) == (8, 128, saved["rope_parameters"]["rope_theta"])


FACTS = {
    "meta-llama__Llama-2-7b-hf": (32000, 32, 4096, 32, 32, 128, 10000.0, "default", False, 4096),
    "meta-llama__Meta-Llama-3-8B-Instruct": (128256, 32, 4096, 32, 8, 128, 500000.0, "default", False, 8192),
    "meta-llama__Llama-3.1-8B-Instruct": (128256, 32, 4096, 32, 8, 128, 500000.0, "llama3", False, 131072),
    "meta-llama__Llama-3.2-1B-Instruct": (128256, 16, 2048, 32, 8, 64, 500000.0, "llama3", True, 131072),
    "meta-llama__Llama-3.2-3B-Instruct": (128256, 28, 3072, 24, 8, 128, 500000.0, "llama3", True, 131072),
    "HuggingFaceTB__SmolLM2-135M": (49152, 30, 576, 9, 3, 64, 100000.0, "default", True, 8192),
    "HuggingFaceTB__SmolLM2-135M-Instruct": (49152, 30, 576, 9, 3, 64, 100000.0, "default", True, 8192),
    "mistralai__Mistral-7B-Instruct-v0.1": (32000, 32, 4096, 32, 8, 128, 10000.0, "default", False, 32768),
    "mistralai__Mistral-7B-Instruct-v0.2": (32000, 32, 4096, 32, 8, 128, 1e6, "default", False, 32768),
    "mistralai__Mistral-7B-Instruct-v0.3": (32768, 32, 4096, 32, 8, 128, 1e6, "default", False, 32768),
    "variant_to_dict__mistralai__Mistral-7B-Instruct-v0.3": (32768, 32, 4096, 32, 8, 128, 1e6, "default", False, 32768),
    "cwyoon99__CompAct-7b": (32000, 32, 4096, 32, 8, 128, 1e6, "default", False, 32768),
    "mistralai__Mixtral-8x7B-Instruct-v0.1": (32000, 32, 4096, 32, 8, 128, 1e6, "default", False, 32768),
    "Qwen__Qwen2.5-0.5B-Instruct": (151936, 24, 896, 14, 2, 64, 1e6, "default", True, 32768),
    "Qwen__Qwen2.5-1.5B-Instruct": (151936, 28, 1536, 12, 2, 128, 1e6, "default", True, 32768),
    "Qwen__Qwen2.5-7B-Instruct": (152064, 28, 3584, 28, 4, 128, 1e6, "default", False, 32768),
    "Qwen__Qwen3-0.6B": (151936, 28, 1024, 16, 8, 128, 1e6, "default", True, 40960),
    "Qwen__Qwen3-8B": (151936, 36, 4096, 32, 8, 128, 1e6, "default", False, 40960),
    "google__gemma-3-270m": (262144, 18, 640, 4, 1, 256, 1e6, "default", True, 32768),
    "google__gemma-3-270m-it": (262144, 18, 640, 4, 1, 256, 1e6, "default", True, 32768),
    "google__gemma-3-1b-it": (262144, 26, 1152, 4, 1, 256, 1e6, "default", True, 32768),
    "google__gemma-3-4b-it": (262208, 34, 2560, 8, 4, 256, 1e6, "linear", True, 131072),
    "variant_expanded__google__gemma-3-4b-it": (262208, 34, 2560, 8, 4, 256, 1e6, "linear", True, 131072),
    "google__gemma-3-12b-it": (262208, 48, 3840, 16, 8, 256, 1e6, "linear", True, 131072),
}


def facts(cfg: DecoderConfig) -> tuple:
    sizes = (cfg.vocab_size, cfg.num_layers, cfg.hidden_size, cfg.num_heads, cfg.num_kv_heads, cfg.head_dim)
    return (*sizes, cfg.rope.theta, cfg.rope.kind, cfg.tied_head, cfg.max_positions)


@pytest.mark.shared
def test_every_real_config_parses_or_is_refused_by_name(shared):
    parsed = {}
    for path in sorted((shared / "models" / "configs").glob("*.json")):
        if path.name.endswith(".generation.json"):
            continue
        raw = json.loads(path.read_text())
        if raw["model_type"] in DECODER_PARSERS:
            parsed[path.stem] = facts(parse_config(raw))
        elif raw["model_type"] in PARSERS:
            parse_config(raw)  # their facts are tested beside their architectures
        else:
            with pytest.raises(ValueError, match=f"'{raw['model_type']}' is not supported"):
                parse_config(raw)
    assert parsed == FACTS


@pytest.mark.shared
def test_A08_a_sparse_text_config_is_the_expanded_one(shared):
    configs = shared / "models" / "configs"
    names = ("google__gemma-3-4b-it", "variant_expanded__google__gemma-3-4b-it")
    sparse, expanded = (parse_config(json.loads((configs / f"{name}.json").read_text())) for name in names)
    assert sparse == expanded
    assert sparse.rope == Rope(1e6, "linear", 8.0, 1.0, 4.0, 0)
    assert sparse.local_rope == Rope(1e4, "default", 1.0, 1.0, 4.0, 0)


@pytest.mark.shared
def test_windows_of_real_models(shared):
    configs = shared / "models" / "configs"
    found = {}
    for name in FACTS:
        windows = parse_config(json.loads((configs / f"{name}.json").read_text())).windows
        if set(windows) != {None}:
            found[name] = (windows[0], [layer for layer, window in enumerate(windows) if window is None])
    assert found == {
        "mistralai__Mistral-7B-Instruct-v0.1": (4096, []),
        "google__gemma-3-270m": (512, [5, 11, 17]),
        "google__gemma-3-270m-it": (512, [5, 11, 17]),
        "google__gemma-3-1b-it": (512, [5, 11, 17, 23]),
        "google__gemma-3-4b-it": (1024, [5, 11, 17, 23, 29]),
        "variant_expanded__google__gemma-3-4b-it": (1024, [5, 11, 17, 23, 29]),
        "google__gemma-3-12b-it": (1024, [5, 11, 17, 23, 29, 35, 41, 47]),
    }


@pytest.mark.shared
def test_generation_defaults_of_a_real_resave_pass(shared):
    raw = json.loads((shared / "models/configs/variant_to_dict__mistralai__Mistral-7B-Instruct-v0.3.json").read_text())
    as_llama = {**raw, "model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    assert parse_config(as_llama).rope.theta == 1e6


@pytest.mark.parametrize("family", DECODER_PARSERS)
def test_more_layers_than_any_model_has_are_refused_at_once(family):
    raw = raw_config(tiny_config(family))
    inner = raw.get("text_config", raw)
    for absurd in (10_001, 10**9, 10**30, 1e30):
        inner["num_hidden_layers"] = absurd
        with pytest.raises(ValueError, match=f"num_hidden_layers is {re.escape(str(absurd))}, "):
            parse_config(raw)


@pytest.mark.parametrize(
    ("family", "key"),
    [
        ("llama", "num_attention_heads"),
        ("llama", "num_key_value_heads"),
        ("mixtral", "num_local_experts"),
        ("mixtral", "num_experts_per_tok"),
    ],
)
def test_absurd_counts_are_refused_by_name(family, key):
    raw = {**raw_config(tiny_config(family)), key: 10**12}
    with pytest.raises(ValueError, match=f"{key} is 1000000000000, more than the 10000 that are supported"):
        parse_config(raw)


def test_as_many_layers_as_are_supported_are_parsed():
    assert parse_config(changed(num_hidden_layers=10_000)).num_layers == 10_000
