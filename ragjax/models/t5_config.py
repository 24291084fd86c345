"""From the raw `config.json` of a T5 to the facts that its encoder and decoder read.

One `model_type` covers T5 1.0, T5 1.1, Flan-T5 and what was tuned from them. They differ in the feed-forward layer
(relu, or a gated tanh-gelu) and in the head: the embedding, its logits scaled, or a matrix of its own, unscaled.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ragjax.models.fields import Fields

# What feed_forward_proj means, and what transformers derives from it and may write beside it ("gelu_new" is the tanh
# form).
_FEED_FORWARDS = {"relu": ("relu", False), "gated-gelu": ("gelu_tanh", True)}
_DERIVED = {"relu": ("relu", False), "gated-gelu": ("gelu_new", True)}

_TRAINING = ("classifier_dropout", "dropout_rate", "initializer_factor", "n_positions")


@dataclass(frozen=True)
class T5Config:
    """What distinguishes one T5 from another. Sizes in the order of the letters V, L, D, F, N, H.

    `num_layers` are the decoder's, whose keys and values a decode carries along. Distances between tokens fall into
    `num_buckets`, which do not tell those from `max_distance` on apart. `gated` feed-forward layers have a second
    matrix beside the activated one. A `tied_head` is the embedding, and the states before it are scaled by D**-0.5.
    The decoder reads `start_id` before it writes anything.
    """

    vocab_size: int
    num_encoder_layers: int
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    head_dim: int
    rms_norm_eps: float
    num_buckets: int
    max_distance: int
    activation: str
    gated: bool
    tied_head: bool
    start_id: int

    @property
    def family(self) -> str:
        """What names of models and messages call this architecture."""
        return "t5"

    @property
    def num_kv_heads(self) -> int:
        """Every query head has keys and values of its own."""
        return self.num_heads

    @property
    def max_positions(self) -> None:
        """There is no longest text: T5 has no table of positions, whatever length it was trained on (usually 512)."""
        return None


def parse_t5(config: Mapping[str, Any]) -> T5Config:
    """The facts of a raw T5 `config.json`, as transformers 4 or 5 writes it. Raises as `parse_config` does."""
    fields = Fields(config)
    fields.only("architectures", ["T5ForConditionalGeneration"])
    fields.only("is_encoder_decoder", True)
    for training in _TRAINING:
        fields.take(training, None)
    layers = fields.count("num_layers")
    activation, gated = _feed_forward(fields)
    parsed = T5Config(
        vocab_size=fields.integer("vocab_size"),
        num_encoder_layers=layers,
        num_layers=fields.count("num_decoder_layers", layers),
        hidden_size=fields.integer("d_model"),
        intermediate_size=fields.integer("d_ff"),
        num_heads=fields.count("num_heads"),
        head_dim=fields.integer("d_kv"),
        rms_norm_eps=fields.number("layer_norm_epsilon"),
        num_buckets=fields.integer("relative_attention_num_buckets"),
        max_distance=fields.integer("relative_attention_max_distance", 128),
        activation=activation,
        gated=gated,
        tied_head=_tied_head(fields),
        start_id=_start(fields),
    )
    _check(fields, parsed)
    fields.finish()
    return parsed


def _feed_forward(fields: Fields) -> tuple[str, bool]:
    """The activation and whether it is gated; what transformers derives from the same key has to agree."""
    stated = fields.take("feed_forward_proj", "relu")
    if stated not in _FEED_FORWARDS:
        fields.problems.append(f"feed_forward_proj is {stated!r}; supported are {', '.join(_FEED_FORWARDS)}")
        stated = "relu"
    for key, value in zip(("dense_act_fn", "is_gated_act"), _DERIVED[stated], strict=True):
        written = fields.take(key, value)
        if written != value:
            fields.problems.append(f"{key} is {written!r}, but feed_forward_proj {stated!r} means {value!r}")
    return _FEED_FORWARDS[stated]


def _tied_head(fields: Fields) -> bool:
    """Whether the embedding is the head: then, and only then, its logits are scaled.

    transformers 4 says `tie_word_embeddings` false where the head is a matrix of its own. 5 says true for all and
    tells the two apart by `scale_decoder_outputs`.
    """
    tied = fields.flag("tie_word_embeddings", True)
    scaled = fields.flag("scale_decoder_outputs", tied)
    if scaled and not tied:
        fields.problems.append("scale_decoder_outputs is true, but tie_word_embeddings false: only a tied head scales")
    return tied and scaled


def _start(fields: Fields) -> int:
    """The first token that the decoder reads; the id of padding where the file names none."""
    padding = fields.left.get("pad_token_id")
    return fields.take("decoder_start_token_id", 0 if padding is None else padding)


def _check(fields: Fields, cfg: T5Config) -> None:
    """Half of the encoder's buckets look ahead, half of each half are one distance each, the others share the rest."""
    if cfg.num_buckets % 4 or cfg.max_distance <= cfg.num_buckets // 2:
        fields.problems.append(
            f"{cfg.num_buckets} buckets for distances up to {cfg.max_distance}: their number is a multiple of 4, and "
            "the distance larger than half of it"
        )
    if not isinstance(cfg.start_id, int) or isinstance(cfg.start_id, bool) or not 0 <= cfg.start_id < cfg.vocab_size:
        fields.problems.append(f"decoder_start_token_id is {cfg.start_id!r}, no id of {cfg.vocab_size}")
