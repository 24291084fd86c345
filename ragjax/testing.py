"""Small models without a download: tiny configs, a byte tokenizer, random weights, and folders to load them from.

The defaults are chosen to bring mistakes to light: an odd number of layers, fewer key/value heads than query heads,
heads whose widths do not add up to the model's, more embedding rows than tokens, and random biases and norms.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ragjax.hub import LanguageModel
from ragjax.models.config import DecoderConfig, Rope
from ragjax.models.decoder import Decoder, ParamSpec, abstract
from ragjax.weights.fingerprint import fingerprint_params
from ragjax.weights.keymap import disk_name, leaf_specs, to_disk
from ragjax.weights.tables import TABLES

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

BOS, EOS, PAD, START, END = "<bos>", "<eos>", "<pad>", "<|im_start|>", "<|im_end|>"

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def tiny_config(**changes: Any) -> DecoderConfig:
    """A Llama of three layers; any field of `DecoderConfig` may be changed by name."""
    rope = Rope(10000.0, "default", factor=1.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_positions=0)
    base = DecoderConfig(
        family="llama",
        vocab_size=272,
        num_layers=3,
        hidden_size=48,
        intermediate_size=80,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        rms_norm_eps=1e-5,
        rope=rope,
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        tied_head=False,
        max_positions=2048,
    )
    return dataclasses.replace(base, **changes)


def byte_tokenizer(chat: bool = True, bos: bool = True) -> "PreTrainedTokenizerFast":
    """A tokenizer of 256 bytes and five special tokens (ids 256 to 260: bos, eos, pad, im_start, im_end).

    `chat=False` leaves out the chat template; `bos=False` is a tokenizer without a BOS token, as Qwen's.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocab = {symbol: index for index, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, special=True) for text in (BOS, EOS, PAD, START, END)])
    if bos:
        first = (BOS, backend.token_to_id(BOS))
        backend.post_processor = processors.TemplateProcessing(
            single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[first]
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


def random_params(cfg: DecoderConfig, seed: int = 0, dtype: Any = jnp.float32) -> Decoder:
    """Random weights whose logits have a standard deviation of about 2; biases and norms are random too."""
    generator = np.random.default_rng(seed)
    specs = abstract(cfg, dtype)
    paths = iter(leaf_specs(specs))
    return jax.tree.map(lambda spec: _random_leaf(next(paths), spec, generator), specs)


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


def raw_config(cfg: DecoderConfig) -> dict[str, Any]:
    """The `config.json` that parses to `cfg`, in the spelling of published Llama files.

    Raises:
        ValueError: if no such file exists (the family has one switch for the biases of q, k, v and o).
    """
    if cfg.qkv_bias != cfg.output_bias:
        raise ValueError("a llama config has one attention_bias: qkv_bias and output_bias must be equal")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": cfg.family,
        "vocab_size": cfg.vocab_size,
        "num_hidden_layers": cfg.num_layers,
        "hidden_size": cfg.hidden_size,
        "intermediate_size": cfg.intermediate_size,
        "num_attention_heads": cfg.num_heads,
        "num_key_value_heads": cfg.num_kv_heads,
        "head_dim": cfg.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": cfg.rms_norm_eps,
        "rope_theta": cfg.rope.theta,
        "rope_scaling": _raw_scaling(cfg.rope),
        "attention_bias": cfg.qkv_bias,
        "mlp_bias": cfg.mlp_bias,
        "tie_word_embeddings": cfg.tied_head,
        "max_position_embeddings": cfg.max_positions,
    }


def write_checkpoint(
    folder: str | Path, cfg: DecoderConfig, params: Decoder, tokenizer: "PreTrainedTokenizerFast"
) -> Path:
    """Write a folder as published ones look: config.json, generation_config.json, model.safetensors, tokenizer files.

    Tensors keep the dtype of their leaf. Returns the folder.
    """
    from safetensors.numpy import save_file

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(disk_tensors(cfg, params), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(raw_config(cfg), indent=2))
    stops = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": list(_stop_ids(tokenizer))}
    (folder / "generation_config.json").write_text(json.dumps(stops, indent=2))
    tokenizer.save_pretrained(folder)
    return folder


def disk_tensors(cfg: DecoderConfig, params: Decoder) -> Mapping[str, np.ndarray]:
    """The tensors of `params` under their names on disk, in the layout of published files ([out, in])."""
    tensors = {}
    for path, value in leaf_specs(params).items():
        name, layout = disk_name(TABLES[cfg.family], path)
        tensors[name] = to_disk(np.asarray(value), layout)
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


def _random_leaf(path: str, spec: ParamSpec, generator: np.random.Generator) -> jax.Array:
    """Norms around 1, biases around 0, matrices scaled by their inputs (the head by twice that)."""
    if path.endswith("norm"):
        return jnp.asarray(generator.uniform(0.5, 1.5, spec.shape), spec.dtype)
    noise = generator.standard_normal(spec.shape)
    if path.endswith("bias"):
        return jnp.asarray(0.3 * noise, spec.dtype)
    if spec.axes == "VD":
        return jnp.asarray(2.0 * noise / spec.shape[1] ** 0.5, spec.dtype)
    inputs = np.prod(spec.shape[:-1]) if spec.axes.endswith("D") else spec.shape[0]
    return jnp.asarray(1.5 * noise / inputs**0.5, spec.dtype)
