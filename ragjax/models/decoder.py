"""The one decoder of all causal families: its parameters, and its two ways of running.

`forward` reads whole left-padded prompts and returns hidden states with the keys and values they leave behind;
`step` reads one new token a row against those. Both unroll the layers. Which family a checkpoint belongs to shows
only in `DecoderConfig`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from flax import struct

from ragjax.models import layers
from ragjax.models.cache import PromptCache, SuffixCache, within_reach, write
from ragjax.models.config import DecoderConfig
from ragjax.models.layers import plus, product
from ragjax.models.moe import Experts, mix_experts
from ragjax.sharding import constrain
from ragjax.typing import Array, Bool, Float, Int


@struct.dataclass
class Attention:
    """Projections, input axis first; a bias, or a norm of each head, is None where the family has none."""

    q: Float[Array, "D N H"]
    k: Float[Array, "D K H"]
    v: Float[Array, "D K H"]
    o: Float[Array, "N H D"]
    q_bias: Float[Array, "N H"] | None
    k_bias: Float[Array, "K H"] | None
    v_bias: Float[Array, "K H"] | None
    o_bias: Float[Array, " D"] | None
    q_norm: Float[Array, " H"] | None = None
    k_norm: Float[Array, " H"] | None = None


@struct.dataclass
class Mlp:
    """The gated feed-forward layer."""

    gate: Float[Array, "D F"]
    up: Float[Array, "D F"]
    down: Float[Array, "F D"]
    gate_bias: Float[Array, " F"] | None
    up_bias: Float[Array, " F"] | None
    down_bias: Float[Array, " D"] | None


@struct.dataclass
class Layer:
    """One block: norm, attention, norm, feed-forward, each half added to the residual stream.

    The post-norms, None in most families, take what a half adds.
    """

    attention_norm: Float[Array, " D"]
    attention: Attention
    mlp_norm: Float[Array, " D"]
    mlp: Mlp | Experts
    post_attention_norm: Float[Array, " D"] | None = None
    post_mlp_norm: Float[Array, " D"] | None = None


@struct.dataclass
class Decoder:
    """All parameters of a decoder. `head` is None where the embedding serves as output head too."""

    embedding: Float[Array, "V D"]
    layers: tuple[Layer, ...]
    final_norm: Float[Array, " D"]
    head: Float[Array, "V D"] | None


@dataclass(frozen=True)
class ParamSpec:
    """What `abstract` says of a parameter: shape, dtype, and the letter of each axis."""

    shape: tuple[int, ...]
    dtype: Any
    axes: str


def abstract(cfg: DecoderConfig, dtype: Any) -> Decoder:
    """The tree of parameters with a `ParamSpec` at each leaf: initialisation, loading and checks derive from it."""
    sizes = {
        "V": cfg.vocab_size,
        "D": cfg.hidden_size,
        "F": cfg.intermediate_size,
        "N": cfg.num_heads,
        "K": cfg.num_kv_heads,
        "H": cfg.head_dim,
        "E": cfg.num_experts,
    }

    def leaf(axes: str, present: bool = True) -> ParamSpec | None:
        return ParamSpec(tuple(sizes[a] for a in axes), dtype, axes) if present else None

    attention = Attention(
        q=leaf("DNH"),
        k=leaf("DKH"),
        v=leaf("DKH"),
        o=leaf("NHD"),
        q_bias=leaf("NH", cfg.qkv_bias),
        k_bias=leaf("KH", cfg.qkv_bias),
        v_bias=leaf("KH", cfg.qkv_bias),
        o_bias=leaf("D", cfg.output_bias),
        q_norm=leaf("H", cfg.qk_norm),
        k_norm=leaf("H", cfg.qk_norm),
    )
    layer = Layer(
        attention_norm=leaf("D"),
        attention=attention,
        mlp_norm=leaf("D"),
        mlp=_feed_forward_specs(cfg, leaf),
        post_attention_norm=leaf("D", cfg.post_norms),
        post_mlp_norm=leaf("D", cfg.post_norms),
    )
    return Decoder(
        embedding=leaf("VD"),
        layers=(layer,) * cfg.num_layers,
        final_norm=leaf("D"),
        head=leaf("VD", not cfg.tied_head),
    )


def _feed_forward_specs(cfg: DecoderConfig, leaf: Callable[..., ParamSpec | None]) -> Mlp | Experts:
    if cfg.num_experts:
        return Experts(router=leaf("DE"), gate=leaf("EDF"), up=leaf("EDF"), down=leaf("EFD"))
    return Mlp(
        gate=leaf("DF"),
        up=leaf("DF"),
        down=leaf("FD"),
        gate_bias=leaf("F", cfg.mlp_bias),
        up_bias=leaf("F", cfg.mlp_bias),
        down_bias=leaf("D", cfg.mlp_bias),
    )


def positions_of(valid: Bool[Array, "B T"]) -> Int[Array, "B T"]:
    """Positions from the mask: 0 at a row's first real token, whatever its padding."""
    return jnp.maximum(jnp.cumsum(valid.astype(jnp.int32), axis=1) - 1, 0)


def forward(
    params: Decoder,
    cfg: DecoderConfig,
    tokens: Int[Array, "B T"],
    valid: Bool[Array, "B T"],
    layer: int | None = None,
) -> tuple[Float[Array, "B T D"], PromptCache]:
    """Hidden states of left-padded prompts, and the cache they leave.

    `layer=None` gives the states after the final norm. `layer=i` gives the states that enter block i (0 <= i < L:
    the embeddings for 0) and runs no block from i on; the cache then ends there too. States of padding are finite and
    mean nothing.
    """
    if layer is not None and not 0 <= layer < cfg.num_layers:
        raise ValueError(f"layer counts the blocks from 0 to {cfg.num_layers - 1}, got {layer}")
    x = constrain(_embed(params, cfg, tokens), "BTD")
    tables = _rotary_tables(cfg, positions_of(valid)[:, None], x.dtype)
    keys, values = [], []
    for block, window, turn in zip(params.layers[:layer], cfg.windows, tables, strict=False):
        q, k, v = _project(block, cfg, x)
        q, k, v = (a.swapaxes(1, 2) for a in (q, k, v))
        q, k, v = layers.rotate(q, *turn), constrain(layers.rotate(k, *turn), "BKTH"), constrain(v, "BKTH")
        mixed = layers.causal_attention(q, k, v, valid, scale=cfg.query_scale, window=window)
        x = _finish(block, cfg, x, mixed.swapaxes(1, 2))
        keys.append(within_reach(k, window))
        values.append(within_reach(v, window))
    cache = PromptCache(tuple(keys), tuple(values), valid, jnp.sum(valid, axis=1, dtype=jnp.int32))
    if layer is None:
        x = _norm(cfg, x, params.final_norm)
    return x, cache


def step(
    params: Decoder,
    cfg: DecoderConfig,
    tokens: Int[Array, " R"],
    prompts: tuple[PromptCache, ...],
    suffixes: tuple[SuffixCache, ...],
    cursor: Int[Array, ""],
) -> tuple[Float[Array, "M R D"], tuple[SuffixCache, ...]]:
    """Feed one token a row to M members that share these weights, each attending to its own cache.

    The members are stacked in the matrix products, so the weights are read once. Row r belongs to example
    r // (R // B). `cursor` tokens were fed before: this one goes to suffix slot `cursor`, at position
    `prompt length + cursor`. Returns the states after the final norm and the suffixes with the token added.
    """
    rows = tokens.shape[0]
    x = _embed(params, cfg, tokens)
    x = constrain(jnp.broadcast_to(x, (len(prompts), *x.shape)), "MRD")
    positions = jnp.stack([jnp.repeat(p.lengths, rows // p.lengths.shape[0]) for p in prompts]) + cursor
    tables = _rotary_tables(cfg, positions[..., None], x.dtype)
    written: list[tuple[list, list]] = [([], []) for _ in prompts]
    for index, (block, window, turn) in enumerate(zip(params.layers, cfg.windows, tables, strict=True)):
        q, k, v = _project(block, cfg, x)
        q, k = layers.rotate(q, *turn), layers.rotate(k, *turn)
        mixed = []
        for m, (prompt, suffix) in enumerate(zip(prompts, suffixes, strict=True)):
            new_k = constrain(write(suffix.keys[index], k[m], cursor), "RKSH")
            new_v = constrain(write(suffix.values[index], v[m], cursor), "RKSH")
            keys, values = prompt.keys[index], prompt.values[index]
            caches = keys, values, prompt.valid[:, -keys.shape[2] :], new_k, new_v
            mixed.append(layers.step_attention(q[m], *caches, cursor, scale=cfg.query_scale, window=window))
            written[m][0].append(new_k)
            written[m][1].append(new_v)
        x = _finish(block, cfg, x, jnp.stack(mixed))
    x = _norm(cfg, x, params.final_norm)
    return x, tuple(SuffixCache(tuple(k), tuple(v)) for k, v in written)


def logits(params: Decoder, hidden: Float[Array, "... D"], width: int) -> Float[Array, "... V"]:
    """Raw float32 logits of the first `width` ids: rows of the head beyond the tokenizer get no probability."""
    head = params.embedding if params.head is None else params.head
    return product("...d,vd->...v", hidden, head, accumulate=True)[..., :width]


def _embed(params: Decoder, cfg: DecoderConfig, tokens: Int[Array, "..."]) -> Float[Array, "... D"]:
    """Embeddings, scaled by a factor that is rounded to the dtype of the weights, as Gemma was trained."""
    return params.embedding[tokens] * jnp.asarray(cfg.embedding_scale, params.embedding.dtype)


def _rotary_tables(cfg: DecoderConfig, positions: Int[Array, "..."], dtype: jnp.dtype) -> list[tuple[Array, Array]]:
    """Cosines and sines for each layer; layers that turn alike share them."""
    ropes = [cfg.rope_at(layer) for layer in range(cfg.num_layers)]
    tables = {rope: layers.rotary(rope, cfg.head_dim, positions, dtype) for rope in dict.fromkeys(ropes)}
    return [tables[rope] for rope in ropes]


def _norm(cfg: DecoderConfig, x: Float[Array, "... D"], scale: Float[Array, " D"] | None) -> Float[Array, "... D"]:
    """The family's norm, or x where there is none."""
    if scale is None:
        return x
    norm = layers.offset_rms_norm if cfg.norm_offset else layers.rms_norm
    return norm(x, scale, cfg.rms_norm_eps)


def _project(block: Layer, cfg: DecoderConfig, x: Float[Array, "... D"]) -> tuple[Array, Array, Array]:
    """Queries [..., N, H], keys and values [..., K, H] of one block, before rotation."""
    a = block.attention
    h = _norm(cfg, x, block.attention_norm)
    pairs = ((a.q, a.q_bias), (a.k, a.k_bias), (a.v, a.v_bias))
    q, k, v = (plus(layers.to_heads(h, weight), bias) for weight, bias in pairs)
    return _norm(cfg, q, a.q_norm), _norm(cfg, k, a.k_norm), v


def _finish(block: Layer, cfg: DecoderConfig, x: Float[Array, "... D"], mixed: Float[Array, "... N H"]) -> Array:
    """The rest of a block once attention has mixed the values: output projection, norm, feed-forward, post-norms."""
    a = block.attention
    x = x + _norm(cfg, plus(layers.from_heads(mixed, a.o), a.o_bias), block.post_attention_norm)
    h = _norm(cfg, x, block.mlp_norm)
    activation = layers.ACTIVATIONS[cfg.activation]
    if cfg.num_experts:
        added = mix_experts(block.mlp, h, cfg.experts_per_token, activation)
    else:
        added = _feed_forward(block.mlp, h, activation)
    return x + _norm(cfg, added, block.post_mlp_norm)


def _feed_forward(m: Mlp, h: Float[Array, "... D"], activation: Callable[[Array], Array]) -> Float[Array, "... D"]:
    gate = plus(product("...d,df->...f", h, m.gate), m.gate_bias)
    up = plus(product("...d,df->...f", h, m.up), m.up_bias)
    return plus(product("...f,fd->...d", activation(gate) * up, m.down), m.down_bias)
