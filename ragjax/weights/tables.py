"""Key tables: for each family, the names that published safetensors files use, and the leaves they fill.

A table may hold rules for leaves that one of its families lacks (a bias, a norm): only leaves that exist ask for
tensors, and a tensor that none asked for is refused.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import Any

from ragjax.models.architectures import Config
from ragjax.models.config import DecoderConfig
from ragjax.models.encoder_config import BertConfig, DebertaConfig
from ragjax.models.t5_config import T5Config
from ragjax.weights.encoder_tables import encoder_table
from ragjax.weights.keymap import KeyTable, Rule
from ragjax.weights.t5_tables import t5_table

_BLOCK = "model.layers.{i}."

_OUTER = (
    Rule("model.embed_tokens.weight", "embedding", "v d -> v d"),
    Rule("model.norm.weight", "final_norm", "d -> d"),
    Rule("lm_head.weight", "head", "v d -> v d"),
)

_ATTENTION = (
    Rule(_BLOCK + "self_attn.q_proj.weight", "layers.{i}.attention.q", "(n h) d -> d n h"),
    Rule(_BLOCK + "self_attn.k_proj.weight", "layers.{i}.attention.k", "(k h) d -> d k h"),
    Rule(_BLOCK + "self_attn.v_proj.weight", "layers.{i}.attention.v", "(k h) d -> d k h"),
    Rule(_BLOCK + "self_attn.o_proj.weight", "layers.{i}.attention.o", "d (n h) -> n h d"),
    Rule(_BLOCK + "self_attn.q_proj.bias", "layers.{i}.attention.q_bias", "(n h) -> n h"),
    Rule(_BLOCK + "self_attn.k_proj.bias", "layers.{i}.attention.k_bias", "(k h) -> k h"),
    Rule(_BLOCK + "self_attn.v_proj.bias", "layers.{i}.attention.v_bias", "(k h) -> k h"),
    Rule(_BLOCK + "self_attn.o_proj.bias", "layers.{i}.attention.o_bias", "d -> d"),
    Rule(_BLOCK + "self_attn.q_norm.weight", "layers.{i}.attention.q_norm", "h -> h"),
    Rule(_BLOCK + "self_attn.k_norm.weight", "layers.{i}.attention.k_norm", "h -> h"),
)

_MLP = (
    Rule(_BLOCK + "mlp.gate_proj.weight", "layers.{i}.mlp.gate", "f d -> d f"),
    Rule(_BLOCK + "mlp.up_proj.weight", "layers.{i}.mlp.up", "f d -> d f"),
    Rule(_BLOCK + "mlp.down_proj.weight", "layers.{i}.mlp.down", "d f -> f d"),
    Rule(_BLOCK + "mlp.gate_proj.bias", "layers.{i}.mlp.gate_bias", "f -> f"),
    Rule(_BLOCK + "mlp.up_proj.bias", "layers.{i}.mlp.up_bias", "f -> f"),
    Rule(_BLOCK + "mlp.down_proj.bias", "layers.{i}.mlp.down_bias", "d -> d"),
)

_EXPERTS = (
    Rule(_BLOCK + "block_sparse_moe.gate.weight", "layers.{i}.mlp.router", "e d -> d e"),
    Rule(_BLOCK + "block_sparse_moe.experts.{e}.w1.weight", "layers.{i}.mlp.gate", "f d -> d f"),
    Rule(_BLOCK + "block_sparse_moe.experts.{e}.w3.weight", "layers.{i}.mlp.up", "f d -> d f"),
    Rule(_BLOCK + "block_sparse_moe.experts.{e}.w2.weight", "layers.{i}.mlp.down", "d f -> f d"),
)

_NORMS = (
    Rule(_BLOCK + "input_layernorm.weight", "layers.{i}.attention_norm", "d -> d"),
    Rule(_BLOCK + "post_attention_layernorm.weight", "layers.{i}.mlp_norm", "d -> d"),
)

# One name means another norm here: with norms on both sides, `post_attention` says what it is.
_NORMS_AROUND = (
    Rule(_BLOCK + "input_layernorm.weight", "layers.{i}.attention_norm", "d -> d"),
    Rule(_BLOCK + "post_attention_layernorm.weight", "layers.{i}.post_attention_norm", "d -> d"),
    Rule(_BLOCK + "pre_feedforward_layernorm.weight", "layers.{i}.mlp_norm", "d -> d"),
    Rule(_BLOCK + "post_feedforward_layernorm.weight", "layers.{i}.post_mlp_norm", "d -> d"),
)

_BUFFERS = (r"(model\.layers\.\d+\.self_attn|model)\.rotary_emb\.inv_freq",)
_COPIES = {"lm_head.weight": "model.embed_tokens.weight"}
_TOWER = "language_model."

LLAMA = KeyTable((*_OUTER, *_NORMS, *_ATTENTION, *_MLP), _BUFFERS, _COPIES)
MIXTRAL = KeyTable((*_OUTER, *_NORMS, *_ATTENTION, *_EXPERTS), _BUFFERS, _COPIES)
GEMMA3_TEXT = KeyTable((*_OUTER, *_NORMS_AROUND, *_ATTENTION, *_MLP), _BUFFERS, _COPIES)
GEMMA3 = KeyTable(
    rules=tuple(replace(rule, name=_TOWER + rule.name) for rule in GEMMA3_TEXT.rules),
    buffers=(r"(vision_tower|multi_modal_projector)\..+",),
    copies={_TOWER + name: _TOWER + original for name, original in _COPIES.items()},
)

DECODER_TABLES = {
    "llama": LLAMA,
    "mistral": LLAMA,
    "mixtral": MIXTRAL,
    "qwen2": LLAMA,
    "qwen3": LLAMA,
    "gemma3_text": GEMMA3_TEXT,
    "gemma3": GEMMA3,
}


_TABLES: Mapping[type, Callable[[Any, Container[str]], KeyTable]] = {
    DecoderConfig: lambda cfg, names: DECODER_TABLES[cfg.family],
    BertConfig: encoder_table,
    DebertaConfig: encoder_table,
    T5Config: t5_table,
}


def table_of(cfg: Config, names: Container[str]) -> KeyTable:
    """The key table of a checkpoint: that of its family, in the spelling that the stored `names` have."""
    return _TABLES[type(cfg)](cfg, names)
