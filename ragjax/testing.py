"""Small models without a download: tiny configs, a byte tokenizer, random weights, and folders to load them from.

The defaults are chosen to bring mistakes to light: an odd number of layers, fewer key/value heads than query heads,
heads whose widths do not add up to the model's, more embedding rows than tokens, and random biases and norms.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ragjax.hub import EncoderDecoder, LanguageModel
from ragjax.models.architectures import Config, abstract, parse_config
from ragjax.models.config import PLAIN, DecoderConfig
from ragjax.models.decoder import ParamSpec
from ragjax.models.rope import Rope
from ragjax.models.t5 import T5, Attention
from ragjax.models.t5_config import T5Config
from ragjax.testing_encoders import RAW_ENCODERS
from ragjax.testing_encoders import encoder_tokenizer as encoder_tokenizer
from ragjax.testing_encoders import random_encoder_params as random_encoder_params
from ragjax.testing_encoders import tiny_encoder as tiny_encoder
from ragjax.testing_encoders import tiny_encoder_config as tiny_encoder_config
from ragjax.typing import PyTree
from ragjax.weights.fingerprint import fingerprint_params
from ragjax.weights.keymap import claims, leaf_specs, to_disk
from ragjax.weights.tables import table_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

BOS, EOS, PAD, START, END = "<bos>", "<eos>", "<pad>", "<|im_start|>", "<|im_end|>"

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def tiny_config(family: str = "llama", **changes: Any) -> DecoderConfig:
    """A small decoder of a family, of three layers (Gemma 3: seven, five windowed to a full one; windows are 8 long).

    Any field of `DecoderConfig` may be changed by name; what follows from others (scales, the windows of that many
    layers) follows from the changed ones.
    """
    values = {**_TINY, **_TINY_FAMILIES.get(family, {}), **changes}
    count, pattern = values["num_layers"], _TINY_WINDOWS.get(family, lambda layer: None)
    follows = {
        "windows": tuple(pattern(layer) for layer in range(count)),
        "query_scale": values["head_dim"] ** -0.5,
        "embedding_scale": values["hidden_size"] ** 0.5 if family in _GEMMA3 else 1.0,
    }
    return DecoderConfig(family=family, **{**PLAIN, **follows, **values})


_GEMMA3 = ("gemma3_text", "gemma3")

_TINY = {
    "vocab_size": 272,
    "num_layers": 3,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-5,
    "rope": Rope(10000.0),
    "tied_head": False,
    "max_positions": 2048,
}

_TINY_GEMMA3 = {
    "num_layers": 7,
    "rope": Rope(1e6, "linear", factor=8.0),
    "local_rope": _TINY["rope"],
    "qk_norm": True,
    "post_norms": True,
    "norm_offset": True,
    "activation": "gelu_tanh",
    "query_scale": 24**-0.5,
    "tied_head": True,
}

_TINY_FAMILIES: dict[str, dict[str, Any]] = {
    "mixtral": {"num_experts": 5, "experts_per_token": 2},
    "qwen2": {"qkv_bias": True},
    "qwen3": {"qk_norm": True, "tied_head": True},
    "gemma3_text": _TINY_GEMMA3,
    "gemma3": _TINY_GEMMA3,
}

_TINY_WINDOWS = {
    "mistral": lambda layer: 8,
    "gemma3_text": lambda layer: 8 if (layer + 1) % 6 else None,
    "gemma3": lambda layer: 8 if (layer + 1) % 6 else None,
}


def tiny_t5_config(version: str = "1.1", **changes: Any) -> T5Config:
    """A small T5 of version "1.0" (relu, tied head) or "1.1" (gated gelu, a head of its own); any field may be changed.

    Texts longer than 24 tokens meet every bucket of distances.
    """
    differences = {"activation": "relu", "gated": False, "tied_head": True} if version == "1.0" else {}
    return T5Config(**{**_TINY_T5, **differences, **changes})


_TINY_T5 = {
    "vocab_size": 272,
    "num_encoder_layers": 3,
    "num_layers": 2,
    "hidden_size": 40,
    "intermediate_size": 56,
    "num_heads": 3,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "num_buckets": 16,
    "max_distance": 24,
    "activation": "gelu_tanh",
    "gated": True,
    "tied_head": False,
    "start_id": 258,
}


def byte_tokenizer(chat: bool = True, bos: bool = True, eos: bool = False) -> "PreTrainedTokenizerFast":
    """A tokenizer of 256 bytes and five special tokens (ids 256 to 260: bos, eos, pad, im_start, im_end).

    `chat=False` leaves out the chat template; `bos=False` is a tokenizer without a BOS token, as Qwen's; with `eos` a
    text ends with one, as T5's do.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocab = {symbol: index for index, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, special=True) for text in (BOS, EOS, PAD, START, END)])
    one = " ".join([BOS] * bos + ["${}"] + [EOS] * eos)
    backend.post_processor = processors.TemplateProcessing(
        single=one.format("A"),
        pair=f"{one} {one}".format("A", "B"),
        special_tokens=[(text, backend.token_to_id(text)) for text in (BOS, EOS)],
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=BOS if bos else None,
        eos_token=EOS,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,
    )
    if chat:
        tokenizer.chat_template = CHAT_TEMPLATE if bos else CHAT_TEMPLATE.removeprefix("{{ bos_token }}")
    return tokenizer


def random_params(cfg: Config, seed: int = 0, dtype: Any = jnp.float32) -> PyTree:
    """Random weights whose logits have a standard deviation of about 2; biases and norms are random too."""
    generator = np.random.default_rng(seed)
    specs = abstract(cfg, dtype)
    paths, norm = iter(leaf_specs(specs)), 0.0 if getattr(cfg, "norm_offset", False) else 1.0
    params = jax.tree.map(lambda spec: _random_leaf(next(paths), spec, generator, norm), specs)
    return _t5_scaled(cfg, params) if isinstance(cfg, T5Config) else params


def _t5_scaled(cfg: T5Config, params: T5) -> T5:
    """T5 does not scale its scores, so its queries are small; where it scales its logits, the embedding is large."""

    def small(a: Attention) -> Attention:
        return a.replace(q=a.q * cfg.head_dim**-0.5)

    decoder = tuple(x.replace(attention=small(x.attention), cross=small(x.cross)) for x in params.decoder)
    return params.replace(
        embedding=params.embedding * (cfg.hidden_size**0.5 if cfg.tied_head else 1.0),
        encoder=tuple(x.replace(attention=small(x.attention)) for x in params.encoder),
        decoder=decoder,
    )


def tiny_model(seed: int = 0, dtype: Any = jnp.float32, **changes: Any) -> LanguageModel:
    """A `LanguageModel` of random weights over the byte tokenizer; `changes` go to `tiny_config`."""
    cfg = tiny_config(**changes)
    tokenizer = byte_tokenizer()
    params = random_params(cfg, seed, dtype)
    return LanguageModel(
        params=params,
        config=cfg,
        tokenizer=tokenizer,
        name=f"tiny-{cfg.family}-{seed}",
        fingerprint=fingerprint_params(cfg, params),
        stop_ids=_stop_ids(tokenizer),
    )


def tiny_t5(seed: int = 0, dtype: Any = jnp.float32, **changes: Any) -> EncoderDecoder:
    """An `EncoderDecoder` of random weights over the byte tokenizer; `changes` go to `tiny_t5_config`."""
    cfg = tiny_t5_config(**changes)
    tokenizer = byte_tokenizer(chat=False, bos=False, eos=True)
    params = random_params(cfg, seed, dtype)
    return EncoderDecoder(
        params=params,
        config=cfg,
        tokenizer=tokenizer,
        name=f"tiny-t5-{seed}",
        fingerprint=fingerprint_params(cfg, params),
        stop_ids=_stop_ids(tokenizer),
    )


def raw_config(cfg: Config) -> dict[str, Any]:
    """The `config.json` that parses to `cfg`, in the spelling of its family's published files.

    Raises:
        ValueError: if no such file exists, because the family has no key for what is special about `cfg`.
    """
    raw = _RAW[cfg.family](cfg)
    if parse_config(raw) != cfg:
        raise ValueError(f"no {cfg.family} config says this: {cfg}")
    return raw


def _raw_common(cfg: DecoderConfig, architecture: str) -> dict[str, Any]:
    return {
        "architectures": [architecture],
        "model_type": cfg.family,
        "vocab_size": cfg.vocab_size,
        "num_hidden_layers": cfg.num_layers,
        "hidden_size": cfg.hidden_size,
        "intermediate_size": cfg.intermediate_size,
        "num_attention_heads": cfg.num_heads,
        "num_key_value_heads": cfg.num_kv_heads,
        "head_dim": cfg.head_dim,
        "rms_norm_eps": cfg.rms_norm_eps,
        "rope_theta": cfg.rope.theta,
        "rope_scaling": _raw_scaling(cfg.rope),
        "tie_word_embeddings": cfg.tied_head,
        "max_position_embeddings": cfg.max_positions,
    }


def _raw_llama(cfg: DecoderConfig) -> dict[str, Any]:
    raw = _raw_common(cfg, "LlamaForCausalLM")
    return raw | {"hidden_act": "silu", "attention_bias": cfg.qkv_bias, "mlp_bias": cfg.mlp_bias}


def _raw_mistral(cfg: DecoderConfig) -> dict[str, Any]:
    return _raw_common(cfg, "MistralForCausalLM") | {"hidden_act": "silu", "sliding_window": cfg.windows[0]}


def _raw_mixtral(cfg: DecoderConfig) -> dict[str, Any]:
    experts = {"num_local_experts": cfg.num_experts, "num_experts_per_tok": cfg.experts_per_token}
    raw = _raw_common(cfg, "MixtralForCausalLM")
    return raw | {"hidden_act": "silu", "sliding_window": cfg.windows[0]} | experts


def _raw_qwen2(cfg: DecoderConfig) -> dict[str, Any]:
    return _raw_common(cfg, "Qwen2ForCausalLM") | _raw_qwen_windows(cfg)


def _raw_qwen3(cfg: DecoderConfig) -> dict[str, Any]:
    return _raw_common(cfg, "Qwen3ForCausalLM") | _raw_qwen_windows(cfg) | {"attention_bias": cfg.qkv_bias}


def _raw_qwen_windows(cfg: DecoderConfig) -> dict[str, Any]:
    """The upper layers' window; where none has one, a window that is switched off, as Qwen publishes it."""
    windowed = [layer for layer, window in enumerate(cfg.windows) if window is not None]
    return {
        "hidden_act": "silu",
        "use_sliding_window": bool(windowed),
        "sliding_window": cfg.windows[-1] or 4,
        "max_window_layers": windowed[0] if windowed else cfg.num_layers,
    }


def _raw_gemma3_text(cfg: DecoderConfig) -> dict[str, Any]:
    local = cfg.local_rope or cfg.rope
    return _raw_common(cfg, "Gemma3ForCausalLM") | {
        "attention_bias": cfg.qkv_bias,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "hidden_activation": "gelu_pytorch_tanh",
        "layer_types": ["full_attention" if window is None else "sliding_attention" for window in cfg.windows],
        "query_pre_attn_scalar": round(cfg.query_scale**-2),
        "rope_local_base_freq": local.theta,
        "sliding_window": next((window for window in cfg.windows if window is not None), 4096),
    }


def _raw_gemma3(cfg: DecoderConfig) -> dict[str, Any]:
    """The published multimodal frame, its vision settings cut down to the name of the tower."""
    text = _raw_gemma3_text(cfg) | {"model_type": "gemma3_text"}
    vision = {"model_type": "siglip_vision_model"}
    frame = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "vision_config": vision}
    return frame | {"text_config": {key: value for key, value in text.items() if key != "architectures"}}


def _raw_t5(cfg: T5Config) -> dict[str, Any]:
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        "is_encoder_decoder": True,
        "vocab_size": cfg.vocab_size,
        "num_layers": cfg.num_encoder_layers,
        "num_decoder_layers": cfg.num_layers,
        "d_model": cfg.hidden_size,
        "d_ff": cfg.intermediate_size,
        "num_heads": cfg.num_heads,
        "d_kv": cfg.head_dim,
        "layer_norm_epsilon": cfg.rms_norm_eps,
        "relative_attention_num_buckets": cfg.num_buckets,
        "relative_attention_max_distance": cfg.max_distance,
        "feed_forward_proj": "gated-gelu" if cfg.gated else "relu",
        "tie_word_embeddings": cfg.tied_head,
        "decoder_start_token_id": cfg.start_id,
        "pad_token_id": cfg.start_id,
    }


_RAW = {
    "llama": _raw_llama,
    "mistral": _raw_mistral,
    "mixtral": _raw_mixtral,
    "qwen2": _raw_qwen2,
    "qwen3": _raw_qwen3,
    "gemma3_text": _raw_gemma3_text,
    "gemma3": _raw_gemma3,
    **RAW_ENCODERS,
    "t5": _raw_t5,
}


def write_checkpoint(folder: str | Path, cfg: Config, params: PyTree, tokenizer: "PreTrainedTokenizerFast") -> Path:
    """Write a folder as published ones look: config.json, model.safetensors, tokenizer files and, for a model that
    writes, generation_config.json.

    Tensors keep the dtype of their leaf. Returns the folder.
    """
    from safetensors.numpy import save_file

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(disk_tensors(cfg, params), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(raw_config(cfg), indent=2))
    if isinstance(cfg, DecoderConfig):
        stops = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": list(_stop_ids(tokenizer))}
        (folder / "generation_config.json").write_text(json.dumps(stops, indent=2))
    tokenizer.save_pretrained(folder)
    return folder


def disk_tensors(cfg: Config, params: PyTree) -> Mapping[str, np.ndarray]:
    """The tensors of `params` under their names on disk, in the layout of published files ([out, in])."""
    tensors, problems = {}, []
    for path, value in leaf_specs(params).items():
        for entry in claims(table_of(cfg, ()), path, value, problems):
            whole = np.asarray(value)
            tensors[entry.name] = to_disk(whole if entry.part is None else whole[entry.part], entry.layout)
    if problems:
        raise ValueError("; ".join(problems))
    return tensors


def _stop_ids(tokenizer: "PreTrainedTokenizerFast") -> tuple[int, int]:
    """The end of a text and the end of a turn."""
    return tuple(tokenizer.convert_tokens_to_ids([EOS, END]))


def _raw_scaling(rope: Rope) -> dict[str, Any] | None:
    if rope.kind == "default":
        return None
    if rope.kind == "linear":
        return {"rope_type": "linear", "factor": rope.factor}
    return {
        "rope_type": rope.kind,
        "factor": rope.factor,
        "low_freq_factor": rope.low_freq_factor,
        "high_freq_factor": rope.high_freq_factor,
        "original_max_position_embeddings": rope.original_max_positions,
    }


def _random_leaf(path: str, spec: ParamSpec, generator: np.random.Generator, norm: float) -> jax.Array:
    """Norms around `norm`, biases around 0, matrices scaled by their inputs (the head by twice that)."""
    if path.endswith("norm"):
        return jnp.asarray(norm + generator.uniform(-0.5, 0.5, spec.shape), spec.dtype)
    noise = generator.standard_normal(spec.shape)
    if path.endswith("bias"):
        return jnp.asarray(0.3 * noise, spec.dtype)
    if spec.axes == "VD":
        return jnp.asarray(2.0 * noise / spec.shape[1] ** 0.5, spec.dtype)
    matrix = spec.shape[1:] if spec.axes.startswith("E") else spec.shape
    inputs = np.prod(matrix[:-1]) if spec.axes.endswith("D") else matrix[0]
    return jnp.asarray(1.5 * noise / inputs**0.5, spec.dtype)
