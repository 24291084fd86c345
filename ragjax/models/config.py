"""From a raw `config.json` to the frozen facts that a forward pass reads.

`DecoderConfig` lists the differences between the causal families, and nothing else tells them apart. A family is one
entry of `DECODER_PARSERS`: a function that reads its own spelling of those differences, strictly (see `fields`), and
fills in what its published files leave unsaid.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ragjax.models.fields import Fields
from ragjax.models.rope import Rope, rope_of, ropes_of

LLAMA_ROPE_THETA = 10000.0
"""Rotary base of Llama 1 and 2, whose published files do not state it."""

PLAIN: Mapping[str, Any] = {
    "local_rope": None,
    "qkv_bias": False,
    "output_bias": False,
    "mlp_bias": False,
    "qk_norm": False,
    "post_norms": False,
    "norm_offset": False,
    "activation": "silu",
    "embedding_scale": 1.0,
    "num_experts": 0,
    "experts_per_token": 0,
}
"""The fields of the plainest decoder, from which a family departs in some."""


@dataclass(frozen=True)
class DecoderConfig:
    """What distinguishes one causal decoder from another. Sizes in the order of the letters V, L, D, F, N, K, H.

    `windows` has one entry a layer: a token sees itself and the `window - 1` tokens before it, or all with None.
    Windowed layers turn by `local_rope` where there is one, all others by `rope`. `norm_offset` makes a norm multiply
    by 1 + its weight, `post_norms` adds a norm after each half of a block. Scores are multiplied by `query_scale`,
    embeddings by `embedding_scale`. With `num_experts` > 0 (the letter E), the feed-forward layer is that many, of
    which each token uses `experts_per_token`.
    """

    family: str
    vocab_size: int
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope: Rope
    local_rope: Rope | None
    windows: tuple[int | None, ...]
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    post_norms: bool
    norm_offset: bool
    activation: str
    query_scale: float
    embedding_scale: float
    num_experts: int
    experts_per_token: int
    tied_head: bool
    max_positions: int

    def rope_at(self, layer: int) -> Rope:
        """The rotary table of one layer."""
        return self.rope if self.local_rope is None or self.windows[layer] is None else self.local_rope


def with_vocab_size(config: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """The raw config, saying that the vocabulary has `rows` ids where it does not say how many there are.

    The text part of a multimodal config may leave that out; the rows of the stored embedding tell.
    """
    inside = config.get("text_config")
    if isinstance(inside, Mapping):
        return {**config, "text_config": with_vocab_size(inside, rows)}
    return dict(config) if config.get("vocab_size") is not None else {**config, "vocab_size": rows}


def _parse_llama(config: Mapping[str, Any]) -> DecoderConfig:
    """Llama 2, 3, 3.1, 3.2 and SmolLM2, whose published files are `model_type` llama."""
    fields = _opened(config, "LlamaForCausalLM")
    fields.only("pretraining_tp", 1)
    fields.only("is_llama_config", True)
    fields.only("rope_interleaved", False)
    common, bias = _common(fields), fields.flag("attention_bias", False)
    biases = {"qkv_bias": bias, "output_bias": bias, "mlp_bias": fields.flag("mlp_bias", False)}
    return _built(fields, common, family="llama", rope=rope_of(fields, LLAMA_ROPE_THETA), **biases)


def _parse_mistral(config: Mapping[str, Any]) -> DecoderConfig:
    """Mistral 7B: v0.1 has a window in every layer; from v0.2 on it is null, which says the same as no such key."""
    fields = _opened(config, "MistralForCausalLM")
    common = _common(fields)
    windows = (fields.optional_integer("sliding_window"),) * common["num_layers"]
    return _built(fields, common, family="mistral", rope=rope_of(fields, None), windows=windows)


def _parse_mixtral(config: Mapping[str, Any]) -> DecoderConfig:
    """Mixtral 8x7B: Mistral with experts. What is said about the router's training changes nothing here."""
    fields = _opened(config, "MixtralForCausalLM")
    for training in ("output_router_logits", "router_aux_loss_coef", "router_jitter_noise"):
        fields.take(training, None)
    experts, used = fields.count("num_local_experts"), fields.count("num_experts_per_tok")
    if used > experts:
        fields.problems.append(f"num_experts_per_tok is {used}, but there are {experts} experts")
    common = _common(fields)
    windows = (fields.optional_integer("sliding_window"),) * common["num_layers"]
    mixture = {"num_experts": experts, "experts_per_token": used}
    return _built(fields, common, family="mixtral", rope=rope_of(fields, None), windows=windows, **mixture)


def _parse_qwen2(config: Mapping[str, Any]) -> DecoderConfig:
    """Qwen2 and 2.5: biases on q, k and v alone."""
    fields = _opened(config, "Qwen2ForCausalLM")
    common = _common(fields)
    windows = _qwen_windows(fields, common["num_layers"])
    return _built(fields, common, family="qwen2", rope=rope_of(fields, None), windows=windows, qkv_bias=True)


def _parse_qwen3(config: Mapping[str, Any]) -> DecoderConfig:
    """Qwen3: a norm on each head's query and key, and heads of 128 unless said otherwise."""
    fields = _opened(config, "Qwen3ForCausalLM")
    common, bias = _common(fields, head_dim=128), fields.flag("attention_bias", False)
    windows = _qwen_windows(fields, common["num_layers"])
    differences = {"qk_norm": True, "qkv_bias": bias, "output_bias": bias, "windows": windows}
    return _built(fields, common, family="qwen3", rope=rope_of(fields, None), **differences)


def _parse_gemma3_text(config: Mapping[str, Any]) -> DecoderConfig:
    """Gemma 3 270M and 1B."""
    fields = Fields(config)
    fields.only("architectures", ["Gemma3ForCausalLM"])
    return _gemma3(fields, "gemma3_text")


def _parse_gemma3(config: Mapping[str, Any]) -> DecoderConfig:
    """The text tower of a multimodal Gemma 3 (4B, 12B); what is about images is left alone."""
    outer = Fields(config)
    outer.only("architectures", ["Gemma3ForConditionalGeneration"])
    outer.only("tie_word_embeddings", True)
    for images in ("vision_config", "boi_token_index", "eoi_token_index", "image_token_index", "mm_tokens_per_image"):
        outer.take(images, None)
    text = outer.mapping("text_config")
    outer.check_rest()
    fields = Fields(text)
    fields.problems += outer.problems
    return _gemma3(fields, "gemma3")


# What the text part of the published 4B and 12B leaves unsaid.
_GEMMA3_UNSAID = {
    "vocab_size": 262208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6,
    "sliding_window": 4096,
    "query_pre_attn_scalar": 256,
    "tie_word_embeddings": True,
}


def _gemma3(fields: Fields, family: str) -> DecoderConfig:
    """Five windowed layers to a full one, a rotary base for each kind, and norms all around."""
    fields.left = _GEMMA3_UNSAID | {key: value for key, value in fields.left.items() if value is not None}
    fields.only("hidden_activation", "gelu_pytorch_tanh")
    fields.only("attn_logit_softcapping", None)
    fields.only("final_logit_softcapping", None)
    fields.only("use_bidirectional_attention", False)
    # The underscored key comes second: transformers 5 writes 6 there whatever the layers are.
    underscored = fields.integer("_sliding_window_pattern", 6)
    pattern = fields.integer("sliding_window_pattern", underscored)
    common, bias = _common(fields), fields.flag("attention_bias", False)
    kinds = _kinds(fields, common["num_layers"], lambda layer: (layer + 1) % pattern > 0)
    rope, local_rope = ropes_of(fields, full_theta=1e6, windowed_theta=1e4)
    return _built(
        fields,
        common,
        family=family,
        rope=rope,
        local_rope=local_rope if _SLIDING in kinds else None,
        windows=_windows(fields, kinds),
        qkv_bias=bias,
        output_bias=bias,
        qk_norm=True,
        post_norms=True,
        norm_offset=True,
        activation="gelu_tanh",
        query_scale=fields.number("query_pre_attn_scalar") ** -0.5,
        embedding_scale=common["hidden_size"] ** 0.5,
    )


def _opened(config: Mapping[str, Any], architecture: str) -> Fields:
    """A reader of a family that has one architecture and silu."""
    fields = Fields(config)
    fields.only("architectures", [architecture])
    fields.only("hidden_act", "silu")
    return fields


def _common(fields: Fields, head_dim: int | None = None) -> dict[str, Any]:
    """What all families spell alike; `head_dim` is what the family means where the file says none."""
    heads, hidden = fields.count("num_attention_heads"), fields.integer("hidden_size")
    if fields.left.get("head_dim") is None and head_dim is None and hidden % heads:
        fields.problems.append(f"head_dim is absent and hidden_size {hidden} is not a multiple of {heads} heads")
    return {
        "vocab_size": fields.integer("vocab_size"),
        "num_layers": fields.count("num_hidden_layers"),
        "hidden_size": hidden,
        "intermediate_size": fields.integer("intermediate_size"),
        "num_heads": heads,
        "num_kv_heads": fields.count("num_key_value_heads", heads),
        "head_dim": fields.integer("head_dim", head_dim or hidden // heads),
        "rms_norm_eps": fields.number("rms_norm_eps"),
        "tied_head": fields.flag("tie_word_embeddings", False),
        "max_positions": fields.integer("max_position_embeddings"),
    }


def _qwen_windows(fields: Fields, num_layers: int) -> tuple[int | None, ...]:
    """Qwen's upper layers have a window, but only where `use_sliding_window` switches it on."""
    if fields.flag("use_sliding_window", False):
        first = fields.integer("max_window_layers")
        return _windows(fields, _kinds(fields, num_layers, lambda layer: layer >= first))
    for unused in ("sliding_window", "max_window_layers"):
        fields.take(unused, None)
    return _windows(fields, _kinds(fields, num_layers, lambda layer: False))


_FULL, _SLIDING = "full_attention", "sliding_attention"


def _kinds(fields: Fields, num_layers: int, windowed: Callable[[int], bool]) -> list[str]:
    """The kind of each layer: `layer_types` where the file has it, else by the family's rule."""
    ruled = [_SLIDING if windowed(layer) else _FULL for layer in range(num_layers)]
    stated = fields.take("layer_types", ruled)
    known = isinstance(stated, list) and all(kind in (_FULL, _SLIDING) for kind in stated)
    if known and len(stated) == num_layers:
        return stated
    fields.problems.append(f"layer_types is {stated!r}, not {num_layers} of {_FULL} and {_SLIDING}")
    return ruled


def _windows(fields: Fields, kinds: list[str]) -> tuple[int | None, ...]:
    """The window of each layer; `sliding_window` must be there if any layer has one."""
    window = fields.integer("sliding_window") if _SLIDING in kinds else fields.take("sliding_window", None)
    return tuple(window if kind == _SLIDING else None for kind in kinds)


def _built(fields: Fields, common: Mapping[str, Any], **differences: Any) -> DecoderConfig:
    """The config of a family that differs from the plainest decoder by `differences`; raises what was refused."""
    follows = {"windows": (None,) * common["num_layers"], "query_scale": common["head_dim"] ** -0.5}
    parsed = DecoderConfig(**PLAIN | follows | dict(common) | differences)
    if parsed.num_heads % parsed.num_kv_heads:
        heads, groups = parsed.num_heads, parsed.num_kv_heads
        fields.problems.append(f"{heads} query heads are not a multiple of {groups} key/value heads")
    if parsed.head_dim % 2:
        fields.problems.append(f"head_dim {parsed.head_dim} is odd: rotary pairs need an even one")
    fields.finish()
    return parsed


DECODER_PARSERS: dict[str, Callable[[Mapping[str, Any]], DecoderConfig]] = {
    "llama": _parse_llama,
    "mistral": _parse_mistral,
    "mixtral": _parse_mixtral,
    "qwen2": _parse_qwen2,
    "qwen3": _parse_qwen3,
    "gemma3_text": _parse_gemma3_text,
    "gemma3": _parse_gemma3,
}
