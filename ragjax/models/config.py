"""From a raw `config.json` to the frozen facts that a forward pass reads.

A config is read strictly: every key is honoured, known to be harmless, accepted only at the one value under which it
changes nothing, or refused by name. Both spellings of the rotary settings are read (`rope_theta` + `rope_scaling`, and
`rope_parameters` of transformers 5), and a base found anywhere in the file is never replaced by a default.

A family is one entry of `PARSERS`: a function that asks a `Fields` reader for what it needs.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

LLAMA_ROPE_THETA = 10000.0
"""Rotary base of Llama 1 and 2, whose published files do not state it."""


@dataclass(frozen=True)
class Rope:
    """One rotary table. Its frequencies are `theta ** (-2i / H)`, then slowed down by `kind`.

    `default` leaves them, `linear` divides all by `factor`, `llama3` divides the slow ones by `factor`, keeps the fast
    ones and blends between (wave lengths compared with `original_max_positions`, in tokens).
    Neutral values where a kind has no use for a field: factor 1, low 1, high 4, original 0. With them the formula of
    `llama3` gives exactly the other two kinds.
    """

    theta: float
    kind: str
    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_positions: int


@dataclass(frozen=True)
class DecoderConfig:
    """What distinguishes one causal decoder from another. Sizes in the order of the letters V, L, D, F, N, K, H."""

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
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    tied_head: bool
    max_positions: int


# Nothing under these keys can change a forward pass or what a caller asks of decoding.
HARMLESS = frozenset(
    {
        "_commit_hash",
        "_name_or_path",
        "architectures",
        "attention_dropout",
        "bos_token_id",
        "cache_implementation",
        "chunk_size_feed_forward",
        "dtype",
        "eos_token_id",
        "finetuning_task",
        "gradient_checkpointing",
        "id2label",
        "initializer_range",
        "label2id",
        "max_length",
        "model_type",
        "output_attentions",
        "output_hidden_states",
        "output_past",
        "pad_token_id",
        "prefix",
        "problem_type",
        "return_dict",
        "sep_token_id",
        "task_specific_params",
        "tf_legacy_loss",
        "tokenizer_class",
        "torch_dtype",
        "torchscript",
        "transformers.js_config",
        "transformers_version",
        "unk_token_id",
        "use_bfloat16",
        "use_cache",
    }
)

# Neutral at this value; any other changes the model, or asks for a decoding that the caller would not get.
NEUTRAL: dict[str, Any] = {
    "add_cross_attention": False,
    "is_decoder": False,
    "is_encoder_decoder": False,
    "tie_encoder_decoder": False,
    "partial_rotary_factor": 1.0,
    "pruned_heads": {},
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "typical_p": 1.0,
    "do_sample": False,
    "min_length": 0,
    "early_stopping": False,
    "num_beams": 1,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "repetition_penalty": 1.0,
    "length_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "num_return_sequences": 1,
    "output_scores": False,
    "return_dict_in_generate": False,
    "remove_invalid_values": False,
}

_ORIGINAL = "original_max_position_embeddings"

# kind -> the settings that it reads beside theta
ROPE_KINDS = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", _ORIGINAL),
}

_MISSING = object()


class Fields:
    """A raw config being read: keys are taken one by one, problems are gathered, `finish` raises them all at once."""

    def __init__(self, config: Mapping[str, Any]):
        self.left = dict(config)
        self.problems: list[str] = []

    def take(self, key: str, default: Any = _MISSING) -> Any:
        """The raw value; null counts as absent; a missing key without a default is a problem (and gives None)."""
        value = self.left.pop(key, None)
        if value is None and default is _MISSING:
            self.problems.append(f"{key} is missing")
            return None
        return default if value is None else value

    def integer(self, key: str, default: Any = _MISSING) -> int:
        """A positive whole number."""
        return self._checked(key, self.take(key, default), int, "a positive whole number", 1)

    def number(self, key: str, default: Any = _MISSING) -> float:
        """A positive number."""
        return float(self._checked(key, self.take(key, default), (int, float), "a positive number", 1.0))

    def flag(self, key: str, default: Any = _MISSING) -> bool:
        """True or false."""
        value = self.take(key, default)
        if not isinstance(value, bool):
            self.problems.append(f"{key} is {value!r}, not true or false")
        return bool(value)

    def only(self, key: str, usual: Any) -> None:
        """Accept `key` when absent, null or at its usual value."""
        value = self.take(key, usual)
        if value != usual:
            self.problems.append(f"{key} is {value!r}; only {usual!r} is supported")

    def finish(self) -> None:
        """Raise ValueError with every problem, unknown keys included (a null says nothing and passes)."""
        for key, usual in NEUTRAL.items():
            self.only(key, usual)
        unknown = {k: v for k, v in self.left.items() if k not in HARMLESS and v is not None}
        self.problems += [f"{key} is {value!r}; this attribute is not known" for key, value in unknown.items()]
        if self.problems:
            raise ValueError("config refused: " + "; ".join(self.problems))

    def _checked(self, key: str, value: Any, kinds: type | tuple, wanted: str, stand_in: Any) -> Any:
        """`value` if it is a positive number of the wanted kind, else a stand-in and a problem."""
        if isinstance(value, kinds) and not isinstance(value, bool) and 0 < value < math.inf:
            return value
        if value is not None:
            self.problems.append(f"{key} is {value!r}, not {wanted}")
        return stand_in


def parse_config(config: Mapping[str, Any]) -> DecoderConfig:
    """The facts of a raw `config.json` (a dict, never a transformers config object).

    Raises:
        ValueError: naming the model type if no parser exists for it, else naming every missing, unknown, non-neutral
            or contradictory attribute.
    """
    family = config.get("model_type")
    if family not in PARSERS:
        raise ValueError(f"config refused: model_type {family!r} is not supported (supported: {', '.join(PARSERS)})")
    return PARSERS[family](config)


def rope_of(fields: Fields, published_theta: float | None) -> Rope:
    """Read one rotary table from any spelling; `published_theta` is used only where the file states no base at all."""
    blocks = [b for b in (fields.take("rope_scaling", None), fields.take("rope_parameters", None)) if b is not None]
    blocks = [_single_table(fields, block) for block in blocks]
    stated = [fields.take("rope_theta", None), *(block.pop("rope_theta", None) for block in blocks)]
    bases = [value for value in stated if value is not None]
    if len(set(bases)) > 1:
        fields.problems.append(f"rope_theta is stated as {' and '.join(map(str, bases))}")
    original = fields.take(_ORIGINAL, None)
    theta = Fields({"rope_theta": bases[0] if bases else published_theta})
    base = theta.number("rope_theta")
    ropes = {_scaling(fields, block, base, original) for block in blocks or [{}]}
    fields.problems += theta.problems
    if len(ropes) > 1:
        fields.problems.append("rope_scaling and rope_parameters contradict each other")
    return ropes.pop()


def _single_table(fields: Fields, block: Any) -> dict[str, Any]:
    """The settings of a model that has one table: flat, or nested under its only layer type."""
    if not isinstance(block, Mapping):
        fields.problems.append(f"rope settings are {block!r}, not an object")
        return {}
    nested = {key: value for key, value in block.items() if isinstance(value, Mapping)}
    if set(nested) == set(block) == {"full_attention"}:
        return dict(nested["full_attention"])
    if nested:
        fields.problems.append(f"rope settings per layer type ({', '.join(nested)}) in a model with one table")
        return {}
    return dict(block)


def _scaling(fields: Fields, block: Mapping[str, Any], theta: float, original: int | None) -> Rope:
    """One rotary table from the settings inside a rope block; a setting that its kind does not read is refused."""
    inner = Fields(block)
    kind = inner.take("rope_type", inner.left.get("type") or "default")
    if inner.take("type", kind) != kind:
        inner.problems.append(f"rope kinds {kind!r} and {block['type']!r} contradict each other")
    if kind not in ROPE_KINDS:
        fields.problems.append(f"rope kind {kind!r} is not supported (supported: {', '.join(ROPE_KINDS)})")
        return Rope(theta, "default", 1.0, 1.0, 4.0, 0)
    used = ROPE_KINDS[kind]
    if original is not None:
        inside = inner.left.get(_ORIGINAL)
        inner.left[_ORIGINAL] = original
        if inside not in (None, original):
            inner.problems.append(f"{_ORIGINAL} is stated as {original!r} and {inside!r}")
    rope = Rope(
        theta=theta,
        kind=kind,
        factor=inner.number("factor") if "factor" in used else 1.0,
        low_freq_factor=inner.number("low_freq_factor") if "low_freq_factor" in used else 1.0,
        high_freq_factor=inner.number("high_freq_factor") if "high_freq_factor" in used else 4.0,
        original_max_positions=inner.integer(_ORIGINAL) if _ORIGINAL in used else 0,
    )
    if rope.high_freq_factor <= rope.low_freq_factor:
        inner.problems.append("high_freq_factor must be above low_freq_factor")
    inner.only("partial_rotary_factor", 1.0)
    inner.problems += [f"{k} is {v!r}, of no use in kind {kind!r}" for k, v in inner.left.items() if v is not None]
    fields.problems += [f"rope settings: {problem}" for problem in inner.problems]
    return rope


def _parse_llama(config: Mapping[str, Any]) -> DecoderConfig:
    """Llama 2, 3, 3.1, 3.2 and SmolLM2, whose published files are `model_type` llama."""
    fields = Fields(config)
    fields.only("architectures", ["LlamaForCausalLM"])
    fields.only("hidden_act", "silu")
    fields.only("pretraining_tp", 1)
    fields.only("is_llama_config", True)
    fields.only("rope_interleaved", False)
    heads, hidden = fields.integer("num_attention_heads"), fields.integer("hidden_size")
    if fields.left.get("head_dim") is None and hidden % heads:
        fields.problems.append(f"head_dim is absent and hidden_size {hidden} is not a multiple of {heads} heads")
    bias = fields.flag("attention_bias", False)
    parsed = DecoderConfig(
        family="llama",
        vocab_size=fields.integer("vocab_size"),
        num_layers=fields.integer("num_hidden_layers"),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        num_heads=heads,
        num_kv_heads=fields.integer("num_key_value_heads", heads),
        head_dim=fields.integer("head_dim", hidden // heads),
        rms_norm_eps=fields.number("rms_norm_eps"),
        rope=rope_of(fields, LLAMA_ROPE_THETA),
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=fields.flag("mlp_bias", False),
        tied_head=fields.flag("tie_word_embeddings", False),
        max_positions=fields.integer("max_position_embeddings"),
    )
    if parsed.num_heads % parsed.num_kv_heads:
        fields.problems.append(f"{heads} query heads are not a multiple of {parsed.num_kv_heads} key/value heads")
    if parsed.head_dim % 2:
        fields.problems.append(f"head_dim {parsed.head_dim} is odd: rotary pairs need an even one")
    fields.finish()
    return parsed


PARSERS: dict[str, Callable[[Mapping[str, Any]], DecoderConfig]] = {"llama": _parse_llama}
