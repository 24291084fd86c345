"""The shapes of the decoders that papers name: what their config.json says, and how many weights their files hold.

With them a study can be planned, and its memory counted, before anything is fetched. `published_config` reads an entry
with the same parser as a file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ragjax.models.architectures import Config, parse_config


@dataclass(frozen=True)
class Shape:
    """One model: the facts of its `config.json`, and the distinct weights of its files (a tied head counts once).

    The files of a multimodal model hold a vision tower too, which is counted here and never loaded.
    """

    config: Mapping[str, Any]
    parameters: int


def published_config(name: str) -> Config:
    """The config of a published model by its hub name. Raises KeyError, naming those that are known."""
    if name not in SHAPES:
        raise KeyError(f"{name} is not among the published shapes: {', '.join(SHAPES)}")
    return parse_config(SHAPES[name].config)


def _sizes(layers: int, hidden: int, feed_forward: int, heads: int, groups: int) -> dict[str, int]:
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": feed_forward,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
    }


def _llama(vocab: int, *sizes: int, length: int = 131072, **rest: Any) -> dict[str, Any]:
    common = {"vocab_size": vocab, "max_position_embeddings": length, "rms_norm_eps": 1e-5, "rope_theta": 500000.0}
    return {"model_type": "llama", **_sizes(*sizes), **common, **rest}


def _llama3_rope(factor: float) -> dict[str, Any]:
    frequencies = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    return {"rope_type": "llama3", "factor": factor, **frequencies}


def _mistral(vocab: int, model_type: str = "mistral", **rest: Any) -> dict[str, Any]:
    common = {"vocab_size": vocab, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 1e6}
    return {"model_type": model_type, **_sizes(32, 4096, 14336, 32, 8), **common, **rest}


def _qwen(model_type: str, vocab: int, *sizes: int, length: int, **rest: Any) -> dict[str, Any]:
    common = {"vocab_size": vocab, "max_position_embeddings": length, "rms_norm_eps": 1e-6, "rope_theta": 1e6}
    return {"model_type": model_type, **_sizes(*sizes), **common, **rest}


def _gemma3(*sizes: int) -> dict[str, Any]:
    small = {"vocab_size": 262144, "max_position_embeddings": 32768, "sliding_window": 512, "head_dim": 256}
    return {"model_type": "gemma3_text", **_sizes(*sizes), **small}


def _gemma3_multimodal(*sizes: int) -> dict[str, Any]:
    text = {"sliding_window": 1024, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    return {"model_type": "gemma3", "text_config": {**_sizes(*sizes), **text}}


_TIED = {"tie_word_embeddings": True}
_LLAMA_8B = (128256, 32, 4096, 14336, 32, 8)
_SMOLLM2_135M = Shape(_llama(49152, 30, 576, 1536, 9, 3, length=8192, rope_theta=100000.0, **_TIED), 134_515_008)

SHAPES: dict[str, Shape] = {
    "meta-llama/Llama-2-7b-hf": Shape(
        _llama(32000, 32, 4096, 11008, 32, 32, length=4096, rope_theta=10000.0), 6_738_415_616
    ),
    "meta-llama/Meta-Llama-3-8B-Instruct": Shape(_llama(*_LLAMA_8B, length=8192), 8_030_261_248),
    "meta-llama/Llama-3.1-8B-Instruct": Shape(_llama(*_LLAMA_8B, rope_scaling=_llama3_rope(8.0)), 8_030_261_248),
    "meta-llama/Llama-3.2-1B-Instruct": Shape(
        _llama(128256, 16, 2048, 8192, 32, 8, rope_scaling=_llama3_rope(32.0), **_TIED), 1_235_814_400
    ),
    "meta-llama/Llama-3.2-3B-Instruct": Shape(
        _llama(128256, 28, 3072, 8192, 24, 8, rope_scaling=_llama3_rope(32.0), **_TIED), 3_212_749_824
    ),
    "HuggingFaceTB/SmolLM2-135M": _SMOLLM2_135M,
    "HuggingFaceTB/SmolLM2-135M-Instruct": _SMOLLM2_135M,
    "mistralai/Mistral-7B-Instruct-v0.1": Shape(
        _mistral(32000, sliding_window=4096, rope_theta=10000.0), 7_241_732_096
    ),
    "mistralai/Mistral-7B-Instruct-v0.2": Shape(_mistral(32000), 7_241_732_096),
    "mistralai/Mistral-7B-Instruct-v0.3": Shape(_mistral(32768), 7_248_023_552),
    "cwyoon99/CompAct-7b": Shape(_mistral(32000), 7_241_732_096),
    "mistralai/Mixtral-8x7B-Instruct-v0.1": Shape(
        _mistral(32000, "mixtral", num_local_experts=8, num_experts_per_tok=2), 46_702_792_704
    ),
    "Qwen/Qwen2.5-0.5B-Instruct": Shape(
        _qwen("qwen2", 151936, 24, 896, 4864, 14, 2, length=32768, **_TIED), 494_032_768
    ),
    "Qwen/Qwen2.5-1.5B-Instruct": Shape(
        _qwen("qwen2", 151936, 28, 1536, 8960, 12, 2, length=32768, **_TIED), 1_543_714_304
    ),
    "Qwen/Qwen2.5-7B-Instruct": Shape(_qwen("qwen2", 152064, 28, 3584, 18944, 28, 4, length=32768), 7_615_616_512),
    "Qwen/Qwen3-0.6B": Shape(_qwen("qwen3", 151936, 28, 1024, 3072, 16, 8, length=40960, **_TIED), 596_049_920),
    "Qwen/Qwen3-8B": Shape(_qwen("qwen3", 151936, 36, 4096, 12288, 32, 8, length=40960), 8_190_735_360),
    "google/gemma-3-270m": Shape(_gemma3(18, 640, 2048, 4, 1), 268_098_176),
    "google/gemma-3-270m-it": Shape(_gemma3(18, 640, 2048, 4, 1), 268_098_176),
    "google/gemma-3-1b-it": Shape(_gemma3(26, 1152, 6912, 4, 1), 999_885_952),
    "google/gemma-3-4b-it": Shape(_gemma3_multimodal(34, 2560, 10240, 8, 4), 4_300_079_472),
    "google/gemma-3-12b-it": Shape(_gemma3_multimodal(48, 3840, 15360, 16, 8), 12_187_325_040),
}
