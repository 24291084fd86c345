"""Tiny GGUF files, written as llama.cpp's converter lays them out."""

import re
from collections.abc import Sequence
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
AROUND = NAMES | {
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "gemma3_text": "gemma3"}
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write_gguf(path: Path, cfg: DecoderConfig, params, kind=Kind.F32, extra=(), metadata=None) -> Path:
    """A whole model; `extra` are further (name, float32 array) tensors, `metadata` further or replaced keys."""
    arch = ARCHITECTURES[cfg.family]
    writer = gguf.GGUFWriter(path, arch)
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
        kinds = {int: "uint32", float: "float32", str: "string", bool: "bool", list: "array"}
        add = getattr(writer, f"add_{kinds[type(value)]}")
        add(f"{arch}.{key}", value)
    writer.add_layer_norm_rms_eps(cfg.rms_norm_eps)
    writer.add_rope_freq_base(cfg.rope.theta)
    add_byte_vocabulary(writer)
    for name, value in [*disk_tensors(cfg, params).items(), *extra]:
        stored = as_converted(cfg, name, np.asarray(value, np.float32))
        used = kind if stored.ndim == 2 else Kind.F32
        writer.add_tensor(
            gguf_name(name, AROUND if cfg.post_norms else NAMES), gguf.quants.quantize(stored, used), raw_dtype=used
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_name(name: str, names: dict[str, str] = NAMES) -> str:
    """llama.cpp's name of a published one."""
    stem, dot, suffix = name.rpartition(".")
    if match := re.fullmatch(r"model\.layers\.(\d+)\.(.+)", stem):
        return f"blk.{match[1]}.{names[match[2]]}.{suffix}"
    return OUTER.get(stem, stem) + dot + suffix


def as_converted(cfg: DecoderConfig, name: str, value: np.ndarray) -> np.ndarray:
    """What llama.cpp's converter makes of a tensor: Llama's query and key rows reordered, 1 added to Gemma's norms."""
    if cfg.norm_offset and name.endswith("norm.weight"):
        return value + 1
    heads = {"q": cfg.num_heads, "k": cfg.num_kv_heads}
    match = re.search(r"self_attn\.([qk])_proj", name)
    if not match or cfg.family != "llama":
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


def add_gemma_vocabulary(writer: gguf.GGUFWriter) -> None:
    """SentencePiece tokens without merges, as Gemma's: control, bytes, spaces as spaces, letters, then longer ones."""
    control = ["<pad>", "<eos>", "<bos>", "<unk>", "<end_of_turn>"]
    letters = ["\u2581", "a", "b", "c", "<", ">", "o", "s", "n", "e", "w", "\n"]
    longer = ["  ", "ab", "bc", "\u2581a", "\u2581ab", "abc"]
    tokens = [*control, *(f"<0x{byte:02X}>" for byte in range(256)), *letters, *longer, "<mark>"]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([-1000.0] * len(tokens))
    writer.add_token_types([3] * 5 + [6] * 256 + [1] * 18 + [4])
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(3)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    writer.add_chat_template("{{ bos_token }}{% for m in messages %}{{ m.content }}<end_of_turn>\n{% endfor %}")


def add_llama2_vocabulary(writer: gguf.GGUFWriter, pieces: Sequence[tuple[str, float, int]]) -> None:
    """SentencePiece tokens with their scores and types, the first three of them unknown, bos and eos."""
    tokens, scores, kinds = (list(column) for column in zip(*pieces, strict=True))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
