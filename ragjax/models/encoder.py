"""What all encoders are made of: blocks that normalise after each half, and the head on their last states.

BERT, RoBERTa and DeBERTa differ in their embeddings and in the scores of their attention (`bert`, `deberta`); the
rest of a block and the heads are here. In a head, C are its labels.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
from flax import struct

from ragjax.models import layers
from ragjax.models.decoder import Attention, ParamSpec
from ragjax.models.encoder_config import EncoderConfig
from ragjax.models.layers import plus, product
from ragjax.typing import Array, Bool, Float

Leaf = Callable[..., ParamSpec | None]
"""From the letters of a parameter's axes to its `ParamSpec`; None where a second argument says that it is not there."""


@struct.dataclass
class Norm:
    """A layer norm."""

    scale: Float[Array, " D"]
    bias: Float[Array, " D"]


@struct.dataclass
class Mlp:
    """The feed-forward layer."""

    up: Float[Array, "D F"]
    up_bias: Float[Array, " F"]
    down: Float[Array, "F D"]
    down_bias: Float[Array, " D"]


@struct.dataclass
class Layer:
    """One block: attention, added and normalised; feed-forward, added and normalised."""

    attention: Attention
    attention_norm: Norm
    mlp: Mlp
    mlp_norm: Norm


@struct.dataclass
class Head:
    """The classifier; its first layer, which a sequence head alone has, reads the state of the first token."""

    dense: Float[Array, "D D"] | None
    dense_bias: Float[Array, " D"] | None
    out: Float[Array, "D C"]
    out_bias: Float[Array, " C"]


def leaf_maker(cfg: EncoderConfig, dtype: Any, **sizes: int) -> Leaf:
    """Makes the leaves of `abstract`; `sizes` are those of a family's own letters."""
    known = {
        "V": cfg.vocab_size,
        "D": cfg.hidden_size,
        "F": cfg.intermediate_size,
        "N": cfg.num_heads,
        "H": cfg.head_dim,
        "C": len(cfg.labels),
        **sizes,
    }

    def leaf(axes: str, present: bool = True) -> ParamSpec | None:
        return ParamSpec(tuple(known[a] for a in axes), dtype, axes) if present else None

    return leaf


def norm_specs(leaf: Leaf) -> Norm:
    """The leaves of a layer norm."""
    return Norm(scale=leaf("D"), bias=leaf("D"))


def layer_specs(leaf: Leaf) -> Layer:
    """The leaves of a block."""
    attention = Attention(
        q=leaf("DNH"),
        k=leaf("DNH"),
        v=leaf("DNH"),
        o=leaf("NHD"),
        q_bias=leaf("NH"),
        k_bias=leaf("NH"),
        v_bias=leaf("NH"),
        o_bias=leaf("D"),
    )
    mlp = Mlp(up=leaf("DF"), up_bias=leaf("F"), down=leaf("FD"), down_bias=leaf("D"))
    return Layer(attention=attention, attention_norm=norm_specs(leaf), mlp=mlp, mlp_norm=norm_specs(leaf))


def head_specs(cfg: EncoderConfig, leaf: Leaf) -> Head | None:
    """The leaves of the head, None for a model without one."""
    if cfg.head is None:
        return None
    first = cfg.head == "sequence"
    return Head(dense=leaf("DD", first), dense_bias=leaf("D", first), out=leaf("DC"), out_bias=leaf("C"))


def normalize(cfg: EncoderConfig, x: Float[Array, "... D"], norm: Norm) -> Float[Array, "... D"]:
    """The layer norm of the model."""
    return layers.layer_norm(x, norm.scale, norm.bias, cfg.norm_eps)


def project(a: Attention, x: Float[Array, "B T D"]) -> tuple[Array, Array, Array]:
    """Queries, keys and values of a block, each [B, N, T, H]."""
    pairs = ((a.q, a.q_bias), (a.k, a.k_bias), (a.v, a.v_bias))
    return tuple(to_head_rows(x, weight, bias) for weight, bias in pairs)


def to_head_rows(x: Float[Array, "... T D"], weight: Float[Array, "D N H"], bias: Float[Array, "N H"]) -> Array:
    """States projected onto heads, the heads in front: [..., N, T, H]."""
    return (layers.to_heads(x, weight) + bias).swapaxes(-2, -3)


def query_blocks(length: int) -> Iterator[slice]:
    """The queries of attention in blocks, so that only a block's scores exist at a time."""
    starts = range(0, length, layers.QUERY_BLOCK)
    return (slice(start, min(start + layers.QUERY_BLOCK, length)) for start in starts)


def mix(scores: Float[Array, "B N M S"], mask: Bool[Array, "B M S"], v: Float[Array, "B N S H"]) -> Array:
    """Values [B, N, M, H] mixed by the scores of a block of queries."""
    weights = layers.masked_softmax(scores, mask[:, None]).astype(v.dtype)
    return product("bnms,bnsh->bnmh", weights, v)


def finish(block: Layer, cfg: EncoderConfig, x: Float[Array, "B T D"], mixed: Float[Array, "B N T H"]) -> Array:
    """The rest of a block once attention has mixed the values [B, T, D]."""
    a, m = block.attention, block.mlp
    added = plus(layers.from_heads(mixed.swapaxes(1, 2), a.o), a.o_bias)
    x = normalize(cfg, x + added, block.attention_norm)
    h = layers.ACTIVATIONS[cfg.activation](plus(product("btd,df->btf", x, m.up), m.up_bias))
    return normalize(cfg, x + plus(product("btf,fd->btd", h, m.down), m.down_bias), block.mlp_norm)


def sequence_logits(head: Head, cfg: EncoderConfig, states: Float[Array, "B T D"]) -> Float[Array, "B C"]:
    """Float32 logits of a text's labels, from the state of its first token."""
    first = plus(product("bd,de->be", states[:, 0], head.dense), head.dense_bias)
    return token_logits(head, layers.ACTIVATIONS[cfg.head_activation](first))


def token_logits(head: Head, states: Float[Array, "... D"]) -> Float[Array, "... C"]:
    """Float32 logits of the labels of each state."""
    return product("...d,dc->...c", states, head.out, accumulate=True) + head.out_bias.astype(jnp.float32)
