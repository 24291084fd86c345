"""T5: an encoder that reads a source text, and a decoder that writes one token after the other about it.

1. `encode` reads left-padded sources in both directions.
2. `read` lets the decoder begin: each layer's keys and values of the source are computed once, and the start token,
   the same in every text, goes through the decoder. That is all that a decode needs of a source: a `SourceCache`.
3. `step` reads one new token a row against it, as `decoder.step` does against a prompt.

Where a token stands is told by distance alone: a learned number for each head and bucket of distances, added to the
scores of self-attention. The first layer stores them, and all layers of that half use them. Cross-attention has none,
and no score is scaled.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import struct

from ragjax.models import layers
from ragjax.models.cache import SuffixCache, write
from ragjax.models.decoder import ParamSpec
from ragjax.models.layers import product, rms_norm
from ragjax.models.t5_config import T5Config
from ragjax.sharding import constrain
from ragjax.typing import Array, Bool, Float, Int


@struct.dataclass
class Attention:
    """Projections, input axis first; T5 has no biases."""

    q: Float[Array, "D N H"]
    k: Float[Array, "D N H"]
    v: Float[Array, "D N H"]
    o: Float[Array, "N H D"]


@struct.dataclass
class FeedForward:
    """`gate` is activated; `up` multiplies it, and is None in T5 1.0."""

    gate: Float[Array, "D F"]
    up: Float[Array, "D F"] | None
    down: Float[Array, "F D"]


@struct.dataclass
class EncoderLayer:
    """Norm, self-attention, norm, feed-forward, each half added to the residual stream."""

    attention_norm: Float[Array, " D"]
    attention: Attention
    mlp_norm: Float[Array, " D"]
    mlp: FeedForward


@struct.dataclass
class DecoderLayer:
    """As the encoder's, with attention to the source (`cross`) between the two."""

    attention_norm: Float[Array, " D"]
    attention: Attention
    cross_norm: Float[Array, " D"]
    cross: Attention
    mlp_norm: Float[Array, " D"]
    mlp: FeedForward


@struct.dataclass
class T5:
    """All parameters. `head` is None where the embedding serves as output head too."""

    embedding: Float[Array, "V D"]
    encoder: tuple[EncoderLayer, ...]
    encoder_bias: Float[Array, "buckets N"]
    encoder_norm: Float[Array, " D"]
    decoder: tuple[DecoderLayer, ...]
    decoder_bias: Float[Array, "buckets N"]
    decoder_norm: Float[Array, " D"]
    head: Float[Array, "V D"] | None


@struct.dataclass
class SourceCache:
    """What a decode keeps of its sources, in the place of a `PromptCache`: one array a decoder layer.

    `cross_keys` and `cross_values` are those of the source, whose real tokens `valid` marks; `keys` and `values` those
    of the start token, which every row begins with.
    """

    cross_keys: tuple[Float[Array, "B N P H"], ...]
    cross_values: tuple[Float[Array, "B N P H"], ...]
    keys: tuple[Float[Array, "B N 1 H"], ...]
    values: tuple[Float[Array, "B N 1 H"], ...]
    valid: Bool[Array, "B P"]


def abstract(cfg: T5Config, dtype: Any) -> T5:
    """The tree of parameters with a `ParamSpec` at each leaf: initialisation, loading and checks derive from it.

    Raises:
        ValueError: for float16, in which the sums inside T5's feed-forward layers overflow.
    """
    if jnp.dtype(dtype) == jnp.float16:
        raise ValueError("T5 is refused in float16, where its feed-forward layers overflow: take bfloat16 or float32")
    sizes = {
        "V": cfg.vocab_size,
        "D": cfg.hidden_size,
        "F": cfg.intermediate_size,
        "N": cfg.num_heads,
        "H": cfg.head_dim,
        "P": cfg.num_buckets,
    }

    def leaf(axes: str, present: bool = True) -> ParamSpec | None:
        return ParamSpec(tuple(sizes[a] for a in axes), dtype, axes) if present else None

    norm = leaf("D")
    attention = Attention(q=leaf("DNH"), k=leaf("DNH"), v=leaf("DNH"), o=leaf("NHD"))
    mlp = FeedForward(gate=leaf("DF"), up=leaf("DF", cfg.gated), down=leaf("FD"))
    return T5(
        embedding=leaf("VD"),
        encoder=(EncoderLayer(norm, attention, norm, mlp),) * cfg.num_encoder_layers,
        encoder_bias=leaf("PN"),
        encoder_norm=norm,
        decoder=(DecoderLayer(norm, attention, norm, attention, norm, mlp),) * cfg.num_layers,
        decoder_bias=leaf("PN"),
        decoder_norm=norm,
        head=leaf("VD", not cfg.tied_head),
    )


def relative_buckets(cfg: T5Config, distance: np.ndarray, *, both_ways: bool) -> np.ndarray:
    """The bucket of each distance (key position - query position), as the published code computes it.

    Half of the buckets are one distance each, the others grow by the logarithm up to `max_distance`. `both_ways` gives
    the keys ahead the upper half; without it they share bucket 0, since a decoder does not see them.
    """
    count = cfg.num_buckets // 2 if both_ways else cfg.num_buckets
    offset = count * (distance > 0) if both_ways else 0
    size = np.abs(distance) if both_ways else np.maximum(-distance, 0)
    exact = count // 2
    # In float32, as the models were trained: some distances lie on the edge of a bucket.
    ratio = np.log(np.maximum(size, 1).astype(np.float32) / np.float32(exact))
    grown = ratio / np.float32(np.log(cfg.max_distance / exact)) * np.float32(count - exact)
    far = np.minimum(exact + grown.astype(np.int32), count - 1)
    return (offset + np.where(size < exact, size, far)).astype(np.int32)


def encode(params: T5, cfg: T5Config, tokens: Int[Array, "B T"], valid: Bool[Array, "B T"]) -> Float[Array, "B T D"]:
    """The encoder's states of left-padded sources, after its final norm. States of padding are finite, and unused."""
    length = tokens.shape[1]
    buckets = relative_buckets(cfg, np.arange(1 - length, length), both_ways=True)
    bias = params.encoder_bias[buckets].astype(jnp.float32).T
    x = constrain(params.embedding[tokens], "BTD")
    for layer in params.encoder:
        q, k, v = _project(layer.attention, rms_norm(x, layer.attention_norm, cfg.rms_norm_eps))
        q, k, v = (constrain(a.swapaxes(1, 2), "BNTH") for a in (q, k, v))
        mixed = _attention_both_ways(q, k, v, valid, bias)
        x = x + layers.from_heads(mixed.swapaxes(1, 2), layer.attention.o)
        x = x + _feed_forward(layer.mlp, cfg, rms_norm(x, layer.mlp_norm, cfg.rms_norm_eps))
    return rms_norm(x, params.encoder_norm, cfg.rms_norm_eps)


def read(
    params: T5, cfg: T5Config, tokens: Int[Array, "B T"], valid: Bool[Array, "B T"]
) -> tuple[Float[Array, "B D"], SourceCache]:
    """Encode left-padded sources and let the decoder read its start token.

    Returns the states that the logits of the first token come from, and what the decode keeps of the sources.
    """
    states = encode(params, cfg, tokens, valid)
    x = jnp.broadcast_to(params.embedding[cfg.start_id], (tokens.shape[0], cfg.hidden_size))
    cross_keys, cross_values, keys, values = [], [], [], []
    for layer in params.decoder:
        source = [layers.to_heads(states, weight).swapaxes(1, 2) for weight in (layer.cross.k, layer.cross.v)]
        source_k, source_v = (constrain(a, "BKSH") for a in source)
        _, k, v = _project(layer.attention, rms_norm(x, layer.attention_norm, cfg.rms_norm_eps))
        # The start token sees itself alone: attention gives its own value back, whatever the bias.
        x = _finish(layer, cfg, x, v, lambda q, k=source_k, v=source_v: _to_source(q, k, v, valid))
        cross_keys.append(source_k)
        cross_values.append(source_v)
        keys.append(k[:, :, None])
        values.append(v[:, :, None])
    cache = SourceCache(tuple(cross_keys), tuple(cross_values), tuple(keys), tuple(values), valid)
    return _before_head(params, cfg, x), cache


def step(
    params: T5,
    cfg: T5Config,
    tokens: Int[Array, " R"],
    sources: tuple[SourceCache, ...],
    suffixes: tuple[SuffixCache, ...],
    cursor: Int[Array, ""],
) -> tuple[Float[Array, "M R D"], tuple[SuffixCache, ...]]:
    """Feed one token a row to M members that share these weights, each attending to its own source.

    As `decoder.step`, whose place it takes: row r belongs to example r // (R // B), and the token goes to suffix slot
    `cursor`. Its position is `cursor + 1`, since the start token has position 0.
    """
    bias = _step_bias(params, cfg, suffixes[0].keys[0].shape[2], cursor)
    x = constrain(jnp.broadcast_to(params.embedding[tokens], (len(sources), len(tokens), cfg.hidden_size)), "MRD")
    written: list[tuple[list, list]] = [([], []) for _ in sources]
    for index, layer in enumerate(params.decoder):
        q, k, v = _project(layer.attention, rms_norm(x, layer.attention_norm, cfg.rms_norm_eps))
        mixed = []
        for m, (source, suffix) in enumerate(zip(sources, suffixes, strict=True)):
            new_k = constrain(write(suffix.keys[index], k[m], cursor), "RKSH")
            new_v = constrain(write(suffix.values[index], v[m], cursor), "RKSH")
            start = source.keys[index], source.values[index], np.ones((source.valid.shape[0], 1), bool)
            mixed.append(layers.step_attention(q[m], *start, new_k, new_v, cursor, scale=1.0, window=None, bias=bias))
            written[m][0].append(new_k)
            written[m][1].append(new_v)

        def attend(q: Array, index: int = index) -> Array:
            pairs = zip(q, sources, strict=True)
            return jnp.stack([_to_source(own, s.cross_keys[index], s.cross_values[index], s.valid) for own, s in pairs])

        x = _finish(layer, cfg, x, jnp.stack(mixed), attend)
    return _before_head(params, cfg, x), tuple(SuffixCache(tuple(k), tuple(v)) for k, v in written)


def _project(a: Attention, h: Float[Array, "... D"]) -> tuple[Array, Array, Array]:
    """Queries, keys and values [..., N, H] of normalised states."""
    return layers.to_heads(h, a.q), layers.to_heads(h, a.k), layers.to_heads(h, a.v)


def _finish(
    layer: DecoderLayer,
    cfg: T5Config,
    x: Float[Array, "... D"],
    mixed: Float[Array, "... N H"],
    attend: Callable[[Float[Array, "... N H"]], Float[Array, "... N H"]],
) -> Float[Array, "... D"]:
    """The rest of a decoder layer once self-attention has mixed the values; `attend` is attention to the source."""
    x = x + layers.from_heads(mixed, layer.attention.o)
    q = layers.to_heads(rms_norm(x, layer.cross_norm, cfg.rms_norm_eps), layer.cross.q)
    x = x + layers.from_heads(attend(q), layer.cross.o)
    return x + _feed_forward(layer.mlp, cfg, rms_norm(x, layer.mlp_norm, cfg.rms_norm_eps))


def _feed_forward(m: FeedForward, cfg: T5Config, h: Float[Array, "... D"]) -> Float[Array, "... D"]:
    inner = layers.ACTIVATIONS[cfg.activation](product("...d,df->...f", h, m.gate))
    if m.up is not None:
        inner = inner * product("...d,df->...f", h, m.up)
    return product("...f,fd->...d", inner, m.down)


def _before_head(params: T5, cfg: T5Config, x: Float[Array, "... D"]) -> Float[Array, "... D"]:
    """The final norm and, where the embedding is the head, the scale of its logits."""
    x = rms_norm(x, params.decoder_norm, cfg.rms_norm_eps)
    return x * jnp.asarray(cfg.hidden_size**-0.5, x.dtype) if cfg.tied_head else x


def _to_source(
    q: Float[Array, "R N H"], k: Float[Array, "B N P H"], v: Float[Array, "B N P H"], valid: Bool[Array, "B P"]
) -> Float[Array, "R N H"]:
    return layers.prompt_attention(q, k, v, valid, scale=1.0)


def _step_bias(params: T5, cfg: T5Config, slots: int, cursor: Int[Array, ""]) -> Float[Array, "N S"]:
    """The decoder's bias of the token at position `cursor + 1` towards the start token and each slot of the suffix."""
    buckets = relative_buckets(cfg, -np.arange(slots + 1), both_ways=False)
    by_distance = params.decoder_bias[buckets].astype(jnp.float32)
    return by_distance[jnp.maximum(cursor + 1 - np.arange(slots + 1), 0)].T


def _attention_both_ways(
    q: Float[Array, "B N T H"],
    k: Float[Array, "B N T H"],
    v: Float[Array, "B N T H"],
    valid: Bool[Array, "B T"],
    bias: Float[Array, "N distances"],
) -> Float[Array, "B N T H"]:
    """Attention of every token to all real ones of its row, in blocks of queries.

    Real tokens of a row are contiguous, so that a difference of slots is one of positions.
    """
    length, mixed = q.shape[2], []
    for start in range(0, length, layers.QUERY_BLOCK):
        block = q[:, :, start : start + layers.QUERY_BLOCK]
        scores = product("bnqh,bnkh->bnqk", block, k, accumulate=True) + _spread(bias, start, block.shape[2], length)
        weights = layers.masked_softmax(scores, valid[:, None, None]).astype(v.dtype)
        mixed.append(product("bnqk,bnkh->bnqh", weights, v))
    return jnp.concatenate(mixed, axis=2)


def _spread(bias: Float[Array, "N distances"], start: int, rows: int, length: int) -> Float[Array, "N rows T"]:
    """The bias of `rows` queries from slot `start` on towards each of T keys, by distance from 1 - T to T - 1.

    A query's row is the one before it moved by a place. Repeating the stretch that they cover, and cutting the
    repetitions one longer than they are, moves them so without a gather: last query first.
    """
    stretch = bias[:, length - start - rows : 2 * length - start - 1]
    width = stretch.shape[1]
    moved = jnp.tile(stretch, (1, rows + 1))[:, : rows * (width + 1)].reshape(-1, rows, width + 1)
    return moved[:, ::-1, :length]
