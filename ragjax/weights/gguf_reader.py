"""GGUF files of Llama, Qwen2 and Gemma 3: metadata to a `config.json`, names to published ones, blocks to floats.

The metadata becomes a raw config that the same strict parser reads; a key that has no counterpart there is passed on
under its own name, so the parser refuses it by name. Tensors are decoded a few rows at a time. What llama.cpp changed
on the way is changed back: of Llama, query and key rows are stored for interleaved rotary pairs; of Gemma, norms are
stored with their 1 added. Needs the package `gguf` (extra `gguf`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ragjax.models.config import LLAMA_ROPE_THETA
from ragjax.models.fields import MOST
from ragjax.models.layers import inverse_frequencies
from ragjax.models.rope import Rope
from ragjax.weights.keymap import TensorInfo
from ragjax.weights.stream import TensorSource

QUANTS = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q4_K", "Q6_K")

_CONFIG_KEYS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.sliding_window": "sliding_window",
    "rope.freq_base": "rope_theta",
}

# Neutral at this value, at which some converters write it; any other is passed on, to be refused by name.
_NEUTRAL = {"attention.causal": True, "rope.scaling.attn_factor": 1.0}

# Widths that a file may state beside the heads' own; a forward pass knows only one.
_WIDTHS = (
    "attention.value_length",
    "attention.key_length_swa",
    "attention.value_length_swa",
    "rope.dimension_count",
    "rope.dimension_count_swa",
)

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

# The norms on both sides of Gemma's halves; "ffn_norm" is the one in front of the feed-forward layer.
_NAMES_AROUND = _NAMES | {
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


_PATTERN, _WINDOW, _LOCAL_BASE = "attention.sliding_window_pattern", "attention.sliding_window", "rope.freq_base_swa"
_EMBEDDING, _FREQUENCIES = "token_embd.weight", "rope_freqs.weight"
_BLOCK_BYTES = 1 << 24


@dataclass(frozen=True)
class GgufFile:
    """An opened file: its metadata by key, and its tensors (memory-mapped, still quantised) by their own names."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, Any]


@dataclass(frozen=True)
class Architecture:
    """What llama.cpp does to a family: its names, whether q and k rows are interleaved, whether norms have 1 added."""

    model_type: str
    names: Mapping[str, str]
    interleaved: bool = False
    norm_offset: bool = False


ARCHITECTURES = {
    "llama": Architecture("llama", _NAMES, interleaved=True),
    "qwen2": Architecture("qwen2", _NAMES),
    "gemma3": Architecture("gemma3_text", _NAMES_AROUND, norm_offset=True),
}


def open_gguf(path: str | Path) -> GgufFile:
    """Open a file and read its metadata.

    Raises:
        ImportError: if package `gguf` is not installed.
        ValueError: if the file is not a whole GGUF file, or stores a tensor in a type that is not read, naming it.
    """
    try:
        import gguf
    except ImportError as error:
        raise ImportError(f"{path}: reading GGUF needs the package gguf: pip install 'ragjax[gguf]'") from error
    try:
        reader = gguf.GGUFReader(path)
    except (ValueError, IndexError, KeyError) as error:
        raise ValueError(f"{path}: not a whole GGUF file ({error})") from error
    metadata = {key: _plain(field.contents()) for key, field in reader.fields.items()}
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    odd = [f"{name} ({t.tensor_type.name})" for name, t in tensors.items() if t.tensor_type.name not in QUANTS]
    if odd:
        raise ValueError(f"{path}: only {', '.join(QUANTS)} are read, not {', '.join(odd)}")
    return GgufFile(Path(path), metadata, tensors)


def gguf_config(file: GgufFile) -> dict[str, Any]:
    """The raw config that says what the metadata and the tensors' names say.

    Raises:
        ValueError: if the rotary settings cannot be expressed, or contradict the head width.
    """
    arch = file.metadata.get("general.architecture")
    facts = _facts(file, arch)
    facts.pop("vocab_size", None)
    widths = {key: facts.pop(key) for key in _WIDTHS if key in facts}
    stated = _READ_APART.get(arch, lambda *_: {})(file, facts)
    rope = {k: facts.pop(k) for k in list(facts) if k.startswith("rope.") and k not in _CONFIG_KEYS}
    config: dict[str, Any] = {_CONFIG_KEYS.get(key, f"{arch}.{key}"): value for key, value in facts.items()}
    if arch not in ARCHITECTURES or _EMBEDDING not in file.tensors:
        return config | {"model_type": arch}
    config["model_type"] = ARCHITECTURES[arch].model_type
    config["vocab_size"] = int(file.tensors[_EMBEDDING].shape[1])
    config["tie_word_embeddings"] = "output.weight" not in file.tensors
    width = config.get("head_dim") or config.get("hidden_size", 0) // config.get("num_attention_heads", 1)
    if odd := [f"{arch}.{key} is {value}" for key, value in widths.items() if value != width]:
        raise ValueError(f"{file.path}: {', '.join(odd)}, but heads are {width} wide")
    config["rope_scaling"] = _rope_scaling(file, rope, config.get("rope_theta", LLAMA_ROPE_THETA), width)
    return config | stated


def _facts(file: GgufFile, arch: str | None) -> dict[str, Any]:
    """What the metadata says under an architecture's name, without what says nothing: neutral values and zeros."""
    facts = {k.removeprefix(f"{arch}."): v for k, v in file.metadata.items() if k.startswith(f"{arch}.")}
    kept = {k: v for k, v in facts.items() if v or v is False}
    return {k: v for k, v in kept.items() if k not in _NEUTRAL or v != _NEUTRAL[k]}


def _read_llama(file: GgufFile, facts: dict[str, Any]) -> dict[str, Any]:
    """Which biases there are shows only in the tensors."""
    patterns = {"attention_bias": r"blk\.\d+\.attn_\w+\.bias", "mlp_bias": r"blk\.\d+\.ffn_\w+\.bias"}
    return {key: any(re.fullmatch(pattern, name) for name in file.tensors) for key, pattern in patterns.items()}


def _read_gemma3(file: GgufFile, facts: dict[str, Any]) -> dict[str, Any]:
    """llama.cpp scales queries by the head width, but those of the 27B, known by its depth, by the model's per head.

    The base of windowed layers is newer than the format: files without it mean the published one.
    """
    scalar, layers = facts.get("attention.key_length"), facts.get("block_count", 0)
    if layers == 62:
        scalar = facts["embedding_length"] // facts["attention.head_count"]
    windowed = _windowed(file, layers) if layers <= MOST else []  # of more, the parser refuses the number
    kinds = ["sliding_attention" if here else "full_attention" for here in windowed] or None
    facts.pop(_PATTERN, None)
    base = facts.pop(_LOCAL_BASE, None)
    return {"query_pre_attn_scalar": scalar, "layer_types": kinds, "rope_local_base_freq": base}


def _windowed(file: GgufFile, layers: int) -> list[bool]:
    """Which layers of Gemma have a window: none if the file states none, else by a flag for each layer, or all but one
    in so many (six unless said otherwise; 0 spares none)."""
    window, pattern = (file.metadata.get(f"gemma3.{key}") for key in (_WINDOW, _PATTERN))
    if isinstance(pattern, list) and window:
        return [bool(flag) for flag in pattern]
    period = 6 if pattern is None else pattern
    return [bool(window) and (period == 0 or (layer + 1) % period > 0) for layer in range(layers)]


# What a family's files say in their own way, or only through their tensors; the facts that it read are taken out.
_READ_APART = {"llama": _read_llama, "gemma3": _read_gemma3}


def gguf_generation(file: GgufFile) -> dict[str, Any]:
    """The generation config that the tokenizer metadata amounts to: every id that ends a text or a turn."""
    ids = {name: file.metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")}
    stops = list(dict.fromkeys(value for value in ids.values() if value is not None))
    return {"eos_token_id": stops, "bos_token_id": file.metadata.get("tokenizer.ggml.bos_token_id")}


def gguf_tensors(file: GgufFile, config: Mapping[str, Any]) -> TensorSource:
    """The tensors under their published names; `config` is what `gguf_config` gave."""
    arch = ARCHITECTURES[file.metadata["general.architecture"]]
    own = {_published_name(arch, name): name for name in file.tensors if name != _FREQUENCIES}
    infos = {
        name: TensorInfo(tuple(int(size) for size in reversed(file.tensors[stored].shape)), "float32")
        for name, stored in own.items()
    }

    def read(name: str, dtype: np.dtype) -> np.ndarray:
        if arch.norm_offset and name.endswith("norm.weight"):
            return dequantize(file.tensors[own[name]], np.dtype(np.float32)) - 1
        value = dequantize(file.tensors[own[name]], dtype)
        match = re.search(r"\.self_attn\.([qk])_proj\.", name)
        heads = {"q": "num_attention_heads", "k": "num_key_value_heads"}
        return half_split(value, config[heads[match[1]]]) if match and arch.interleaved else value

    return TensorSource(str(file.path), infos, read)


def dequantize(tensor: Any, dtype: np.dtype) -> np.ndarray:
    """Decode one tensor (a `gguf.ReaderTensor`) into `dtype`, a block of rows at a time."""
    from gguf.quants import dequantize as decode

    shape = tuple(int(size) for size in reversed(tensor.shape))
    data = tensor.data.reshape(-1, tensor.data.shape[-1])
    out = np.empty((len(data), shape[-1]), dtype)
    step = max(1, _BLOCK_BYTES // (4 * shape[-1]))
    for start in range(0, len(data), step):
        out[start : start + step] = decode(data[start : start + step], tensor.tensor_type)
    return out.reshape(shape)


def half_split(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows [heads * H, ...] from interleaved rotary pairs (2i, 2i + 1) to the half-split order (i, i + H/2)."""
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def _rope_scaling(file: GgufFile, rope: dict[str, Any], theta: float, width: int) -> dict[str, Any] | None:
    """The `rope_scaling` block: linear from the metadata, llama3 from the stored divisors, anything else refused."""
    kind = rope.pop("rope.scaling.type", "none")
    factor = rope.pop("rope.scaling.factor", rope.pop("rope.scale_linear", None))
    rope.pop("rope.scaling.finetuned", None)
    original = rope.pop("rope.scaling.original_context_length", None)
    if rope or kind not in ("none", "linear"):
        raise ValueError(f"{file.path}: rope scaling {kind!r} with {sorted(rope)} is not supported")
    if _FREQUENCIES in file.tensors:
        if kind != "none":
            raise ValueError(f"{file.path}: {_FREQUENCIES} beside rope scaling {kind!r} is not supported")
        return _llama3_block(file, theta, width, original or 8192)
    return None if kind == "none" and factor is None else {"rope_type": "linear", "factor": factor}


def _llama3_block(file: GgufFile, theta: float, width: int, original: int) -> dict[str, Any]:
    """The llama3 settings that give the stored frequency divisors: the published ones, with the factor they reach."""
    divisors = np.asarray(file.tensors[_FREQUENCIES].data, np.float32)
    rope = Rope(theta, "llama3", float(divisors.max()), original_max_positions=original)
    expected = inverse_frequencies(Rope(theta), width) / inverse_frequencies(rope, width)
    if divisors.shape != expected.shape or not np.allclose(divisors, expected, rtol=1e-4):
        raise ValueError(f"{file.path}: {_FREQUENCIES} holds frequencies that no supported rope kind gives")
    return {
        "rope_type": "llama3",
        "factor": rope.factor,
        "low_freq_factor": rope.low_freq_factor,
        "high_freq_factor": rope.high_freq_factor,
        "original_max_position_embeddings": original,
    }


def _published_name(arch: Architecture, name: str) -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`; a name not known stays as it is."""
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)", name)
    if not match or match[2] not in arch.names:
        return name
    block = f"model.layers.{match[1]}." if match[1] else ""
    return f"{block}{arch.names[match[2]]}.{match[3]}"


def _plain(value: Any) -> Any:
    """Metadata as Python values; a float32 by its shortest decimal (1e-05, not 9.999999747378752e-06)."""
    return float(str(np.float32(value))) if isinstance(value, float) else value
