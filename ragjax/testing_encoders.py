"""Small encoders without a download: tiny configs, tokenizers with special tokens of their own, random weights.

The names are used through `ragjax.testing`, whose `write_checkpoint` writes encoders too. As there, the defaults are
chosen to bring mistakes to light: an odd number of layers, more embedding rows than tokens, distances beyond the
buckets' linear part, random biases, norms and tables.
"""

import string
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ragjax.hub import Encoder
from ragjax.models.architectures import abstract
from ragjax.models.decoder import ParamSpec
from ragjax.models.encoder_config import BertConfig, DebertaConfig, EncoderConfig
from ragjax.typing import PyTree
from ragjax.weights.fingerprint import fingerprint_params
from ragjax.weights.keymap import leaf_specs

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

_LABELS = {None: (), "sequence": ("contradiction", "entailment", "neutral"), "token": ("drop", "keep")}

_TINY = {
    "vocab_size": 160,
    "num_layers": 3,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_heads": 4,
    "norm_eps": 1e-3,
    "activation": "gelu",
    "max_positions": 512,
}

_TINY_FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {"head_activation": "tanh", "position_offset": 0, "type_vocab_size": 2},
    "roberta": {"head_activation": "tanh", "position_offset": 2, "type_vocab_size": 1},
    "xlm-roberta": {"head_activation": "tanh", "position_offset": 2, "type_vocab_size": 1},
    "deberta-v2": {
        "head_activation": "gelu",
        "max_distance": 512,
        "buckets": 16,
        "content_to_position": True,
        "position_to_content": True,
        "shared_projections": True,
        "normed_distances": True,
    },
}


def tiny_encoder_config(family: str = "bert", head: str | None = None, **changes: Any) -> EncoderConfig:
    """A small encoder of a family ("bert", "roberta", "xlm-roberta", "deberta-v2") with the head that is asked for.

    Any field of its config may be changed by name; the width of a head follows from the model's.
    """
    values = {**_TINY, **_TINY_FAMILIES[family], "head": head, "labels": _LABELS[head], **changes}
    values.setdefault("head_dim", values["hidden_size"] // values["num_heads"])
    return (DebertaConfig if family == "deberta-v2" else BertConfig)(family=family, **values)


def encoder_tokenizer(family: str = "bert") -> "PreTrainedTokenizerFast":
    """A tokenizer of some 130 tokens in the manner of a family, special tokens around single texts and pairs included.

    BERT's is lower-case WordPiece. The others mark the space before a word and keep case (SentencePiece); their
    special tokens lie in the vocabulary that text is matched with, as published ones do, and DeBERTa's sub-words
    include the space before them. A character that is not ASCII is the unknown token.
    """
    from tokenizers import AddedToken
    from transformers import PreTrainedTokenizerFast

    names, layout = _SPECIALS[family]
    backend = _word_piece(names) if family == "bert" else _sentence_piece(names, spaces=family == "deberta-v2")
    backend.add_special_tokens([AddedToken(name, special=True) for name in names.values()])
    backend.post_processor = _framed(backend, *layout)
    inputs = ["input_ids", "token_type_ids", "attention_mask"] if ":1" in layout[1] else ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, clean_up_tokenization_spaces=False, model_input_names=inputs, **names
    )


# The special tokens in the order of their ids, and what stands around a text and around a pair (with its types).
_BERT_NAMES = {
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "unk_token": "[UNK]",
    "mask_token": "[MASK]",
}
_ROBERTA_NAMES = {
    "cls_token": "<s>",
    "pad_token": "<pad>",
    "sep_token": "</s>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}
_BERT_LAYOUT = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")
_ROBERTA_LAYOUT = ("<s> $A </s>", "<s> $A </s> </s> $B </s>")
_SPECIALS = {
    "bert": (_BERT_NAMES, _BERT_LAYOUT),
    "roberta": (_ROBERTA_NAMES, _ROBERTA_LAYOUT),
    "xlm-roberta": (_ROBERTA_NAMES, _ROBERTA_LAYOUT),
    "deberta-v2": (_BERT_NAMES, _BERT_LAYOUT),
}
_WORDS = ("the", "of", "and", "in", "is", "was", "to")
_ENDINGS = ("er", "ing", "s", "ed", "en")
_SPACE = "\u2581"


def _word_piece(names: dict[str, str]) -> "Tokenizer":
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    characters = string.ascii_lowercase + string.digits + string.punctuation
    inside = ["##" + piece for piece in (*string.ascii_lowercase, *string.digits, *_ENDINGS)]
    pieces = [*names.values(), *characters, *inside, *_WORDS]
    vocab = {piece: number for number, piece in enumerate(pieces)}
    backend = Tokenizer(models.WordPiece(vocab, unk_token=names["unk_token"], max_input_chars_per_word=100))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return backend


def _sentence_piece(names: dict[str, str], spaces: bool) -> "Tokenizer":
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    characters = string.ascii_letters + string.digits + string.punctuation + _SPACE
    pieces = [*((_SPACE + word, -2.0) for word in _WORDS), *((piece, -3.0) for piece in _ENDINGS)]
    pieces = [*((name, 0.0) for name in names.values()), *((c, -5.0) for c in characters), *pieces]
    backend = Tokenizer(models.Unigram(pieces, unk_id=list(names).index("unk_token"), byte_fallback=False))
    backend.normalizer = normalizers.NFKC()
    mark = pre_tokenizers.Metaspace(replacement=_SPACE, prepend_scheme="always")
    backend.pre_tokenizer = mark if spaces else pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), mark])
    return backend


def _framed(backend: "Tokenizer", single: str, pair: str) -> Any:
    from tokenizers import processors

    used = {word.removesuffix(":1") for word in pair.split() if not word.startswith("$")}
    specials = [(name, backend.token_to_id(name)) for name in sorted(used)]
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=specials)


def random_encoder_params(cfg: EncoderConfig, seed: int = 0, dtype: Any = jnp.float32) -> PyTree:
    """Random weights; biases, norms and tables are random too."""
    generator = np.random.default_rng(seed)
    specs = abstract(cfg, dtype)
    paths = iter(leaf_specs(specs))
    return jax.tree.map(lambda spec: _random_leaf(next(paths), spec, generator), specs)


def _random_leaf(path: str, spec: ParamSpec, generator: np.random.Generator) -> jax.Array:
    """Norms around 1, biases around 0, tables of unit size, matrices scaled by their inputs."""
    if path.endswith("scale"):
        return jnp.asarray(1 + generator.uniform(-0.5, 0.5, spec.shape), spec.dtype)
    noise = generator.standard_normal(spec.shape)
    if path.endswith("bias"):
        return jnp.asarray(0.3 * noise, spec.dtype)
    if spec.axes in ("VD", "PD", "UD", "SD"):
        return jnp.asarray(noise, spec.dtype)
    inputs = np.prod(spec.shape[:-1]) if spec.axes.endswith("D") else spec.shape[0]
    return jnp.asarray(1.5 * noise / inputs**0.5, spec.dtype)


def tiny_encoder(
    family: str = "bert", head: str | None = None, seed: int = 0, dtype: Any = jnp.float32, **changes: Any
) -> Encoder:
    """An `Encoder` of random weights over its family's tokenizer; `changes` go to `tiny_encoder_config`."""
    cfg = tiny_encoder_config(family, head, **changes)
    params = random_encoder_params(cfg, seed, dtype)
    return Encoder(
        params=params,
        config=cfg,
        tokenizer=encoder_tokenizer(family),
        name=f"tiny-{family}-{seed}",
        fingerprint=fingerprint_params(cfg, params),
    )


def _raw_common(cfg: EncoderConfig, name: str) -> dict[str, Any]:
    ending = {None: "Model", "sequence": "ForSequenceClassification", "token": "ForTokenClassification"}[cfg.head]
    labels = {"id2label": {str(number): label for number, label in enumerate(cfg.labels)}} if cfg.head else {}
    return labels | {
        "architectures": [name + ending],
        "model_type": cfg.family,
        "vocab_size": cfg.vocab_size,
        "num_hidden_layers": cfg.num_layers,
        "hidden_size": cfg.hidden_size,
        "intermediate_size": cfg.intermediate_size,
        "num_attention_heads": cfg.num_heads,
        "layer_norm_eps": cfg.norm_eps,
        "hidden_act": _RAW_ACTIVATIONS.get(cfg.activation, cfg.activation),
    }


_RAW_ACTIVATIONS = {"gelu_tanh": "gelu_new"}


def _raw_bert(cfg: BertConfig) -> dict[str, Any]:
    names = {"bert": "Bert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta"}
    return _raw_common(cfg, names[cfg.family]) | {
        "max_position_embeddings": cfg.position_rows,
        "type_vocab_size": cfg.type_vocab_size,
        "position_embedding_type": "absolute",
        "pad_token_id": max(cfg.position_offset - 1, 0),
    }


def _raw_deberta(cfg: DebertaConfig) -> dict[str, Any]:
    kinds = {"p2c": cfg.position_to_content, "c2p": cfg.content_to_position}
    return _raw_common(cfg, "DebertaV2") | {
        "max_position_embeddings": cfg.max_positions,
        "max_relative_positions": cfg.max_distance,
        "position_buckets": cfg.buckets or -1,
        "pos_att_type": [kind for kind, used in kinds.items() if used],
        "share_att_key": cfg.shared_projections,
        "norm_rel_ebd": "layer_norm" if cfg.normed_distances else "none",
        "pooler_hidden_act": _RAW_ACTIVATIONS.get(cfg.head_activation, cfg.head_activation),
        "position_biased_input": False,
        "relative_attention": True,
        "type_vocab_size": 0,
        "pad_token_id": 0,
    }


RAW_ENCODERS = {"bert": _raw_bert, "roberta": _raw_bert, "xlm-roberta": _raw_bert, "deberta-v2": _raw_deberta}
"""The `config.json` of each family that parses to a config."""
