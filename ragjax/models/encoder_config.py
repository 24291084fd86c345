"""From a raw `config.json` to the facts of an encoder: BERT, RoBERTa and XLM-R, DeBERTa-v2 and v3.

What all of them share is `EncoderConfig`. They differ in how a token knows its place: `BertConfig` adds a table of
positions to the embeddings, `DebertaConfig` lets attention look at distances. `architectures` says which head, if
any, sits on the states. Reading is strict (see `fields`): sizes and the epsilon have to be stated; of another absent
key, what transformers assumes is assumed here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ragjax.models.fields import Fields


@dataclass(frozen=True)
class EncoderConfig:
    """What every encoder states. Sizes in the order of the letters V, L, D, F, N, H.

    `head` is None, "sequence" (one row of logits a text) or "token" (one a token), with `labels` in the order of
    their ids, none without a head. `head_activation` stands between the two layers of a sequence head. A text has at
    most `max_positions` tokens, special ones included.
    """

    family: str
    vocab_size: int
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    head_dim: int
    norm_eps: float
    activation: str
    max_positions: int
    head: str | None
    head_activation: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class BertConfig(EncoderConfig):
    """Positions from a table, whose rows begin at `position_offset` (RoBERTa keeps those up to its padding id free)."""

    position_offset: int
    type_vocab_size: int

    @property
    def position_rows(self) -> int:
        """Rows of the table of positions."""
        return self.max_positions + self.position_offset


@dataclass(frozen=True)
class DebertaConfig(EncoderConfig):
    """Distances from a table of 2 * `span` rows, which attention reads.

    `content_to_position` and `position_to_content` say which scores are added to those of content with content.
    With `buckets`, distances up to half of it have a row each, longer ones share rows by their logarithm, up to
    `max_distance`. `shared_projections` makes the table pass through the projections of the content.
    """

    max_distance: int
    buckets: int | None
    content_to_position: bool
    position_to_content: bool
    shared_projections: bool
    normed_distances: bool

    @property
    def span(self) -> int:
        """How far from 0 the rows of the table reach."""
        return self.buckets or self.max_distance


# What stands after the family's name in `architectures`, and the head it means. Heads of pre-training are left alone.
_HEADS: Mapping[str, str | None] = {
    "Model": None,
    "ForMaskedLM": None,
    "ForPreTraining": None,
    "ForSequenceClassification": "sequence",
    "ForTokenClassification": "token",
}

_ACTIVATIONS: Mapping[str, str] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}

# About training, about a head of pre-training, or about a pooler that the published classes do not have.
_WITHOUT_EFFECT = (
    "attention_probs_dropout_prob",
    "classifier_dropout",
    "cls_dropout",
    "directionality",
    "hidden_dropout_prob",
    "legacy",
    "pooler_dropout",
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "pooler_type",
    "sbert_ce_default_activation_function",
    "sentence_transformers",
    "tie_word_embeddings",
)


def _parse_bert(config: Mapping[str, Any]) -> BertConfig:
    """BERT and what is made of it: MiniLM, Sentence-BERT, Contriever, cross-encoders, multilingual BERT."""
    fields = Fields(config)
    common = _common(fields, "Bert", bases=("Contriever",))
    return _with_positions(fields, common, "bert", offset=0)


def _parse_roberta(config: Mapping[str, Any]) -> BertConfig:
    return _parse_offset(config, "Roberta", "roberta")


def _parse_xlm_roberta(config: Mapping[str, Any]) -> BertConfig:
    return _parse_offset(config, "XLMRoberta", "xlm-roberta")


def _parse_offset(config: Mapping[str, Any], name: str, family: str) -> BertConfig:
    """RoBERTa's positions begin after the padding id: 514 rows hold 512 tokens."""
    fields = Fields(config)
    padding = fields.take("pad_token_id", 1)
    if not isinstance(padding, int) or isinstance(padding, bool) or padding < 0:
        fields.problems.append(f"pad_token_id is {padding!r}, no id that positions could begin after")
        padding = 0
    return _with_positions(fields, _common(fields, name), family, offset=padding + 1)


def _with_positions(fields: Fields, common: Mapping[str, Any], family: str, offset: int) -> BertConfig:
    fields.only("position_embedding_type", "absolute")
    rows, types = fields.integer("max_position_embeddings"), fields.integer("type_vocab_size")
    if rows <= offset:
        fields.problems.append(f"max_position_embeddings is {rows}, and the first position is {offset}")
    fields.finish()
    return BertConfig(
        **common,
        family=family,
        max_positions=rows - offset,
        head_activation="tanh",
        position_offset=offset,
        type_vocab_size=types,
    )


def _parse_deberta(config: Mapping[str, Any]) -> DebertaConfig:
    """DeBERTa-v2 and v3, in the form of v3: no positions in the embeddings, no token types, no convolution."""
    fields = Fields(config)
    common = _common(fields, "DebertaV2")
    hidden, rows = common["hidden_size"], fields.integer("max_position_embeddings")
    _must_be(fields, "position_biased_input", False, absent=True)
    _must_be(fields, "relative_attention", True, absent=False)
    fields.only("type_vocab_size", 0)
    fields.only("conv_kernel_size", 0)
    for unused in ("conv_act", "conv_groups"):
        fields.take(unused, None)
    for size in ("embedding_size", "pooler_hidden_size"):
        fields.only(size, hidden)
    fields.only("attention_head_size", common["head_dim"])
    kinds = _attention_kinds(fields)
    parsed = DebertaConfig(
        **common,
        family="deberta-v2",
        max_positions=rows,
        head_activation=_activation(fields, "pooler_hidden_act"),
        max_distance=_unless_negative(fields, "max_relative_positions") or rows,
        buckets=_unless_negative(fields, "position_buckets"),
        content_to_position="c2p" in kinds,
        position_to_content="p2c" in kinds,
        shared_projections=fields.flag("share_att_key", False),
        normed_distances=_normed(fields),
    )
    fields.finish()
    return parsed


def _attention_kinds(fields: Fields) -> set[str]:
    """`pos_att_type`, a list or a string such as "p2c|c2p"."""
    stated = fields.take("pos_att_type", [])
    kinds = stated.split("|") if isinstance(stated, str) else stated
    found = {str(kind).strip().lower() for kind in kinds} if isinstance(kinds, list | tuple) else set()
    if not found or not found <= {"c2p", "p2c"}:
        fields.problems.append(f"pos_att_type is {stated!r}, not c2p, p2c or both")
    return found


def _normed(fields: Fields) -> bool:
    stated = fields.take("norm_rel_ebd", "none")
    if stated not in ("none", "layer_norm"):
        fields.problems.append(f"norm_rel_ebd is {stated!r}; only 'layer_norm' and 'none' are supported")
    return stated == "layer_norm"


def _unless_negative(fields: Fields, key: str) -> int | None:
    """A positive whole number, or None where the key is absent or -1."""
    if fields.left.get(key) == -1:
        fields.take(key)
    return fields.optional_integer(key)


def _must_be(fields: Fields, key: str, wanted: bool, absent: bool) -> None:
    """Accept one value of a flag, of which an absent key means the other."""
    if fields.flag(key, absent) != wanted:
        fields.problems.append(f"{key} is {not wanted} (or absent); only {wanted} is supported")


def _common(fields: Fields, name: str, bases: tuple[str, ...] = ()) -> dict[str, Any]:
    """What all families spell alike; `name` begins their architectures, `bases` are further ones without a head."""
    for key in _WITHOUT_EFFECT:
        fields.take(key, None)
    head = _head(fields, name, bases)
    heads, hidden = fields.count("num_attention_heads"), fields.integer("hidden_size")
    if hidden % heads:
        fields.problems.append(f"hidden_size {hidden} is not a multiple of {heads} heads")
    return {
        "vocab_size": fields.integer("vocab_size"),
        "num_layers": fields.count("num_hidden_layers"),
        "hidden_size": hidden,
        "intermediate_size": fields.integer("intermediate_size"),
        "num_heads": heads,
        "head_dim": hidden // heads,
        "norm_eps": fields.number("layer_norm_eps"),
        "activation": _activation(fields, "hidden_act"),
        "head": head,
        "labels": _labels(fields, head),
    }


def _head(fields: Fields, name: str, bases: tuple[str, ...]) -> str | None:
    known = {**{name + ending: head for ending, head in _HEADS.items()}, **dict.fromkeys(bases)}
    stated = fields.take("architectures", [name + "Model"])
    if isinstance(stated, list) and len(stated) == 1 and stated[0] in known:
        return known[stated[0]]
    fields.problems.append(f"architectures is {stated!r}; one of {', '.join(known)} is supported")
    return None


def _activation(fields: Fields, key: str) -> str:
    stated = fields.take(key, "gelu")
    if isinstance(stated, str) and stated in _ACTIVATIONS:
        return _ACTIVATIONS[stated]
    fields.problems.append(f"{key} is {stated!r}; one of {', '.join(_ACTIVATIONS)} is supported")
    return "gelu"


def _labels(fields: Fields, head: str | None) -> tuple[str, ...]:
    """The names of the labels by id; `LABEL_0` and so on where the file has none, of which transformers assumes two.

    Without a head there are none, whatever the file says. Older files spell their number with an underscore.
    """
    older = fields.take("_num_labels", None)
    if older is not None:
        fields.left.setdefault("num_labels", older)
    if head is None:
        fields.take("num_labels", None)
        return ()
    count = fields.count("num_labels", 2) if fields.left.get("num_labels") is not None else None
    named = fields.mapping("id2label", {})
    if not named:
        return tuple(f"LABEL_{i}" for i in range(count or 2))
    labels = tuple(str(named.get(str(i))) for i in range(len(named)))
    if set(named) != {str(i) for i in range(len(named))} or count not in (None, len(named)):
        fields.problems.append(f"id2label is {named!r}, not a name for each id from 0 to {(count or len(named)) - 1}")
    return labels


ENCODER_PARSERS: dict[str, Callable[[Mapping[str, Any]], EncoderConfig]] = {
    "bert": _parse_bert,
    "roberta": _parse_roberta,
    "xlm-roberta": _parse_xlm_roberta,
    "deberta-v2": _parse_deberta,
}
