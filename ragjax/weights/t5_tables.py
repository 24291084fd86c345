"""The key table of T5: the names that published safetensors files use, and the leaves they fill."""

from collections.abc import Container

from ragjax.models.t5_config import T5Config
from ragjax.weights.keymap import KeyTable, Rule

_ENCODER = "encoder.block.{i}.layer."
_DECODER = "decoder.block.{i}.layer."

_STORED_ONCE = (
    Rule("encoder.final_layer_norm.weight", "encoder_norm", "d -> d"),
    Rule("decoder.final_layer_norm.weight", "decoder_norm", "d -> d"),
    Rule("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", "encoder_bias", "p n -> p n"),
    Rule("decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", "decoder_bias", "p n -> p n"),
    Rule("lm_head.weight", "head", "v d -> v d"),
)


def _attention(name: str, path: str) -> tuple[Rule, ...]:
    inputs = tuple(Rule(f"{name}.{x}.weight", f"{path}.{x}", "(n h) d -> d n h") for x in "qkv")
    return (*inputs, Rule(f"{name}.o.weight", f"{path}.o", "d (n h) -> n h d"))


def _block(name: str, path: str, mlp: int, gate: str) -> tuple[Rule, ...]:
    """The two halves that encoder and decoder have alike; the second is number `mlp`."""
    dense = f"{name}{mlp}.DenseReluDense."
    return (
        Rule(f"{name}0.layer_norm.weight", f"{path}.attention_norm", "d -> d"),
        *_attention(f"{name}0.SelfAttention", f"{path}.attention"),
        Rule(f"{name}{mlp}.layer_norm.weight", f"{path}.mlp_norm", "d -> d"),
        Rule(f"{dense}{gate}.weight", f"{path}.mlp.gate", "f d -> d f"),
        Rule(f"{dense}wi_1.weight", f"{path}.mlp.up", "f d -> d f"),
        Rule(f"{dense}wo.weight", f"{path}.mlp.down", "d f -> f d"),
    )


def t5_table(cfg: T5Config, names: Container[str]) -> KeyTable:
    """The key table of a T5; the embedding may be stored under up to three names, and lies under the first of them.

    The first T5s hold a bias of cross-attention that no version of the code has used.
    """
    spellings = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    embedding = next((name for name in spellings if name in names), spellings[0])
    tied = ("lm_head.weight",) if cfg.tied_head else ()
    cross = (
        Rule(_DECODER + "1.layer_norm.weight", "decoder.{i}.cross_norm", "d -> d"),
        *_attention(_DECODER + "1.EncDecAttention", "decoder.{i}.cross"),
    )
    gate = "wi_0" if cfg.gated else "wi"
    return KeyTable(
        rules=(
            Rule(embedding, "embedding", "v d -> v d"),
            *_STORED_ONCE,
            *_block(_ENCODER, "encoder.{i}", 1, gate),
            *_block(_DECODER, "decoder.{i}", 2, gate),
            *cross,
        ),
        buffers=(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",),
        copies={name: embedding for name in (*spellings, *tied) if name != embedding},
    )
