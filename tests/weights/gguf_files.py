"""Tiny GGUF files, written as llama.cpp's converter lays them out."""

import re
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind

from ragjax.models.config import DecoderConfig
from ragjax.testing import disk_tensors

NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write_gguf(path: Path, cfg: DecoderConfig, params, kind=Kind.F32, extra=(), metadata=None) -> Path:
    """A whole model; `extra` are further (name, float32 array) tensors, `metadata` further or replaced llama.* keys."""
    writer = gguf.GGUFWriter(path, "llama")
    facts = {
        "block_count": cfg.num_layers,
        "context_length": cfg.max_positions,
        "embedding_length": cfg.hidden_size,
        "feed_forward_length": cfg.intermediate_size,
        "attention.head_count": cfg.num_heads,
        "attention.head_count_kv": cfg.num_kv_heads,
        "attention.key_length": cfg.head_dim,
        "attention.value_length": cfg.head_dim,
        "rope.dimension_count": cfg.head_dim,
        "vocab_size": cfg.vocab_size,
    }
    for key, value in {**facts, **(metadata or {})}.items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)]
        add(f"llama.{key}", value)
    writer.add_layer_norm_rms_eps(cfg.rms_norm_eps)
    writer.add_rope_freq_base(cfg.rope.theta)
    add_byte_vocabulary(writer)
    for name, value in [*disk_tensors(cfg, params).items(), *extra]:
        stored = interleaved(cfg, name, np.asarray(value, np.float32))
        used = kind if stored.ndim == 2 else Kind.F32
        writer.add_tensor(gguf_name(name), gguf.quants.quantize(stored, used), raw_dtype=used)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_name(name: str) -> str:
    """llama.cpp's name of a published one."""
    stem, dot, suffix = name.rpartition(".")
    if match := re.fullmatch(r"model\.layers\.(\d+)\.(.+)", stem):
        return f"blk.{match[1]}.{NAMES[match[2]]}.{suffix}"
    return OUTER.get(stem, stem) + dot + suffix


def interleaved(cfg: DecoderConfig, name: str, value: np.ndarray) -> np.ndarray:
    """Query and key rows reordered as llama.cpp's converter does for the llama architecture."""
    heads = {"q": cfg.num_heads, "k": cfg.num_kv_heads}
    if not (match := re.search(r"self_attn\.([qk])_proj", name)):
        return value
    count = heads[match[1]]
    split = value.reshape(count, 2, value.shape[0] // count // 2, *value.shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2).reshape(value.shape))


def add_byte_vocabulary(writer: gguf.GGUFWriter, cutting: str = "smollm") -> None:
    """A byte-level BPE of 256 symbols, one merge, three control tokens and one token that a user defined."""
    from tokenizers.pre_tokenizers import ByteLevel

    tokens = [*sorted(ByteLevel.alphabet()), "\u0120\u0120", "<s>", "</s>", "<end_of_turn>", "<tool>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(cutting)
    writer.add_token_list(tokens)
    writer.add_token_types([1] * 257 + [3, 3, 3, 4])
    writer.add_token_merges(["\u0120 \u0120"])
    writer.add_bos_token_id(257)
    writer.add_eos_token_id(258)
    writer.add_uint32("tokenizer.ggml.eot_token_id", 259)
    writer.add_chat_template("{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}")
