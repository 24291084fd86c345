"""Key tables of the encoders, in the spelling that a file has.

A file of a model without a head may leave out the prefix of its family; older ones call a norm's scale `gamma` and
its bias `beta`. Whatever belongs to pre-training, and a pooler that no head reads, holds no parameter of ours.
"""

import re
from collections.abc import Container
from dataclasses import replace

from ragjax.models.encoder_config import EncoderConfig
from ragjax.weights.keymap import KeyTable, Rule

_PREFIXES = {"bert": "bert.", "roberta": "roberta.", "xlm-roberta": "roberta.", "deberta-v2": "deberta."}
_WORDS = "embeddings.word_embeddings.weight"
_BLOCK = "encoder.layer.{i}."


def _affine(name: str, path: str, layout: str, bias: str = "d -> d") -> tuple[Rule, Rule]:
    """The two tensors of a linear layer; the leaf of its bias is that of its weight with `_bias` after it."""
    return Rule(f"{name}.weight", path, layout), Rule(f"{name}.bias", f"{path}_bias", bias)


def _norm(name: str, path: str) -> tuple[Rule, Rule]:
    return Rule(f"{name}.weight", f"{path}.scale", "d -> d"), Rule(f"{name}.bias", f"{path}.bias", "d -> d")


def _heads(name: str, path: str) -> tuple[Rule, Rule]:
    return _affine(_BLOCK + "attention.self." + name, path, "(n h) d -> d n h", "(n h) -> n h")


_SHARED = (
    Rule(_WORDS, "embedding", "v d -> v d"),
    *_norm("embeddings.LayerNorm", "norm"),
    *_affine(_BLOCK + "attention.output.dense", "layers.{i}.attention.o", "d (n h) -> n h d"),
    *_norm(_BLOCK + "attention.output.LayerNorm", "layers.{i}.attention_norm"),
    *_affine(_BLOCK + "intermediate.dense", "layers.{i}.mlp.up", "f d -> d f", "f -> f"),
    *_affine(_BLOCK + "output.dense", "layers.{i}.mlp.down", "d f -> f d"),
    *_norm(_BLOCK + "output.LayerNorm", "layers.{i}.mlp_norm"),
)

_BERT = (
    *_SHARED,
    Rule("embeddings.position_embeddings.weight", "positions", "p d -> p d"),
    Rule("embeddings.token_type_embeddings.weight", "types", "u d -> u d"),
    *_heads("query", "layers.{i}.attention.q"),
    *_heads("key", "layers.{i}.attention.k"),
    *_heads("value", "layers.{i}.attention.v"),
)

_DEBERTA = (
    *_SHARED,
    Rule("encoder.rel_embeddings.weight", "distances", "s d -> s d"),
    *_norm("encoder.LayerNorm", "distances_norm"),
    *_heads("query_proj", "layers.{i}.attention.q"),
    *_heads("key_proj", "layers.{i}.attention.k"),
    *_heads("value_proj", "layers.{i}.attention.v"),
    *_heads("pos_key_proj", "projections.{i}.k"),
    *_heads("pos_query_proj", "projections.{i}.q"),
)

_RULES = {"bert": _BERT, "roberta": _BERT, "xlm-roberta": _BERT, "deberta-v2": _DEBERTA}

# Where the two layers of a sequence head lie; {base} is the prefix of the encoder.
_SEQUENCE = {
    "bert": ("{base}pooler.dense", "classifier"),
    "roberta": ("classifier.dense", "classifier.out_proj"),
    "xlm-roberta": ("classifier.dense", "classifier.out_proj"),
    "deberta-v2": ("pooler.dense", "classifier"),
}

_PRETRAINING = r"(cls|lm_head|lm_predictions|mask_predictions)\..+"
_POSITION_IDS = r"embeddings\.position_ids"
# DeBERTa learns positions for its pre-training alone.
_UNUSED = {
    "bert": _POSITION_IDS,
    "roberta": _POSITION_IDS,
    "xlm-roberta": _POSITION_IDS,
    "deberta-v2": _POSITION_IDS + r"|embeddings\.position_embeddings\.weight",
}


def encoder_table(cfg: EncoderConfig, names: Container[str]) -> KeyTable:
    """The key table of an encoder whose file holds tensors of these names.

    With no names it is the spelling that transformers writes: the prefix where there is a head, and none without.
    """
    prefix = _PREFIXES[cfg.family]
    with_prefix = prefix + _WORDS in names or (_WORDS not in names and cfg.head is not None)
    base = prefix if with_prefix else ""
    rules = [replace(rule, name=base + rule.name) for rule in _RULES[cfg.family]]
    if base + "embeddings.LayerNorm.gamma" in names:
        rules = [replace(rule, name=_older(rule.name)) for rule in rules]
    buffers = [re.escape(base) + f"({_UNUSED[cfg.family]})", _PRETRAINING]
    heads = _head_rules(cfg, base)
    # Only some heads read a pooler; older files of RoBERTa keep one beside a head of their own.
    if cfg.head != "sequence" or not any("pooler" in rule.name for rule in heads):
        buffers.append(rf"({re.escape(prefix)})?pooler\..+")
    return KeyTable((*rules, *heads), tuple(buffers), {})


def _head_rules(cfg: EncoderConfig, base: str) -> tuple[Rule, ...]:
    if cfg.head == "token":
        return _affine("classifier", "head.out", "c d -> d c", "c -> c")
    dense, out = _SEQUENCE[cfg.family]
    first = _affine(dense.format(base=base), "head.dense", "e d -> d e")
    return (*first, *_affine(out, "head.out", "c d -> d c", "c -> c"))


def _older(name: str) -> str:
    """The older spelling of a norm's tensors."""
    if "LayerNorm." not in name:
        return name
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
